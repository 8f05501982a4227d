#include "ops/tensorflow/exact_variables.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/tensorflow/handles.h"

namespace tf_gc {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

absl::Status ReadExactVariables(OpKernelContext* context, const char* input,
                                const char* output, float divisor,
                                int statistics,
                                std::vector<ExactVariable>* variables) {
  OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list(input, &gradients));
  int first_input, first_output, end;
  TF_RETURN_IF_ERROR(
      context->op_kernel().InputRange(input, &first_input, &end));
  TF_RETURN_IF_ERROR(
      context->op_kernel().OutputRange(output, &first_output, &end));
  for (int i = 0; i < gradients.size(); ++i) {
    Tensor* reduced;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
        {first_input + i}, first_output + i, gradients[i].shape(), &reduced));
    const bool is_statistic = i >= gradients.size() - statistics;
    const auto add = [&](auto type) {
      using T = decltype(type);
      variables->push_back(Exact<T>{gradients[i].flat<T>().data(),
                                    reduced->flat<T>().data(),
                                    is_statistic ? 1 : divisor, is_statistic});
    };
    switch (gradients[i].dtype()) {
      case tensorflow::DT_HALF:
        add(Eigen::half());
        break;
      case tensorflow::DT_BFLOAT16:
        add(Eigen::bfloat16());
        break;
      default:
        add(float());
    }
  }
  return absl::OkStatus();
}

Companions::Companions(OpKernelConstruction* context) {
  OP_REQUIRES_OK(context,
                 context->GetAttr("statistic_companions", &statistics_));
}

absl::Status Companions::Read(OpKernelContext* context, float divisor,
                              Step* step) const {
  OpInputList companions;
  TF_RETURN_IF_ERROR(context->input_list("companions", &companions));
  std::vector<ExactVariable> variables;
  TF_RETURN_IF_ERROR(ReadExactVariables(context, "companions",
                                        "companions_reduced", divisor,
                                        statistics_, &variables));
  for (const Tensor& companion : companions) {
    step->sizes_.push_back(companion.NumElements());
    step->bytes_ += companion.TotalBytes();
  }
  step->hop_ = std::make_unique<JointHop>(std::move(variables), step->sizes_);
  if (companions.size() == 0) return absl::OkStatus();
  TF_RETURN_IF_ERROR(LookupInput(context, "companions_bucket", &step->bucket_));
  if (companions.size() == step->bucket_->variables()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "companions: ", companions.size(), " tensors for a bucket of ",
      step->bucket_->variables(), " variables"));
}

void Companions::Step::Count(int ranks) const {
  if (sizes_.empty()) return;
  Traffic traffic(sizes_.size());
  traffic.AddStep(sizes_, ranks);
  for (size_t v = 0; v < sizes_.size(); ++v) {
    traffic.payload_bytes_sent[v] = hop_->traffic()[v].bytes;
  }
  bucket_->Count(traffic);
}

}  // namespace tf_gc
