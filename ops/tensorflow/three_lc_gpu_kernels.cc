// 3LC's ops on GPUs: checks of the inputs around ops/cuda.
//
// The sizes and the faults that the kernels find are read back, for which the
// ops wait.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "ops/cuda/quartic.h"
#include "ops/cuda/three_lc.h"
#include "ops/cuda/zero_run.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/tensorflow/gpu.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/three_lc_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class QuarticEncodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& ternary = context->input(0);
    const int8_t* values = ternary.flat<int8_t>().data();
    const int64_t n = ternary.NumElements();
    OP_REQUIRES_OK(context, CheckTernary(gpu, values, n));
    Tensor* quartic = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({kernels::QuarticSize(n)}), &quartic));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_quartic_encode(
                                values, n, quartic->flat<uint8_t>().data(),
                                gpu.stream())));
  }

 private:
  static absl::Status CheckTernary(const Gpu& gpu, const int8_t* values,
                                   int64_t n) {
    int64_t wrong;
    TF_RETURN_IF_ERROR(FindFirst(
        gpu,
        [&](int64_t* first, void* stream) {
          return tf_gc_cuda_find_non_ternary(values, n, first, stream);
        },
        &wrong));
    if (wrong < 0) return absl::OkStatus();
    int8_t value;
    TF_RETURN_IF_ERROR(gpu.Read(values + wrong, 1, &value));
    return NotTernary(value, wrong);
  }
};

// Returns status(byte, index) for the first of the quartic bytes of n values
// that cannot be.
template <typename Status>
absl::Status CheckQuartic(const Gpu& gpu, const uint8_t* quartic, int64_t n,
                          const Status& status) {
  int64_t wrong;
  TF_RETURN_IF_ERROR(FindFirst(
      gpu,
      [&](int64_t* first, void* stream) {
        return tf_gc_cuda_find_non_quartic(quartic, n, first, stream);
      },
      &wrong));
  if (wrong < 0) return absl::OkStatus();
  uint8_t byte;
  TF_RETURN_IF_ERROR(gpu.Read(quartic + wrong, 1, &byte));
  return status(byte, wrong);
}

class QuarticDecodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    TensorShape shape;
    OP_REQUIRES_OK(context, ReadShape(context->input(1), &shape));
    const int64_t n = shape.num_elements();
    OP_REQUIRES_OK(context, CheckQuarticSize(encoded, n));
    OP_REQUIRES_OK(context,
                   CheckQuartic(gpu, BytesOf(encoded), n, NotQuarticOfValues));
    Tensor* ternary = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &ternary));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_quartic_decode(
                                BytesOf(encoded), n,
                                ternary->flat<int8_t>().data(), gpu.stream())));
  }
};

class ZeroRunEncodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& quartic = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(quartic, "quartic"));
    const int64_t m = quartic.NumElements();
    // m bytes of 5 values have no padding to check.
    OP_REQUIRES_OK(context,
                   CheckQuartic(gpu, BytesOf(quartic), 5 * m, NotQuartic));
    Tensor encoded;
    int64_t size;
    OP_REQUIRES_OK(context, Encode(gpu, BytesOf(quartic), m, &encoded, &size));
    context->set_output(0, encoded.Slice(0, size));
  }

 private:
  static absl::Status Encode(const Gpu& gpu, const uint8_t* quartic, int64_t m,
                             Tensor* encoded, int64_t* size) {
    uint8_t* bytes;
    TF_RETURN_IF_ERROR(gpu.Allocate(m, encoded, &bytes));
    Tensor size_memory, workspace_memory;
    int64_t* device_size;
    uint8_t* workspace;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &size_memory, &device_size));
    TF_RETURN_IF_ERROR(
        gpu.Allocate(tf_gc_cuda_zero_run_encode_workspace_size(m),
                     &workspace_memory, &workspace));
    TF_GC_RETURN_IF_CUDA_ERROR(tf_gc_cuda_zero_run_encode(
        quartic, m, bytes, device_size, workspace, gpu.stream()));
    return gpu.Read(device_size, 1, size);
  }
};

class ZeroRunDecodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    const uint8_t* bytes = BytesOf(encoded);
    const int64_t size = encoded.NumElements();
    int64_t m, decoded_size;
    OP_REQUIRES_OK(context, ReadCount(context->input(1), "size", &m));
    // Before m bytes are allocated.
    OP_REQUIRES_OK(context, FindFirst(
                                gpu,
                                [&](int64_t* total, void* stream) {
                                  return tf_gc_cuda_zero_run_decoded_size(
                                      bytes, size, total, stream);
                                },
                                &decoded_size));
    OP_REQUIRES_OK(context, CheckDecodedSize(decoded_size, m));
    Tensor* quartic = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({m}), &quartic));
    OP_REQUIRES_OK(
        context, Decode(gpu, bytes, size, m, quartic->flat<uint8_t>().data()));
  }

 private:
  static absl::Status Decode(const Gpu& gpu, const uint8_t* encoded,
                             int64_t size, int64_t m, uint8_t* quartic) {
    Tensor used_memory, workspace_memory;
    int64_t* used;  // All: the sizes agree.
    uint8_t* workspace;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &used_memory, &used));
    TF_RETURN_IF_ERROR(
        gpu.Allocate(tf_gc_cuda_zero_run_decode_workspace_size(size, m),
                     &workspace_memory, &workspace));
    return CudaStatus(tf_gc_cuda_zero_run_decode(
        encoded, size, m, quartic, used, workspace, gpu.stream()));
  }
};

template <typename T>
class ThreeLcEncodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& values = context->input(0);
    const Tensor& residual = context->input(1);
    OP_REQUIRES_OK(context, CheckThreeLcEncodeInputs(context));
    Tensor floats;
    OP_REQUIRES_OK(context, gpu.ToFloat<T>(values, &floats));
    Tensor* new_residual = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {1}, 1, residual.shape(), &new_residual));
    Tensor encoded;
    int64_t size;
    OP_REQUIRES_OK(context, Encode(gpu, floats, residual,
                                   context->input(2).scalar<float>()(),
                                   new_residual, &encoded, &size));
    context->set_output(0, encoded.Slice(0, size));
  }

 private:
  static absl::Status Encode(const Gpu& gpu, const Tensor& values,
                             const Tensor& residual, float sparsity_multiplier,
                             Tensor* new_residual, Tensor* encoded,
                             int64_t* size) {
    const int64_t n = values.NumElements();
    uint8_t* bytes;
    TF_RETURN_IF_ERROR(gpu.Allocate(
        kernels::kThreeLcScaleSize + kernels::QuarticSize(n), encoded, &bytes));
    Tensor size_memory, workspace_memory;
    int64_t* device_size;
    uint8_t* workspace;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &size_memory, &device_size));
    TF_RETURN_IF_ERROR(
        gpu.Allocate(tf_gc_cuda_three_lc_encode_workspace_size(n),
                     &workspace_memory, &workspace));
    TF_GC_RETURN_IF_CUDA_ERROR(tf_gc_cuda_three_lc_encode_tensor(
        values.flat<float>().data(), residual.flat<float>().data(),
        sparsity_multiplier, n, new_residual->flat<float>().data(), bytes,
        device_size, workspace, gpu.stream()));
    return gpu.Read(device_size, 1, size);
  }
};

class ThreeLcDecodeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& encoded = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(encoded, "encoded"));
    TensorShape shape;
    OP_REQUIRES_OK(context, ReadShape(context->input(1), &shape));
    const int64_t n = shape.num_elements();
    float scale;
    OP_REQUIRES_OK(context, ReadScale(gpu, encoded, n, &scale));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &values));
    OP_REQUIRES_OK(
        context, Decode(gpu, encoded, scale, n, values->flat<float>().data()));
  }

 private:
  // Checks all but the payload, before n values are allocated.
  static absl::Status ReadScale(const Gpu& gpu, const Tensor& encoded,
                                int64_t n, float* scale) {
    const int64_t size = encoded.NumElements();
    uint8_t bytes[kernels::kThreeLcScaleSize] = {};
    static_assert(sizeof(bytes) == sizeof(*scale));
    if (size >= kernels::kThreeLcScaleSize) {
      TF_RETURN_IF_ERROR(
          gpu.Read(BytesOf(encoded), kernels::kThreeLcScaleSize, bytes));
    }
    std::memcpy(scale, bytes, sizeof(bytes));
    return ThreeLcStatus(kernels::ThreeLcCheckTensor(bytes, size, n), size, n);
  }

  static absl::Status Decode(const Gpu& gpu, const Tensor& encoded, float scale,
                             int64_t n, float* values) {
    if (std::isnan(scale)) {
      return CudaStatus(tf_gc_cuda_fill(scale, n, values, gpu.stream()));
    }
    const uint8_t* payload = BytesOf(encoded) + kernels::kThreeLcScaleSize;
    const int64_t size = encoded.NumElements() - kernels::kThreeLcScaleSize;
    Tensor used_memory, workspace_memory;
    int64_t* device_used;
    uint8_t* workspace;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &used_memory, &device_used));
    TF_RETURN_IF_ERROR(
        gpu.Allocate(tf_gc_cuda_three_lc_decode_workspace_size(size, n),
                     &workspace_memory, &workspace));
    TF_GC_RETURN_IF_CUDA_ERROR(tf_gc_cuda_three_lc_decode(
        payload, size, scale, n, values, device_used, workspace, gpu.stream()));
    int64_t used;
    TF_RETURN_IF_ERROR(gpu.Read(device_used, 1, &used));
    return ThreeLcStatus(kernels::ThreeLcCheckUsed(used, size),
                         encoded.NumElements(), n);
  }
};

TF_GC_REGISTER(DEVICE_GPU, "TfGc>QuarticEncode", QuarticEncodeGpuOp);
TF_GC_REGISTER(DEVICE_GPU, "TfGc>QuarticDecode", QuarticDecodeGpuOp,
               .HostMemory("shape"));
TF_GC_REGISTER(DEVICE_GPU, "TfGc>ZeroRunEncode", ZeroRunEncodeGpuOp);
TF_GC_REGISTER(DEVICE_GPU, "TfGc>ZeroRunDecode", ZeroRunDecodeGpuOp,
               .HostMemory("size"));
TF_GC_REGISTER(DEVICE_GPU, "TfGc>ThreeLcDecode", ThreeLcDecodeGpuOp,
               .HostMemory("shape"));

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>ThreeLcEncode", ThreeLcEncodeGpuOp,
                      .HostMemory("sparsity_multiplier"));

}  // namespace
}  // namespace tf_gc
