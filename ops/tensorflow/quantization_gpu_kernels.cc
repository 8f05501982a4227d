// The ops of quantisation on GPUs: checks of the inputs around ops/cuda.
//
// Indices that cannot be packed, and the last byte of packed values that have
// padding, are read back, for which the ops wait.

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "ops/cuda/bit_packing.h"
#include "ops/cuda/stochastic_quantize.h"
#include "ops/cuda/table_sum.h"
#include "ops/kernels/bit_packing.h"
#include "ops/tensorflow/gpu.h"
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

template <typename T>
class StochasticQuantizeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& values = context->input(0);
    const Tensor& levels = context->input(1);
    OP_REQUIRES_OK(context, CheckLevels(levels));
    kernels::Seed seed;
    OP_REQUIRES_OK(context, ReadSeed(context->input(2), &seed));
    Tensor floats;
    OP_REQUIRES_OK(context, gpu.ToFloat<T>(values, &floats));
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, values.shape(), &indices));
    OP_REQUIRES_OK(
        context,
        CudaStatus(tf_gc_cuda_stochastic_quantize(
            floats.flat<float>().data(), values.NumElements(),
            levels.flat<float>().data(), static_cast<int>(levels.NumElements()),
            seed.key, seed.stream, /*first=*/0, indices->flat<uint8_t>().data(),
            gpu.stream())));
  }
};

class PackBitsGpuOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& indices = context->input(0);
    const int64_t n = indices.NumElements();
    OP_REQUIRES_OK(context, CheckIndices(gpu, BytesOf(indices), n));
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({kernels::PackedSize(n, bits_)}), &packed));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_pack_bits(
                                BytesOf(indices), n, bits_,
                                packed->flat<uint8_t>().data(), gpu.stream())));
  }

 private:
  absl::Status CheckIndices(const Gpu& gpu, const uint8_t* indices,
                            int64_t n) const {
    if (bits_ == 8) return absl::OkStatus();
    Tensor memory;
    int64_t* first;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &memory, &first));
    TF_GC_RETURN_IF_CUDA_ERROR(
        tf_gc_cuda_find_unpackable(indices, n, bits_, first, gpu.stream()));
    int64_t wrong;
    TF_RETURN_IF_ERROR(gpu.Read(first, 1, &wrong));
    if (wrong < 0) return absl::OkStatus();
    uint8_t index;
    TF_RETURN_IF_ERROR(gpu.Read(indices + wrong, 1, &index));
    return NotPackable(index, wrong, bits_);
  }
};

// `packed` are what PackBits makes of n values.
absl::Status CheckPacked(const Gpu& gpu, const Tensor& packed, int64_t n,
                         int bits) {
  TF_RETURN_IF_ERROR(CheckPackedSize(packed, n, bits));
  const int64_t used = n % 8 * bits % 8;
  if (used == 0) return absl::OkStatus();
  uint8_t last_byte;
  TF_RETURN_IF_ERROR(
      gpu.Read(BytesOf(packed) + packed.NumElements() - 1, 1, &last_byte));
  return last_byte >> used == 0 ? absl::OkStatus() : BadPadding(last_byte);
}

class UnpackBitsGpuOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& packed = context->input(0);
    int64_t n;
    OP_REQUIRES_OK(context, ReadCount(context->input(1), "size", &n));
    OP_REQUIRES_OK(context, CheckPacked(gpu, packed, n, bits_));
    Tensor* indices = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &indices));
    OP_REQUIRES_OK(
        context, CudaStatus(tf_gc_cuda_unpack_bits(
                     BytesOf(packed), n, bits_, indices->flat<uint8_t>().data(),
                     gpu.stream())));
  }
};

template <typename Lane>
class TableSumGpuOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& packed = context->input(0);
    const Tensor& accumulator = context->input(2);
    const int64_t n = accumulator.NumElements();
    OP_REQUIRES_OK(context, CheckPacked(gpu, packed, n, bits_));
    Lane table[256];
    OP_REQUIRES_OK(context, ReadTable(context->input(1), bits_, table));
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {2}, 0, accumulator.shape(), &sums));
    constexpr auto kSum = [] {
      if constexpr (std::is_same_v<Lane, uint8_t>) {
        return tf_gc_cuda_table_sum_uint8;
      } else {
        return tf_gc_cuda_table_sum_uint16;
      }
    }();
    OP_REQUIRES_OK(context,
                   CudaStatus(kSum(BytesOf(packed), n, table, bits_,
                                   accumulator.flat<Lane>().data(),
                                   sums->flat<Lane>().data(), gpu.stream())));
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>StochasticQuantize",
                      StochasticQuantizeGpuOp,
                      .HostMemory("levels").HostMemory("seed"));
TF_GC_REGISTER(DEVICE_GPU, "TfGc>PackBits", PackBitsGpuOp);
TF_GC_REGISTER(DEVICE_GPU, "TfGc>UnpackBits", UnpackBitsGpuOp,
               .HostMemory("size"));
TF_GC_REGISTER_TYPE(DEVICE_GPU, "TfGc>TableSum", uint8_t, TableSumGpuOp,
                    .HostMemory("table"));
TF_GC_REGISTER_TYPE(DEVICE_GPU, "TfGc>TableSum", uint16_t, TableSumGpuOp,
                    .HostMemory("table"));

}  // namespace
}  // namespace tf_gc
