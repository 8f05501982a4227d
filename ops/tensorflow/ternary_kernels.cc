// The ops of ternary quantisation with a given scale on the CPU: checks of the
// inputs around ops/kernels/ternary.h.

#include <cstdint>

#include "absl/status/status.h"
#include "ops/kernels/ternary.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/ternary_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// The values that threads share out: some vectors of any instruction set.
constexpr int64_t kUnit = 512;
static_assert(kUnit % kernels::kStochasticTernaryUnit == 0);

// What both ops do around `quantize`(values, n, first, ternary).
template <typename T, typename Quantize>
absl::Status QuantizeValues(OpKernelContext* context, int64_t cost,
                            const Quantize& quantize) {
  Tensor floats;
  TF_RETURN_IF_ERROR(ToFloat<T>(context, context->input(0), &floats));
  Tensor* ternary = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, floats.shape(), &ternary));
  const float* const in = floats.flat<float>().data();
  int8_t* const out = ternary->flat<int8_t>().data();
  kernels::ParallelForUnits(IntraOpThreads(context), floats.NumElements(),
                            kUnit, cost, [&](int64_t begin, int64_t end) {
                              quantize(in + begin, end - begin, begin,
                                       out + begin);
                            });
  return absl::OkStatus();
}

template <typename T>
class TernaryQuantizeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    float scale;
    OP_REQUIRES_OK(context, ReadTernaryScale(context->input(1), &scale));
    const auto quantize = [scale](const float* values, int64_t n, int64_t,
                                  int8_t* ternary) {
      kernels::NearestTernary(values, n, scale, ternary);
    };
    OP_REQUIRES_OK(context, QuantizeValues<T>(context, /*cost=*/1, quantize));
  }
};

template <typename T>
class StochasticTernaryQuantizeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    float scale;
    OP_REQUIRES_OK(context, ReadTernaryScale(context->input(1), &scale));
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(2), &seed));
    const auto quantize = [scale, seed](const float* values, int64_t n,
                                        int64_t first, int8_t* ternary) {
      kernels::StochasticTernary(values, n, scale, seed, first, ternary);
    };
    OP_REQUIRES_OK(context, QuantizeValues<T>(context, /*cost=*/2, quantize));
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>TernaryQuantize", TernaryQuantizeOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>StochasticTernaryQuantize",
                      StochasticTernaryQuantizeOp);

}  // namespace
}  // namespace tf_gc
