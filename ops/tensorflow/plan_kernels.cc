// Plans: kernels.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/plan.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/env.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::core::RefCountPtr;

template <typename T>
absl::Status OutputScalar(OpKernelContext* context, const char* name, T value) {
  Tensor* output;
  TF_RETURN_IF_ERROR(context->allocate_output(name, TensorShape({}), &output));
  output->scalar<T>()() = value;
  return absl::OkStatus();
}

template <typename Values>
absl::Status OutputVector(OpKernelContext* context, const char* name,
                          const Values& values) {
  using T = typename Values::value_type;
  Tensor* output;
  TF_RETURN_IF_ERROR(context->allocate_output(
      name, TensorShape({static_cast<int64_t>(values.size())}), &output));
  std::copy(values.begin(), values.end(), output->flat<T>().data());
  return absl::OkStatus();
}

class TimelineOp : public OpKernel {
 public:
  explicit TimelineOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("size", &size_));
  }

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(
        context, OutputHandle(context, [this] { return new Timeline(size_); }));
  }

 private:
  int64_t size_;
};

class PlanOp : public OpKernel {
 public:
  explicit PlanOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<bool> keeps, units, late;
    OP_REQUIRES_OK(context, context->GetAttr("keeps_residuals", &keeps));
    OP_REQUIRES_OK(context, context->GetAttr("has_units", &units));
    OP_REQUIRES_OK(context, context->GetAttr("delivers_late", &late));
    OP_REQUIRES_OK(context, context->GetAttr("buckets", &buckets_));
    OP_REQUIRES_OK(context, context->GetAttr("start_step", &start_step_));
    OP_REQUIRES_OK(context, context->GetAttr("squares", &squares_));
    OP_REQUIRES(
        context,
        !keeps.empty() && units.size() == keeps.size() &&
            late.size() == keeps.size(),
        absl::InvalidArgumentError(absl::StrCat(
            "keeps_residuals, has_units and delivers_late must have one value "
            "for each system, got ",
            keeps.size(), ", ", units.size(), " and ", late.size())));
    for (size_t i = 0; i < keeps.size(); ++i) {
      systems_.push_back({keeps[i], units[i], late[i]});
    }
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Timeline> timeline;
    OP_REQUIRES_OK(context, LookupInput(context, "timeline", &timeline));
    OP_REQUIRES_OK(context, OutputHandle(context, [&] {
                     return new Plan(std::move(timeline), systems_, buckets_,
                                     start_step_, squares_);
                   }));
  }

 private:
  std::vector<SystemTraits> systems_;
  int buckets_;
  int64_t start_step_;
  bool squares_;
};

class FollowPlanOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Follow(context));
  }

 private:
  absl::Status Follow(OpKernelContext* context) const {
    RefCountPtr<Plan> plan;
    TF_RETURN_IF_ERROR(LookupInput(context, "plan", &plan));
    int64_t step;
    TF_RETURN_IF_ERROR(ReadCount(context->input(1), "step", &step));
    OpOutputList choices;
    TF_RETURN_IF_ERROR(context->output_list("choices", &choices));
    if (choices.size() != plan->buckets()) {
      return absl::InvalidArgumentError(
          absl::StrCat("N must be the number of buckets of the plan, ",
                       plan->buckets(), ", got ", choices.size()));
    }
    OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("clean_versions", &inputs));
    std::vector<int64_t> clean_versions;
    for (const Tensor& version : inputs) {
      TF_RETURN_IF_ERROR(CheckScalar(version, "clean_versions"));
      clean_versions.push_back(version.scalar<int64_t>()());
    }
    const double now = 1e-6 * tensorflow::EnvTime::NowMicros();
    const Plan::Step followed = plan->Follow(step, now, clean_versions);
    TF_RETURN_IF_ERROR(OutputList<int32_t>(
        context, "choices", followed,
        [](const Plan::BucketStep& bucket) { return bucket.choice; }));
    TF_RETURN_IF_ERROR(OutputList<bool>(
        context, "has_units", followed,
        [](const Plan::BucketStep& bucket) { return bucket.has_units; }));
    TF_RETURN_IF_ERROR(OutputList<bool>(context, "shares_second_moment",
                                        followed,
                                        [](const Plan::BucketStep& bucket) {
                                          return bucket.shares_second_moment;
                                        }));
    TF_RETURN_IF_ERROR(OutputList<bool>(
        context, "has_fresh_units", followed,
        [](const Plan::BucketStep& bucket) { return bucket.has_fresh_units; }));
    TF_RETURN_IF_ERROR(OutputList<bool>(
        context, "delivers_all", followed,
        [](const Plan::BucketStep& bucket) { return bucket.delivers_all; }));
    TF_RETURN_IF_ERROR(OutputList<int64_t>(context, "residuals_versions",
                                           followed,
                                           [](const Plan::BucketStep& bucket) {
                                             return bucket.residuals_version;
                                           }));
    TF_RETURN_IF_ERROR(OutputScalar(context, "second_moments_age",
                                    followed.second_moments_age));
    TF_RETURN_IF_ERROR(OutputScalar(context, "ratio", followed.ratio));
    TF_RETURN_IF_ERROR(
        OutputScalar(context, "measures_links", followed.measures_links));
    TF_RETURN_IF_ERROR(OutputScalar(context, "reports", followed.reports));
    return OutputScalar(context, "wants_gain", followed.wants_gain);
  }

  template <typename T, typename Get>
  static absl::Status OutputList(OpKernelContext* context, const char* name,
                                 const Plan::Step& step, const Get& get) {
    OpOutputList outputs;
    TF_RETURN_IF_ERROR(context->output_list(name, &outputs));
    for (int b = 0; b < outputs.size(); ++b) {
      Tensor* output;
      TF_RETURN_IF_ERROR(outputs.allocate(b, TensorShape({}), &output));
      output->scalar<T>()() = get(step.buckets[b]);
    }
    return absl::OkStatus();
  }
};

class ChangePlanOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Plan> plan;
    OP_REQUIRES_OK(context, LookupInput(context, "plan", &plan));
    int64_t step;
    OP_REQUIRES_OK(context, ReadCount(context->input(1), "step", &step));
    const Tensor& input = context->input(2);
    OP_REQUIRES_OK(context, CheckVector(input, "decision"));
    constexpr int kFields = 6;
    OP_REQUIRES(context, input.NumElements() >= kFields,
                absl::InvalidArgumentError(
                    absl::StrCat("decision must have at least ", kFields,
                                 " values, got ", input.NumElements())));
    const auto values = input.flat<double>();
    PlanDecision decision;
    decision.steps = static_cast<int64_t>(values(0));
    decision.is_restored = values(1) > 0;
    decision.is_settled = values(2) > 0;
    decision.wants_gain = values(3) > 0;
    decision.measures_links = values(4) > 0;
    decision.ratio = static_cast<float>(values(5));
    for (int i = kFields; i < values.size(); ++i) {
      decision.choices.push_back(static_cast<int>(values(i)));
    }
    OP_REQUIRES_OK(context, plan->Change(step, std::move(decision)));
  }
};

class ReadPlanOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Plan> plan;
    OP_REQUIRES_OK(context, LookupInput(context, "plan", &plan));
    OP_REQUIRES_OK(context, OutputVector(context, "choices", plan->choices()));
    OP_REQUIRES_OK(context, OutputVector(context, "times", plan->times()));
    OP_REQUIRES_OK(context, OutputVector(context, "optimizer_times",
                                         plan->timeline().times()));
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>Timeline", TimelineOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>Plan", PlanOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>FollowPlan", FollowPlanOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ChangePlan", ChangePlanOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ReadPlan", ReadPlanOp);

}  // namespace
}  // namespace tf_gc
