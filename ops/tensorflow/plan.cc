#include "ops/tensorflow/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tf_gc {
namespace {

// Of how many steps one measures links, unless it is wanted more often: a
// second transfer for some messages is a good part of a small step.
constexpr int kStepsPerMeasurement = 16;

constexpr int64_t kFirstVersion = 1;

}  // namespace

int64_t Timeline::Begin(int64_t step, double time, bool keeps_residuals) {
  std::lock_guard<std::mutex> lock(mutex_);
  times_[step % times_.size()] = time;
  return std::exchange(kept_, kept_ + keeps_residuals);
}

StepTimes Timeline::times() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return times_;
}

Plan::Plan(tensorflow::core::RefCountPtr<Timeline> timeline,
           std::vector<SystemTraits> systems, int buckets, int64_t start_step,
           bool squares)
    : timeline_(std::move(timeline)),
      systems_(std::move(systems)),
      start_step_(start_step),
      squares_(squares),
      times_(timeline_->times().size()),
      residuals_versions_(buckets, kFirstVersion) {
  decision_.choices.resize(buckets);
  for (const SystemTraits& system : systems_) {
    any_delivers_late_ |= system.delivers_late;
  }
}

Plan::Step Plan::Follow(int64_t step, double now,
                        const std::vector<int64_t>& clean_versions) {
  const double time = step < start_step_ ? 0 : now;  // nothing was chosen
  std::lock_guard<std::mutex> lock(mutex_);
  const bool keeps =
      std::any_of(decision_.choices.begin(), decision_.choices.end(),
                  [&](int choice) { return systems_[choice].keeps_residuals; });
  // Another plan may have left residuals of the same variables.
  const int64_t kept = timeline_->Begin(step, time, keeps);
  const bool has_another_kept = std::exchange(kept_, kept + keeps) != kept;
  times_[step % times_.size()] = time;
  Step result;
  result.ratio = decision_.ratio;
  const bool is_open = !decision_.is_settled;
  const bool is_first = std::exchange(has_changed_, false);
  result.measures_links =
      decision_.measures_links ? is_first : step % kStepsPerMeasurement == 0;
  for (int b = 0; b < buckets(); ++b) {
    const int choice = decision_.choices[b];
    const SystemTraits& system = systems_[choice];
    const int64_t version = residuals_versions_[b] += has_another_kept;
    const bool delivers_all =
        !system.keeps_residuals && clean_versions[b] != version;
    // What has waited comes in spikes. Squares and shared moments differ in
    // scale, by up to the number of workers, and optimizers remember for long:
    // so all steps share while systems are tried.
    const bool shares = system.delivers_late ||
                        (delivers_all && version != kFirstVersion) ||
                        (is_open && any_delivers_late_);
    const bool has_fresh_units =
        systems_.size() > 1 && (is_open || !system.delivers_late);
    result.buckets.push_back({choice, system.has_units, shares, has_fresh_units,
                              delivers_all, version});
    residuals_versions_[b] += system.keeps_residuals;
  }
  // Steps of other plans do not count: they are of other variables.
  const int64_t age = ++second_moments_age_;
  const int64_t used_at = second_moments_used_at_;
  result.second_moments_age = used_at >= 0 && step > used_at ? age : 1;
  for (const BucketStep& bucket : result.buckets) {
    if (bucket.has_units || (squares_ && bucket.shares_second_moment)) {
      second_moments_used_at_ = step;
      second_moments_age_ = 0;
    }
  }
  // Where a checkpoint was restored, an optimizer may be in an earlier step.
  const int64_t since = step - decided_at_;
  result.reports =
      (since >= decision_.steps || since < 0) && step >= start_step_;
  result.wants_gain = result.reports && decision_.wants_gain;
  return result;
}

absl::Status Plan::Change(int64_t step, PlanDecision decision) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (decision.choices.size() != residuals_versions_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "decision must have a choice for each of ", residuals_versions_.size(),
        " buckets, got ", decision.choices.size()));
  }
  for (const int choice : decision.choices) {
    if (choice >= 0 && choice < static_cast<int>(systems_.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("decision: choices must be in 0 ... ", systems_.size() - 1,
                     ", got ", choice));
  }
  if (decision.is_restored) {
    for (int64_t& version : residuals_versions_) ++version;
  }
  decision_ = std::move(decision);
  decided_at_ = step;
  has_changed_ = true;
  return absl::OkStatus();
}

std::vector<int> Plan::choices() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return decision_.choices;
}

StepTimes Plan::times() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return times_;
}

}  // namespace tf_gc
