// The ops of quantisation on the CPU: checks of the inputs around ops/kernels.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
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
};

// Where the value i, a multiple of 8, begins in packed values.
int64_t Place(int64_t i, int bits) { return i / 8 * bits; }

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
    const uint8_t* in = BytesOf(indices);
    uint8_t* out = packed->flat<uint8_t>().data();
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    std::atomic<int64_t> first_wrong(kNone);
    kernels::ParallelForUnits(
        IntraOpThreads(context), n, kUnit, kPackingCost,
        [&](int64_t begin, int64_t end) {
          const int64_t wrong =
              kernels::FindUnpackable(in + begin, end - begin, bits_);
          if (wrong < 0) {
            kernels::PackBits(in + begin, end - begin, bits_,
                              out + Place(begin, bits_));
          } else {
            Lower(begin + wrong, &first_wrong);
          }
        });
    const int64_t wrong = first_wrong;
    OP_REQUIRES(context, wrong == kNone,
                NotPackable(in[wrong == kNone ? 0 : wrong], wrong, bits_));
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
    OP_REQUIRES_OK(context, CheckPacked(packed, n, bits_));
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &indices));
    const uint8_t* in = BytesOf(packed);
    uint8_t* out = indices->flat<uint8_t>().data();
    kernels::ParallelForUnits(IntraOpThreads(context), n, kUnit, kPackingCost,
                              [&](int64_t begin, int64_t end) {
                                kernels::UnpackBits(in + Place(begin, bits_),
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
    OP_REQUIRES_OK(context, CheckPacked(packed, n, bits_));
    Lane table[256];
    OP_REQUIRES_OK(context, ReadTable(context->input(1), bits_, table));
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {2}, 0, accumulator.shape(), &sums));
    const uint8_t* in = BytesOf(packed);
    const Lane* old_sums = accumulator.flat<Lane>().data();
    Lane* out = sums->flat<Lane>().data();
    kernels::ParallelForUnits(
        IntraOpThreads(context), n, kUnit, kernels::kTableSumCost,
        [&](int64_t begin, int64_t end) {
          if (out != old_sums) {
            std::memcpy(out + begin, old_sums + begin,
                        (end - begin) * sizeof(Lane));
          }
          kernels::TableSum(in + Place(begin, bits_), end - begin, table, bits_,
                            out + begin);
        });
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>StochasticQuantize",
                      StochasticQuantizeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>PackBits", PackBitsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>UnpackBits", UnpackBitsOp);
TF_GC_REGISTER_TYPE(DEVICE_CPU, "TfGc>TableSum", uint8_t, TableSumOp);
TF_GC_REGISTER_TYPE(DEVICE_CPU, "TfGc>TableSum", uint16_t, TableSumOp);

}  // namespace
}  // namespace tf_gc
