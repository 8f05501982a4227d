// Which compressor each bucket of an optimizer has in a step, where they are
// chosen while it trains.

#ifndef TF_GC_OPS_TENSORFLOW_PLAN_H_
#define TF_GC_OPS_TENSORFLOW_PLAN_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_base.h"

namespace tf_gc {

// When steps have begun, in seconds, that of step s at s mod size; 0 for
// unknown.
using StepTimes = std::vector<double>;

// What the plans of one optimizer have in common.
class Timeline : public tensorflow::ResourceBase {
 public:
  explicit Timeline(int64_t size) : times_(size) {}

  std::string DebugString() const override { return "tf_gc timeline"; }

  // Notes when a step has begun, and whether it may leave something in
  // residuals. Returns how many steps before it may have.
  int64_t Begin(int64_t step, double time, bool keeps_residuals);
  StepTimes times() const;

 private:
  mutable std::mutex mutex_;
  StepTimes times_;
  int64_t kept_ = 0;
};

// What a system, one of those to choose from, does with gradients.
struct SystemTraits {
  bool keeps_residuals;
  bool has_units;
  // Values wait for several steps, and then come in spikes.
  bool delivers_late;
};

// What a worker tells others, and follows.
struct PlanDecision {
  int64_t steps = 1;  // from its step to the next reports
  bool is_restored = false;
  bool is_settled = false;
  bool wants_gain = false;
  bool measures_links = true;  // in the first step after each report
  float ratio = 1;
  std::vector<int> choices;  // of each bucket
};

class Plan : public tensorflow::ResourceBase {
 public:
  Plan(tensorflow::core::RefCountPtr<Timeline> timeline,
       std::vector<SystemTraits> systems, int buckets, int64_t start_step,
       bool squares);

  std::string DebugString() const override { return "tf_gc plan"; }

  // What a bucket has in a step.
  struct BucketStep {
    int choice;
    bool has_units, shares_second_moment, has_fresh_units;
    // No compression, where residuals may wait from before.
    bool delivers_all;
    // Another number whenever something may have been left in residuals.
    int64_t residuals_version;
  };
  struct Step {
    std::vector<BucketStep> buckets;
    // How many of the plan's steps ago second moments were used last, 1 if it
    // is not known.
    int64_t second_moments_age;
    float ratio;
    bool measures_links, reports, wants_gain;
  };
  // Begins a step. `clean_versions` are those residuals_versions of the buckets
  // of which it is known that nothing waits.
  Step Follow(int64_t step, double now,
              const std::vector<int64_t>& clean_versions);

  // From the step after this one on. InvalidArgument for choices of other
  // buckets or systems.
  absl::Status Change(int64_t step, PlanDecision decision);

  int buckets() const { return residuals_versions_.size(); }
  std::vector<int> choices() const;
  StepTimes times() const;  // of the steps that had this plan
  const Timeline& timeline() const { return *timeline_; }

 private:
  const tensorflow::core::RefCountPtr<Timeline> timeline_;
  const std::vector<SystemTraits> systems_;
  const int64_t start_step_;
  const bool squares_;  // the optimizer, which uses shared second moments then
  bool any_delivers_late_ = false;

  mutable std::mutex mutex_;
  StepTimes times_;
  PlanDecision decision_;
  int64_t decided_at_ = 0;
  bool has_changed_ = false;             // since the last step
  int64_t second_moments_used_at_ = -1;  // the last step that did
  int64_t second_moments_age_ = 0;       // how many of the plan's steps ago
  int64_t kept_ = 0;  // of the timeline, after this plan's last step
  std::vector<int64_t> residuals_versions_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_PLAN_H_
