// The ops of ternary quantisation with a given scale on GPUs: checks of the
// inputs around ops/cuda/ternary.h.

#include <cstdint>

#include "absl/status/status.h"
#include "ops/cuda/ternary.h"
#include "ops/tensorflow/gpu.h"
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

// What both ops do around `quantize`(values, n, ternary, stream).
template <typename T, typename Quantize>
absl::Status QuantizeValues(OpKernelContext* context,
                            const Quantize& quantize) {
  const Gpu gpu(context);
  Tensor floats;
  TF_RETURN_IF_ERROR(gpu.ToFloat<T>(context->input(0), &floats));
  Tensor* ternary = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, floats.shape(), &ternary));
  return CudaStatus(quantize(floats.flat<float>().data(), floats.NumElements(),
                             ternary->flat<int8_t>().data(), gpu.stream()));
}

template <typename T>
class TernaryQuantizeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    float scale;
    OP_REQUIRES_OK(context, ReadTernaryScale(context->input(1), &scale));
    const auto quantize = [scale](const float* values, int64_t n,
                                  int8_t* ternary, void* stream) {
      return tf_gc_cuda_nearest_ternary(values, n, scale, ternary, stream);
    };
    OP_REQUIRES_OK(context, QuantizeValues<T>(context, quantize));
  }
};

template <typename T>
class StochasticTernaryQuantizeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    float scale;
    OP_REQUIRES_OK(context, ReadTernaryScale(context->input(1), &scale));
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(2), &seed));
    const auto quantize = [scale, seed](const float* values, int64_t n,
                                        int8_t* ternary, void* stream) {
      return tf_gc_cuda_stochastic_ternary(values, n, scale, seed.key,
                                           seed.stream, /*first=*/0, ternary,
                                           stream);
    };
    OP_REQUIRES_OK(context, QuantizeValues<T>(context, quantize));
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>TernaryQuantize", TernaryQuantizeGpuOp,
                      .HostMemory("scale"));
TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>StochasticTernaryQuantize",
                      StochasticTernaryQuantizeGpuOp,
                      .HostMemory("scale").HostMemory("seed"));

}  // namespace
}  // namespace tf_gc
