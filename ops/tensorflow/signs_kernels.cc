// The ops of signs on the CPU: checks of the inputs around ops/kernels/signs.h.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/signs.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/signs_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// The values that threads share out: whole cache lines of bytes.
constexpr int64_t kUnit = 512;

template <typename T>
class SignPackOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, context->input(0), &floats));
    const int64_t n = floats.NumElements();
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({kernels::SignPackedSize(n)}), &packed));
    const float* const in = floats.flat<float>().data();
    uint8_t* const out = packed->flat<uint8_t>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                kernels::SignPack(in + begin, end - begin,
                                                  out + begin / 8);
                              });
  }
};

class SignUnpackOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    int64_t n;
    OP_REQUIRES_OK(context, ReadPackedSigns(context, &n));
    const uint8_t* const in = BytesOf(context->input(0));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &values));
    float* const out = values->flat<float>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, /*cost=*/1,
                              [=](int64_t begin, int64_t end) {
                                kernels::SignUnpack(in + begin / 8, end - begin,
                                                    out + begin);
                              });
  }
};

// What each of many values has, or all values of a variable.
class Magnitudes {
 public:
  Magnitudes(const float* magnitudes, int64_t count,
             const std::vector<int64_t>& sizes)
      : magnitudes_(magnitudes) {
    int64_t end = 0;
    for (const int64_t size : sizes) ends_.push_back(end += size);
    is_by_value_ = count == end && count != static_cast<int64_t>(sizes.size());
  }

  // Calls work(from, to, magnitude) for the values begin ... end - 1, where
  // magnitude(i) is that of value i.
  template <typename Work>
  void ForEachPart(int64_t begin, int64_t end, const Work& work) const {
    if (is_by_value_) {
      return work(begin, end, [this](int64_t i) { return magnitudes_[i]; });
    }
    auto next = std::upper_bound(ends_.begin(), ends_.end(), begin);
    while (begin < end) {
      const float magnitude = magnitudes_[next - ends_.begin()];
      const int64_t to = std::min(end, *next++);
      work(begin, to, [magnitude](int64_t) { return magnitude; });
      begin = to;
    }
  }

 private:
  const float* magnitudes_;
  std::vector<int64_t> ends_;
  bool is_by_value_;
};

class ApplySignsOp : public OpKernel {
 public:
  explicit ApplySignsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetSizes(context, &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("workers", &workers_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(2);
    OP_REQUIRES_OK(context, CheckInputs(context));
    Tensor* total = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, values.shape(), &total));
    Tensor* residual = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {2}, 1, values.shape(), &residual));
    const Tensor& magnitudes = context->input(1);
    const Magnitudes by_part(magnitudes.flat<float>().data(),
                             magnitudes.NumElements(), sizes_);
    const uint8_t* const packed = BytesOf(context->input(0));
    const float* const in = values.flat<float>().data();
    float* const totals = total->flat<float>().data();
    float* const residuals = residual->flat<float>().data();
    kernels::ParallelForUnits(
        IntraOpThreads(context), values.NumElements(), kTile, /*cost=*/2,
        [&](int64_t begin, int64_t end) {
          const kernels::KeepDenormals keep_denormals;
          for (int64_t tile = begin; tile < end; tile += kTile) {
            Apply(packed, by_part, tile, std::min(tile + kTile, end), in,
                  totals, residuals);
          }
        });
  }

 private:
  // Whose signs fit into the first-level cache.
  static constexpr int64_t kTile = 1 << 12;

  absl::Status CheckInputs(OpKernelContext* context) const {
    const int64_t n = std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
    TF_RETURN_IF_ERROR(CheckVector(context->input(0), "packed"));
    TF_RETURN_IF_ERROR(CheckVector(context->input(1), "magnitudes"));
    TF_RETURN_IF_ERROR(CheckVector(context->input(2), "values"));
    const auto variables = static_cast<int64_t>(sizes_.size());
    const int64_t bytes = context->input(0).NumElements();
    const int64_t magnitudes = context->input(1).NumElements();
    const int64_t values = context->input(2).NumElements();
    if (bytes == kernels::SignPackedSize(n) && values == n &&
        (magnitudes == variables || magnitudes == n)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "for ", variables, " variables of ", n, " values, packed must have ",
        kernels::SignPackedSize(n), " bytes, got ", bytes, ", values ", n,
        ", got ", values, ", and magnitudes ", variables, " or ", n, ", got ",
        magnitudes));
  }

  void Apply(const uint8_t* packed, const Magnitudes& magnitudes, int64_t begin,
             int64_t end, const float* values, float* totals,
             float* residuals) const {
    float signs[kTile];
    kernels::SignUnpack(packed + begin / 8, end - begin, signs);
    const auto workers = static_cast<float>(workers_);
    magnitudes.ForEachPart(
        begin, end, [&](int64_t from, int64_t to, const auto& magnitude) {
    // Each iteration has its own memory.
#pragma GCC ivdep
          for (int64_t i = from; i < to; ++i) {
            const float share = magnitude(i) * signs[i - begin];
            totals[i] = workers * share;
            residuals[i] = values[i] - share;
          }
        });
  }

  std::vector<int64_t> sizes_;
  int64_t workers_;
};

class SignMergeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& first = context->input(0);
    const Tensor& second = context->input(1);
    SignMergeInputs inputs;
    OP_REQUIRES_OK(context, ReadSignMergeInputs(context, &inputs));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {0, 1}, 0, first.shape(), &merged));
    const uint8_t* const a = BytesOf(first);
    const uint8_t* const b = BytesOf(second);
    uint8_t* const out = merged->flat<uint8_t>().data();
    // Batches of the kernel, which are faster than parts of them.
    constexpr int64_t kBatch = 64 * kernels::kSignMergeUnit;
    kernels::ParallelForUnits(
        IntraOpThreads(context), first.NumElements(), kBatch, /*cost=*/4,
        [=](int64_t begin, int64_t end) {
          kernels::SignMerge(a + begin, b + begin, end - begin,
                             inputs.first_count, inputs.second_count,
                             inputs.seed, begin, out + begin);
        });
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>SignPack", SignPackOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SignUnpack", SignUnpackOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ApplySigns", ApplySignsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SignMerge", SignMergeOp);

}  // namespace
}  // namespace tf_gc
