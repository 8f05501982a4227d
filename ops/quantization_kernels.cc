// The ops of quantisation on the CPU: checks of the inputs around ops/kernels.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/inputs.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
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

// The values of a unit of work: whole bytes of packed values, and cache lines
// of their own for each thread.
constexpr int64_t kUnit = 4096;

// Cycles per value of packing and unpacking.
constexpr int64_t kPackingCost = 1;

template <typename T>
class StochasticQuantizeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    const Tensor& levels = context->input(1);
    OP_REQUIRES_OK(context, CheckLevels(levels));
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(2), &seed));
    Tensor floats;
    OP_REQUIRES_OK(context, ToFloat<T>(context, values, &floats));
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, values.shape(), &indices));
    const float* in = floats.flat<float>().data();
    const float* first_level = levels.flat<float>().data();
    const int num_levels = static_cast<int>(levels.NumElements());
    uint8_t* out = indices->flat<uint8_t>().data();
    kernels::ParallelForUnits(
        IntraOpThreads(context), values.NumElements(), kUnit,
        kernels::kStochasticQuantizeCost, [=](int64_t begin, int64_t end) {
          kernels::StochasticQuantize(in + begin, end - begin, first_level,
                                      num_levels, seed, begin, out + begin);
        });
  }

 private:
  static absl::Status CheckLevels(const Tensor& levels) {
    TF_RETURN_IF_ERROR(CheckVector(levels, "levels"));
    const int64_t count = levels.NumElements();
    if (count < kernels::kMinLevels || count > kernels::kMaxLevels) {
      return absl::InvalidArgumentError(
          absl::StrCat("levels must be ", kernels::kMinLevels, " to ",
                       kernels::kMaxLevels, ", got ", count));
    }
    const float* values = levels.flat<float>().data();
    const int wrong = kernels::FindBadLevel(values, static_cast<int>(count));
    if (wrong < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("levels must be finite and ascending, got ", values[wrong],
                     " at index ", wrong));
  }
};

// What the ops on packed values have in common.
class PackingOp : public OpKernel {
 public:
  explicit PackingOp(OpKernelConstruction* context) : OpKernel(context) {
    int64_t bits;
    OP_REQUIRES_OK(context, context->GetAttr("bits", &bits));
    OP_REQUIRES(context, kernels::IsPackableBits(bits),
                absl::InvalidArgumentError(
                    absl::StrCat("bits must be 2, 3, 4, 5 or 8, got ", bits)));
    bits_ = static_cast<int>(bits);
  }

 protected:
  // `packed` are what PackBits makes of n values.
  absl::Status CheckPacked(const Tensor& packed, int64_t n) const {
    TF_RETURN_IF_ERROR(CheckVector(packed, "packed"));
    const int64_t size = kernels::PackedSize(n, bits_);
    if (packed.NumElements() != size) {
      return absl::DataLossError(absl::StrCat(
          "packed must have ", size, " bytes for ", n, " values of ", bits_,
          " bits, got ", packed.NumElements()));
    }
    if (kernels::PaddingIsZero(Bytes(packed), n, bits_)) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        absl::StrCat("packed must have padding of 0, got the last byte ",
                     static_cast<int>(Bytes(packed)[size - 1])));
  }

  // Where the value i, a multiple of 8, begins.
  int64_t Place(int64_t i) const { return i / 8 * bits_; }

  int bits_;
};

class PackBitsOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& indices = context->input(0);
    const int64_t n = indices.NumElements();
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({kernels::PackedSize(n, bits_)}), &packed));
    const uint8_t* in = Bytes(indices);
    uint8_t* out = packed->flat<uint8_t>().data();
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    std::atomic<int64_t> first_wrong(kNone);
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, kPackingCost,
                              [&](int64_t begin, int64_t end) {
                                const int64_t wrong = kernels::FindUnpackable(
                                    in + begin, end - begin, bits_);
                                if (wrong < 0) {
                                  kernels::PackBits(in + begin, end - begin,
                                                    bits_, out + Place(begin));
                                } else {
                                  Lower(begin + wrong, &first_wrong);
                                }
                              });
    const int64_t wrong = first_wrong;
    OP_REQUIRES(context, wrong == kNone,
                absl::InvalidArgumentError(absl::StrCat(
                    "indices must be less than 2^bits = ", 1 << bits_, ", got ",
                    static_cast<int>(in[wrong == kNone ? 0 : wrong]),
                    " at index ", wrong)));
  }

 private:
  static void Lower(int64_t value, std::atomic<int64_t>* lowest) {
    int64_t old = *lowest;
    while (value < old && !lowest->compare_exchange_weak(old, value)) {
    }
  }
};

class UnpackBitsOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& packed = context->input(0);
    int64_t n;
    OP_REQUIRES_OK(context, ReadCount(context->input(1), "size", &n));
    OP_REQUIRES_OK(context, CheckPacked(packed, n));
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &indices));
    const uint8_t* in = Bytes(packed);
    uint8_t* out = indices->flat<uint8_t>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, kPackingCost,
                              [&](int64_t begin, int64_t end) {
                                kernels::UnpackBits(in + Place(begin),
                                                    end - begin, bits_,
                                                    out + begin);
                              });
  }
};

template <typename Lane>
class TableSumOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& packed = context->input(0);
    const Tensor& accumulator = context->input(2);
    const int64_t n = accumulator.NumElements();
    OP_REQUIRES_OK(context, CheckPacked(packed, n));
    Lane table[256];
    OP_REQUIRES_OK(context, ReadTable(context->input(1), table));
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {2}, 0, accumulator.shape(), &sums));
    const uint8_t* in = Bytes(packed);
    const Lane* old_sums = accumulator.flat<Lane>().data();
    Lane* out = sums->flat<Lane>().data();
    kernels::ParallelForUnits(
        IntraOpThreads(context), n, kUnit, kernels::kTableSumCost,
        [&](int64_t begin, int64_t end) {
          if (out != old_sums) {
            std::memcpy(out + begin, old_sums + begin,
                        (end - begin) * sizeof(Lane));
          }
          kernels::TableSum(in + Place(begin), end - begin, table, bits_,
                            out + begin);
        });
  }

 private:
  absl::Status ReadTable(const Tensor& tensor, Lane* table) const {
    const int64_t entries = int64_t{1} << bits_;
    if (tensor.dims() != 1 || tensor.NumElements() != entries) {
      return absl::InvalidArgumentError(
          absl::StrCat("table must be a vector of 2^bits = ", entries,
                       " values, got shape ", tensor.shape().DebugString()));
    }
    constexpr int32_t kLargest = std::numeric_limits<Lane>::max();
    const int32_t* values = tensor.flat<int32_t>().data();
    for (int64_t z = 0; z < entries; ++z) {
      if (values[z] < 0 || values[z] > kLargest) {
        return absl::InvalidArgumentError(
            absl::StrCat("table must hold values in 0 ... ", kLargest, ", got ",
                         values[z], " at index ", z));
      }
      table[z] = static_cast<Lane>(values[z]);
    }
    return absl::OkStatus();
  }
};

#define TF_GC_REGISTER_QUANTIZE(type)                         \
  REGISTER_KERNEL_BUILDER(Name("TfGc>StochasticQuantize")     \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          StochasticQuantizeOp<type>);

TF_GC_REGISTER_QUANTIZE(float)
TF_GC_REGISTER_QUANTIZE(Eigen::half)
TF_GC_REGISTER_QUANTIZE(tensorflow::bfloat16)

#undef TF_GC_REGISTER_QUANTIZE

REGISTER_KERNEL_BUILDER(Name("TfGc>PackBits").Device(tensorflow::DEVICE_CPU),
                        PackBitsOp);
REGISTER_KERNEL_BUILDER(Name("TfGc>UnpackBits").Device(tensorflow::DEVICE_CPU),
                        UnpackBitsOp);

#define TF_GC_REGISTER_TABLE_SUM(type)                        \
  REGISTER_KERNEL_BUILDER(Name("TfGc>TableSum")               \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<type>("T"),     \
                          TableSumOp<type>);

TF_GC_REGISTER_TABLE_SUM(uint8_t)
TF_GC_REGISTER_TABLE_SUM(uint16_t)

#undef TF_GC_REGISTER_TABLE_SUM

}  // namespace
}  // namespace tf_gc
