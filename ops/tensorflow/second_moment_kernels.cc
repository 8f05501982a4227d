// Second moments from those of rows and columns, on the CPU: checks of the
// inputs around ops/kernels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/second_moment.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_gc {
namespace {

using ::tensorflow::bfloat16;
using ::tensorflow::DT_FLOAT;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::Var;
using ::tensorflow::core::RefCountPtr;

// An attribute has one entry for each matrix.
absl::Status CheckCount(const char* name, int64_t count, int64_t matrices) {
  if (count == matrices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be ", matrices, ", got ", count));
}

// An op about matrices, whose numbers of rows are its attribute `rows`.
class MatricesOp : public OpKernel {
 public:
  MatricesOp(OpKernelConstruction* context, int64_t matrices)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(context, CheckCount("rows", rows_.size(), matrices));
    for (const int64_t count : rows_) {
      OP_REQUIRES(context, count >= 1,
                  absl::InvalidArgumentError(
                      absl::StrCat("rows must be at least 1, got ", count)));
    }
  }

 protected:
  int64_t rows(int i) const { return rows_[i]; }

  // The columns of the matrix of these `size` values.
  absl::Status Columns(int i, int64_t size, int64_t* columns) const {
    if (size < 1 || size % rows_[i] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rows[", i, "] must divide a number of values that is not 0, got ",
          rows_[i], " for ", size));
    }
    *columns = size / rows_[i];
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> rows_;
};

class MeanSquaresOp : public MatricesOp {
 public:
  explicit MeanSquaresOp(OpKernelConstruction* context)
      : MatricesOp(context, context->num_inputs() - 1) {}

  void Compute(OpKernelContext* context) override {
    bool is_wanted;
    OP_REQUIRES_OK(context, ReadScalar(context, "wanted", &is_wanted));
    const int count = is_wanted ? context->num_inputs() - 1 : 0;
    std::vector<int64_t> columns(count);
    int64_t total = 0;
    for (int i = 0; i < count; ++i) {
      OP_REQUIRES_OK(context,
                     Columns(i, context->input(i).NumElements(), &columns[i]));
      total += rows(i) + columns[i];
    }
    Tensor* output;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({total}), &output));
    std::vector<float> statistics(total);
    const kernels::ParallelFor parallel_for = IntraOpThreads(context);
    float* first = statistics.data();
    for (int i = 0; i < count; ++i) {
      Tensor values;
      OP_REQUIRES_OK(context, AsFloat(context, context->input(i), &values));
      kernels::MeanSquares(values.flat<float>().data(), rows(i), columns[i],
                           first, parallel_for);
      first += rows(i) + columns[i];
    }
    std::transform(statistics.begin(), statistics.end(),
                   output->flat<bfloat16>().data(),
                   [](float value) { return bfloat16(value); });
  }

 private:
  static absl::Status AsFloat(OpKernelContext* context, const Tensor& values,
                              Tensor* floats) {
    switch (values.dtype()) {
      case tensorflow::DT_HALF:
        return ToFloat<Eigen::half>(context, values, floats);
      case tensorflow::DT_BFLOAT16:
        return ToFloat<bfloat16>(context, values, floats);
      default:
        return ToFloat<float>(context, values, floats);
    }
  }
};

absl::Status LookupSlot(OpKernelContext* context, const OpInputList& slots,
                        int i, RefCountPtr<Var>* variable) {
  TF_RETURN_IF_ERROR(LookupHandle(context, slots[i],
                                  absl::StrCat("slots[", i, "]"), variable));
  tensorflow::tf_shared_lock lock(*(*variable)->mu());
  const Tensor& slot = *(*variable)->tensor();
  if (slot.dtype() == DT_FLOAT && slot.dims() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("slots[", i, "] must be a float32 variable of one dimension",
                   ", got ", slot.DeviceSafeDebugString()));
}

// The input `statistics`, of which there must be `expected`, times `scale`.
absl::Status ReadStatistics(OpKernelContext* context, int64_t expected,
                            float scale, std::vector<float>* statistics) {
  const Tensor* input;
  TF_RETURN_IF_ERROR(context->input("statistics", &input));
  if (input->dims() != 1 || input->NumElements() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("statistics must be a vector of ", expected,
                     " values, got shape ", input->shape().DebugString()));
  }
  const bfloat16* const values = input->flat<bfloat16>().data();
  statistics->resize(expected);
  std::transform(values, values + expected, statistics->begin(),
                 [=](bfloat16 value) { return scale * float{value}; });
  return absl::OkStatus();
}

class UpdateSecondMomentsOp : public OpKernel {
 public:
  explicit UpdateSecondMomentsOp(OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("corrected", &corrected_));
    constexpr int kOthers = 4;  // statistics, scale, decay, age
    OP_REQUIRES_OK(context, CheckCount("corrected", corrected_.size(),
                                       context->num_inputs() - kOthers));
  }

  void Compute(OpKernelContext* context) override {
    float scale, decay;
    OP_REQUIRES_OK(context, ReadScalar(context, "scale", &scale));
    OP_REQUIRES_OK(context, ReadScalar(context, "decay", &decay));
    OP_REQUIRES(context, decay >= 0 && decay <= 1,
                absl::InvalidArgumentError(
                    absl::StrCat("decay must be in 0 ... 1, got ", decay)));
    int64_t age;
    OP_REQUIRES_OK(context, ReadScalar(context, "age", &age));
    OP_REQUIRES(context, age >= 1,
                absl::InvalidArgumentError(
                    absl::StrCat("age must be at least 1, got ", age)));
    OpInputList slots;
    OP_REQUIRES_OK(context, context->input_list("slots", &slots));
    std::vector<RefCountPtr<Var>> variables(slots.size());
    std::vector<int64_t> sizes(slots.size());
    int64_t total = 0;
    for (int i = 0; i < slots.size(); ++i) {
      OP_REQUIRES_OK(context, LookupSlot(context, slots, i, &variables[i]));
      tensorflow::tf_shared_lock lock(*variables[i]->mu());
      sizes[i] = variables[i]->tensor()->NumElements() - 1;  // without weight
      OP_REQUIRES(context, sizes[i] >= 0,
                  absl::InvalidArgumentError("slots must not be empty"));
      total += sizes[i];
    }
    if (context->input(0).NumElements() == 0) return;
    std::vector<float> statistics;
    OP_REQUIRES_OK(context, ReadStatistics(context, total, scale, &statistics));
    const float* first = statistics.data();
    for (int i = 0; i < slots.size(); ++i) {
      OP_REQUIRES_OK(context, Update(context, first, sizes[i], decay, age,
                                     corrected_[i], variables[i].get()));
      first += sizes[i];
    }
  }

 private:
  static absl::Status Update(OpKernelContext* context, const float* statistics,
                             int64_t size, float decay, int64_t age,
                             bool is_corrected, Var* variable) {
    tensorflow::mutex_lock lock(*variable->mu());
    // Who has read the variable keeps what it has read.
    Tensor updated;
    TF_RETURN_IF_ERROR(
        context->allocate_temp(DT_FLOAT, TensorShape({size + 1}), &updated));
    const Tensor& slot = *variable->tensor();
    if (slot.NumElements() != size + 1) {
      return absl::InvalidArgumentError("slots must keep their shapes");
    }
    float* const values = updated.flat<float>().data();
    std::copy_n(slot.flat<float>().data(), size + 1, values);
    if (!is_corrected && values[size] == 0) decay = 0;
    kernels::UpdateSecondMoment(statistics, size, decay, age, values + size,
                                values);
    *variable->tensor() = std::move(updated);
    return absl::OkStatus();
  }

  std::vector<bool> corrected_;
};

class SecondMomentUnitsOp : public MatricesOp {
 public:
  explicit SecondMomentUnitsOp(OpKernelConstruction* context)
      : MatricesOp(context, context->num_inputs()) {}

  void Compute(OpKernelContext* context) override {
    OpInputList slots;
    OP_REQUIRES_OK(context, context->input_list("slots", &slots));
    for (int i = 0; i < slots.size(); ++i) {
      RefCountPtr<Var> variable;
      OP_REQUIRES_OK(context, LookupSlot(context, slots, i, &variable));
      tensorflow::tf_shared_lock lock(*variable->mu());
      const Tensor& slot = *variable->tensor();
      const int64_t statistics = slot.NumElements() - 1;  // without weight
      const int64_t columns = statistics - rows(i);
      OP_REQUIRES(context, columns >= 1,
                  absl::InvalidArgumentError(absl::StrCat(
                      "slots[", i, "] must have more statistics than the ",
                      rows(i), " rows, got ", statistics)));
      Tensor* units;
      OP_REQUIRES_OK(context,
                     context->allocate_output(i, {statistics}, &units));
      kernels::SecondMomentUnits(slot.flat<float>().data(), rows(i), columns,
                                 units->flat<float>().data());
    }
  }
};

class SecondMomentsOp : public MatricesOp {
 public:
  explicit SecondMomentsOp(OpKernelConstruction* context)
      : MatricesOp(context, context->num_outputs()) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    OP_REQUIRES_OK(
        context, CheckCount("shapes", shapes_.size(), context->num_outputs()));
    for (size_t i = 0; i < shapes_.size(); ++i) {
      int64_t columns;
      OP_REQUIRES_OK(context, Columns(i, shapes_[i].num_elements(), &columns));
      columns_.push_back(columns);
      total_ += rows(i) + columns;
    }
  }

  void Compute(OpKernelContext* context) override {
    float factor;
    OP_REQUIRES_OK(context, ReadScalar(context, "factor", &factor));
    std::vector<float> statistics;
    OP_REQUIRES_OK(context, ReadStatistics(context, total_, 1, &statistics));
    const kernels::ParallelFor parallel_for = IntraOpThreads(context);
    const float* first = statistics.data();
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Tensor* output;
      OP_REQUIRES_OK(context, context->allocate_output(i, shapes_[i], &output));
      std::vector<float> factors(rows(i) + columns_[i]);
      kernels::SecondMomentFactors(first, rows(i), columns_[i], factor,
                                   factors.data());
      kernels::OuterProduct(factors.data(), rows(i), columns_[i],
                            output->flat<float>().data(), parallel_for);
      first += factors.size();
    }
  }

 private:
  std::vector<TensorShape> shapes_;
  std::vector<int64_t> columns_;
  int64_t total_ = 0;
};

class SpreadUnitsOp : public MatricesOp {
 public:
  explicit SpreadUnitsOp(OpKernelConstruction* context)
      : MatricesOp(context, context->num_inputs()) {
    OP_REQUIRES_OK(context, GetSizes(context, &sizes_));
    OP_REQUIRES_OK(context,
                   CheckCount("sizes", sizes_.size(), context->num_inputs()));
  }

  void Compute(OpKernelContext* context) override {
    int64_t total = 0;
    for (const int64_t size : sizes_) total += size;
    Tensor* output;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({total}), &output));
    float* spread = output->flat<float>().data();
    const kernels::ParallelFor parallel_for = IntraOpThreads(context);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const Tensor& units = context->input(i);
      if (units.NumElements() == 0) {
        std::fill_n(spread, sizes_[i], 1.0f);
      } else {
        int64_t columns = 0;
        OP_REQUIRES_OK(context, Columns(i, sizes_[i], &columns));
        OP_REQUIRES(context, units.NumElements() == rows(i) + columns,
                    absl::InvalidArgumentError(absl::StrCat(
                        "units[", i, "] must have ", rows(i) + columns,
                        " values or none, got ", units.NumElements())));
        kernels::OuterProduct(units.flat<float>().data(), rows(i), columns,
                              spread, parallel_for);
      }
      spread += sizes_[i];
    }
  }

 private:
  std::vector<int64_t> sizes_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>MeanSquares", MeanSquaresOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>UpdateSecondMoments", UpdateSecondMomentsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SecondMomentUnits", SecondMomentUnitsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SecondMoments", SecondMomentsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SpreadUnits", SpreadUnitsOp);

}  // namespace
}  // namespace tf_gc
