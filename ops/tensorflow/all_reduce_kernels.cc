// The all-reduces of gradients: kernels.

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/three_lc_hop.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/tensorflow/all_reduce_op.h"
#include "ops/tensorflow/bucket.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tf_gc {
namespace {

using kernels::ThreeLcScaling;
using ::tensorflow::AllocatorAttributes;
using ::tensorflow::DT_FLOAT;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::ResourceHandle;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::Var;
using ::tensorflow::core::RefCountPtr;

class BucketOp : public OpKernel {
 public:
  explicit BucketOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("variables", &variables_));
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    OP_REQUIRES_OK(context,
                   context->GetAttr("measures_links", &measures_links_));
    if (label_.empty()) label_ = absl::StrCat("bucket ", key_);
  }

  void Compute(OpKernelContext* context) override {
    Tensor* handle;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({}), &handle));
    handle->scalar<ResourceHandle>()() = ResourceHandle::MakeRefCountingHandle(
        new Bucket(key_, variables_, label_, measures_links_),
        context->device()->name());
  }

 private:
  std::string key_;
  int variables_;
  std::string label_;
  bool measures_links_;
};

class BeginStepOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    OP_REQUIRES_OK(context, CheckScalar(context->input(1), "step"));
    bucket->BeginStep(context->input(1).scalar<int64_t>()());
  }
};

class BucketTrafficOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    const Traffic traffic = bucket->traffic();
    const TensorShape scalar, by_variable({bucket->variables()});
    const struct {
      const TensorShape& shape;
      const int64_t* values;
    } outputs[] = {
        {scalar, &traffic.steps},
        {scalar, &traffic.exchanges},
        {scalar, &traffic.bytes_sent},
        {scalar, &traffic.bytes_received},
        {scalar, &traffic.result_bytes_sent},
        {by_variable, traffic.values_sent.data()},
        {by_variable, traffic.payload_bytes_sent.data()},
        {scalar, &traffic.shared_bytes_sent},
        {scalar, &traffic.microseconds_waited},
    };
    int index = 0;
    for (const auto& output : outputs) {
      OP_REQUIRES_OK(context,
                     Output(context, index++, output.shape, output.values));
    }
  }

 private:
  static absl::Status Output(OpKernelContext* context, int index,
                             const TensorShape& shape, const int64_t* values) {
    Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(index, shape, &output));
    std::copy_n(values, shape.num_elements(), output->flat<int64_t>().data());
    return absl::OkStatus();
  }
};

class ExactAllReduceOp : public AllReduceOp {
 public:
  explicit ExactAllReduceOp(OpKernelConstruction* context)
      : AllReduceOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("statistics", &statistics_));
  }

 private:
  absl::Status AllReduce(OpKernelContext* context, const RunHop& run) override {
    OpInputList gradients;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    std::vector<ExactVariable> variables;
    for (int i = 0; i < gradients.size(); ++i) {
      Tensor* reduced;
      TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
          {i}, i, gradients[i].shape(), &reduced));
      const bool is_statistic = i >= gradients.size() - statistics_;
      const auto add = [&](auto type) {
        using T = decltype(type);
        variables.push_back(Exact<T>{gradients[i].flat<T>().data(),
                                     reduced->flat<T>().data(),
                                     is_statistic ? 1 : divisor()});
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
    ExactHop hop(std::move(variables));
    return run(&hop);
  }

  int statistics_;
};

// values <- the gradient, in float32.
template <typename T>
void CopyAsFloat(const Tensor& gradient, Tensor* values) {
  values->flat<float>() = gradient.flat<T>().template cast<float>();
}

// Rounds values to another type; null for none.
template <typename T>
constexpr void (*RoundTo())(float*, int64_t) {
  if (std::is_same_v<T, float>) return nullptr;
  return [](float* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>(static_cast<T>(values[i]));
    }
  };
}

// What the op holds of one variable's residual.
struct State {
  RefCountPtr<Var> residual;
  Tensor old_residual;
  Tensor new_residual;
};

// The units of one variable of `size` values: null for none.
absl::Status GetUnits(const Tensor& units, int64_t size, int64_t rows, int i,
                      const float** array) {
  if (units.NumElements() == 0 || size == 0) return absl::OkStatus();
  if (rows < 1 || size % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows[", i, "] must divide the ", size,
                     " values of gradients[", i, "], got ", rows));
  }
  if (units.dims() != 1 || units.NumElements() != rows + size / rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("units[", i, "] must have the shape [", rows + size / rows,
                     "], for rows = ", rows, " and ", size / rows,
                     " columns, or [0], got ", units.shape().DebugString()));
  }
  const auto values = units.flat<float>();
  for (int64_t j = 0; j < values.size(); ++j) {
    if (std::isfinite(values(j)) && values(j) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("units[", i, "] must be finite and above 0, got ",
                     values(j), " at ", j));
  }
  *array = values.data();
  return absl::OkStatus();
}

// The buffers rotate, so that a step allocates nothing: the gradient's becomes
// the new residual, and the old residual's becomes the reduced gradient. Where
// somebody else still reads one of them, a fresh one takes its place.
template <typename T>
class ThreeLcAllReduceOp : public AllReduceOp {
 public:
  explicit ThreeLcAllReduceOp(OpKernelConstruction* context)
      : AllReduceOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
    OP_REQUIRES(context,
                static_cast<int>(rows_.size()) == context->num_outputs(),
                absl::InvalidArgumentError(absl::StrCat(
                    "rows must have one number for each of the ",
                    context->num_outputs(), " gradients, got ", rows_.size())));
    std::string scale;
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale));
    scale_of_ = scale == "unit"   ? ThreeLcScaling::Of::kUnit
                : scale == "mean" ? ThreeLcScaling::Of::kMean
                                  : ThreeLcScaling::Of::kMax;
  }

 private:
  absl::Status AllReduce(OpKernelContext* context, const RunHop& run) override {
    ThreeLcScaling scaling(0, scale_of_);
    TF_RETURN_IF_ERROR(SparsityMultiplier(context, &scaling));
    OpInputList gradients, units;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    TF_RETURN_IF_ERROR(context->input_list("units", &units));
    std::vector<State> states(gradients.size());
    std::vector<ThreeLcVariable> variables;
    for (int i = 0; i < gradients.size(); ++i) {
      const int64_t size = gradients[i].NumElements();
      const float* values = nullptr;
      const float* variable_units = nullptr;
      TF_RETURN_IF_ERROR(
          GetUnits(units[i], size, rows_[i], i, &variable_units));
      TF_RETURN_IF_ERROR(
          Prepare(context, i, gradients[i], &states[i], &values));
      variables.push_back(
          {size, values, states[i].old_residual.flat<float>().data(),
           states[i].new_residual.flat<float>().data(),
           /*reduced=*/nullptr, variable_units, rows_[i], RoundTo<T>()});
    }
    std::vector<Tensor> reduced(gradients.size());
    ThreeLcHop hop(&variables, scaling, divisor(),
                   [&](const std::vector<bool>& non_finite) {
                     return Commit(context, non_finite, &states, &reduced,
                                   &variables);
                   });
    TF_RETURN_IF_ERROR(run(&hop));
    for (int i = 0; i < gradients.size(); ++i) {
      TF_RETURN_IF_ERROR(SetOutput(context, i, reduced[i]));
    }
    return absl::OkStatus();
  }

  static absl::Status SparsityMultiplier(OpKernelContext* context,
                                         ThreeLcScaling* scaling) {
    const Tensor* input;
    TF_RETURN_IF_ERROR(context->input("sparsity_multiplier", &input));
    if (!tensorflow::TensorShapeUtils::IsScalar(input->shape())) {
      return absl::InvalidArgumentError(
          absl::StrCat("sparsity_multiplier must be a scalar, got shape ",
                       input->shape().DebugString()));
    }
    scaling->multiplier = input->scalar<float>()();
    if (scaling->IsValid()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("sparsity_multiplier must be above 0 and less than ",
                     scaling->limit(), ", got ", scaling->multiplier));
  }

  // Takes the gradient's buffer for the new residual if nobody else needs it.
  absl::Status Prepare(OpKernelContext* context, int i, const Tensor& gradient,
                       State* state, const float** values) {
    OpInputList residuals;
    TF_RETURN_IF_ERROR(context->input_list("residuals", &residuals));
    ResourceHandle handle;
    TF_RETURN_IF_ERROR(
        GetHandle(residuals[i], absl::StrCat("residuals[", i, "]"), &handle));
    TF_RETURN_IF_ERROR(LookupResource(context, handle, &state->residual));
    {
      tensorflow::tf_shared_lock lock(*state->residual->mu());
      state->old_residual = *state->residual->tensor();
    }
    if (state->old_residual.dtype() != DT_FLOAT ||
        state->old_residual.shape() != gradient.shape()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "residuals[", i, "] must be a float32 variable of shape ",
          gradient.shape().DebugString(), ", got ",
          state->old_residual.DeviceSafeDebugString()));
    }
    if (std::is_same_v<T, float>) {
      *values = gradient.flat<float>().data();
      std::unique_ptr<Tensor> forwarded = context->forward_input(
          i, OpKernelContext::Params::kNoReservation, DT_FLOAT,
          gradient.shape(), tensorflow::HOST_MEMORY, AllocatorAttributes());
      if (forwarded != nullptr && forwarded->IsAligned()) {
        state->new_residual = *forwarded;
        return absl::OkStatus();
      }
    }
    TF_RETURN_IF_ERROR(context->allocate_temp(DT_FLOAT, gradient.shape(),
                                              &state->new_residual));
    if (!std::is_same_v<T, float>) {
      CopyAsFloat<T>(gradient, &state->new_residual);
      *values = state->new_residual.flat<float>().data();
    }
    return absl::OkStatus();
  }

  // Makes the new residuals those of the variables, but where a gradient was
  // not finite, and finds room for the reduced gradients.
  static absl::Status Commit(OpKernelContext* context,
                             const std::vector<bool>& non_finite,
                             std::vector<State>* states,
                             std::vector<Tensor>* reduced,
                             std::vector<ThreeLcVariable>* variables) {
    for (size_t i = 0; i < states->size(); ++i) {
      State& state = (*states)[i];
      const TensorShape shape = state.old_residual.shape();
      if (!non_finite[i]) {
        tensorflow::mutex_lock lock(*state.residual->mu());
        *state.residual->tensor() = state.new_residual;
      }
      Tensor& room = (*reduced)[i];
      Tensor& unused = non_finite[i] ? state.new_residual : state.old_residual;
      if (unused.RefCountIsOne()) {
        room = std::move(unused);
      } else {
        TF_RETURN_IF_ERROR(context->allocate_temp(DT_FLOAT, shape, &room));
      }
      (*variables)[i].reduced = room.flat<float>().data();
    }
    return absl::OkStatus();
  }

  static absl::Status SetOutput(OpKernelContext* context, int i,
                                const Tensor& reduced) {
    if (std::is_same_v<T, float>) {
      context->set_output(i, reduced);
      return absl::OkStatus();
    }
    Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(i, reduced.shape(), &output));
    output->template flat<T>() = reduced.flat<float>().template cast<T>();
    return absl::OkStatus();
  }

  std::vector<int64_t> rows_;
  ThreeLcScaling::Of scale_of_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>Bucket", BucketOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>BeginStep", BeginStepOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>BucketTraffic", BucketTrafficOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExactAllReduce", ExactAllReduceOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ThreeLcAllReduce", ThreeLcAllReduceOp);

}  // namespace
}  // namespace tf_gc
