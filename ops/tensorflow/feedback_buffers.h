// The buffers of an all-reduce of gradients with error feedback.

#ifndef TF_GC_OPS_TENSORFLOW_FEEDBACK_BUFFERS_H_
#define TF_GC_OPS_TENSORFLOW_FEEDBACK_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/feedback_variable.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/wire/floats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

// The attribute `name`, the number of rows of each gradient.
absl::Status GetRows(tensorflow::OpKernelConstruction* context,
                     const char* name, std::vector<int64_t>* rows);

// The input units[i] of a variable of `size` values: null for none. The number
// of rows comes from the attribute `rows_name`.
absl::Status GetUnits(const tensorflow::Tensor& units, int64_t size,
                      int64_t rows, const char* rows_name, int i,
                      const float** array);

// Finds out from the input statistics[i] whether the variable's values are
// small, which it says in `are_small`.
absl::Status AreSmall(const tensorflow::Tensor& statistics, int i,
                      FeedbackVariable* variable);

// Of the inputs `gradients`, of type T, `residuals` and `units`. The buffers
// rotate, so that a step of float32 allocates nothing: the gradient's becomes
// the new residual, and the old residual's becomes the reduced gradient. Where
// somebody else still reads one of them, a fresh one takes its place.
template <typename T>
class FeedbackBuffers {
 public:
  explicit FeedbackBuffers(tensorflow::OpKernelContext* context)
      : context_(context) {}

  // `rows` are those of the units, from the attribute `rows_name`.
  absl::Status Prepare(const std::vector<int64_t>& rows,
                       const char* rows_name) {
    TF_RETURN_IF_ERROR(context_->input_list("gradients", &gradients_));
    TF_RETURN_IF_ERROR(context_->input_list("residuals", &residuals_));
    tensorflow::OpInputList units;
    TF_RETURN_IF_ERROR(context_->input_list("units", &units));
    states_.resize(gradients_.size());
    for (int i = 0; i < gradients_.size(); ++i) {
      const int64_t size = gradients_[i].NumElements();
      FeedbackVariable variable = {};
      TF_RETURN_IF_ERROR(
          GetUnits(units[i], size, rows[i], rows_name, i, &variable.units));
      TF_RETURN_IF_ERROR(FindResidual(i));
      TF_RETURN_IF_ERROR(TakeGradient(i, &variable.values));
      variable.size = size;
      variable.rows = rows[i];
      variable.residual = Floats(&states_[i].old_residual);
      variable.new_residual = Floats(&states_[i].new_residual);
      variable.round = Round();
      variables_.push_back(variable);
    }
    return absl::OkStatus();
  }

  std::vector<FeedbackVariable>* variables() { return &variables_; }

  // Makes the new residuals those of the variables, but where a gradient was
  // not finite, and finds room for the reduced gradients.
  absl::Status Commit(const std::vector<bool>& non_finite) {
    for (size_t i = 0; i < states_.size(); ++i) {
      State& state = states_[i];
      const tensorflow::TensorShape shape = state.old_residual.shape();
      if (!non_finite[i]) {
        tensorflow::mutex_lock lock(*state.variable->mu());
        *state.variable->tensor() = state.new_residual;
      }
      tensorflow::Tensor& unused =
          non_finite[i] ? state.new_residual : state.old_residual;
      if (unused.RefCountIsOne()) {
        state.reduced = std::move(unused);
      } else {
        TF_RETURN_IF_ERROR(context_->allocate_temp(tensorflow::DT_FLOAT, shape,
                                                   &state.reduced));
      }
      variables_[i].reduced = Floats(&state.reduced);
    }
    return absl::OkStatus();
  }
  CommitCallback commit() {
    return [this](const std::vector<bool>& non_finite) {
      return Commit(non_finite);
    };
  }

  // Makes the reduced gradients the outputs.
  absl::Status SetOutputs() {
    for (size_t i = 0; i < states_.size(); ++i) {
      const tensorflow::Tensor& reduced = states_[i].reduced;
      if (std::is_same_v<T, float>) {
        context_->set_output(i, reduced);
        continue;
      }
      tensorflow::Tensor* output;
      TF_RETURN_IF_ERROR(
          context_->allocate_output(i, reduced.shape(), &output));
      Convert<float, T>(context_, reduced, output);
    }
    return absl::OkStatus();
  }

 private:
  // Of one variable.
  struct State {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;  // the residual's
    tensorflow::Tensor old_residual, new_residual, reduced;
  };

  static float* Floats(tensorflow::Tensor* tensor) {
    return tensor->flat<float>().data();
  }

  // Rounds values to T; null for none.
  static constexpr void (*Round())(float*, int64_t) {
    if (std::is_same_v<T, float>) return nullptr;
    return [](float* values, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        values[i] = ToFloat32(FromFloat32<T>(values[i]));
      }
    };
  }

  absl::Status FindResidual(int i) {
    State& state = states_[i];
    TF_RETURN_IF_ERROR(LookupHandle(context_, residuals_[i],
                                    absl::StrCat("residuals[", i, "]"),
                                    &state.variable));
    TF_RETURN_IF_ERROR(NoteResidual(state.variable.get(), i, &found_));
    {
      tensorflow::tf_shared_lock lock(*state.variable->mu());
      state.old_residual = *state.variable->tensor();
    }
    const tensorflow::TensorShape& shape = gradients_[i].shape();
    if (state.old_residual.dtype() == tensorflow::DT_FLOAT &&
        state.old_residual.shape() == shape) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("residuals[", i, "] must be a float32 variable of shape ",
                     shape.DebugString(), ", got ",
                     state.old_residual.DeviceSafeDebugString()));
  }

  // Takes the gradient's buffer for the new residual if nobody else needs it.
  absl::Status TakeGradient(int i, const float** values) {
    const tensorflow::Tensor& gradient = gradients_[i];
    tensorflow::Tensor& new_residual = states_[i].new_residual;
    if constexpr (std::is_same_v<T, float>) {
      *values = gradient.flat<float>().data();
      std::unique_ptr<tensorflow::Tensor> forwarded = context_->forward_input(
          i, tensorflow::OpKernelContext::Params::kNoReservation,
          tensorflow::DT_FLOAT, gradient.shape(),
          context_->input_memory_type(i), tensorflow::AllocatorAttributes());
      if (forwarded != nullptr && forwarded->IsAligned()) {
        new_residual = *forwarded;
        return absl::OkStatus();
      }
      return context_->allocate_temp(tensorflow::DT_FLOAT, gradient.shape(),
                                     &new_residual);
    }
    TF_RETURN_IF_ERROR(context_->allocate_temp(
        tensorflow::DT_FLOAT, gradient.shape(), &new_residual));
    Convert<T, float>(context_, gradient, &new_residual);
    *values = new_residual.flat<float>().data();
    return absl::OkStatus();
  }

  tensorflow::OpKernelContext* const context_;
  tensorflow::OpInputList gradients_, residuals_;
  std::vector<State> states_;
  Residuals found_;
  std::vector<FeedbackVariable> variables_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_FEEDBACK_BUFFERS_H_
