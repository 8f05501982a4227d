// The ops of signs on GPUs: checks of the inputs around ops/cuda/signs.h.

#include <cstdint>

#include "absl/status/status.h"
#include "ops/cuda/signs.h"
#include "ops/kernels/signs.h"
#include "ops/tensorflow/gpu.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/signs_inputs.h"
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
class SignPackGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    Tensor floats;
    OP_REQUIRES_OK(context, gpu.ToFloat<T>(context->input(0), &floats));
    const int64_t n = floats.NumElements();
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({kernels::SignPackedSize(n)}), &packed));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_sign_pack(
                                floats.flat<float>().data(), n,
                                packed->flat<uint8_t>().data(), gpu.stream())));
  }
};

class SignUnpackGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    int64_t n;
    OP_REQUIRES_OK(context, ReadSignUnpackInputs(context, &n));
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n}), &values));
    OP_REQUIRES_OK(context, Unpack(gpu, BytesOf(context->input(0)), n,
                                   values->flat<float>().data()));
  }

 private:
  static absl::Status Unpack(const Gpu& gpu, const uint8_t* packed, int64_t n,
                             float* values) {
    Tensor memory;
    int64_t* device_padding;
    TF_RETURN_IF_ERROR(gpu.Allocate(1, &memory, &device_padding));
    TF_GC_RETURN_IF_CUDA_ERROR(tf_gc_cuda_sign_unpack(
        packed, n, values, device_padding, gpu.stream()));
    // Without padding there is nothing to wait for.
    if (n % 8 == 0) return absl::OkStatus();
    int64_t padding;
    TF_RETURN_IF_ERROR(gpu.Read(device_padding, 1, &padding));
    if (padding == 0) return absl::OkStatus();
    uint8_t last;
    TF_RETURN_IF_ERROR(gpu.Read(packed + n / 8, 1, &last));
    return SignPaddingIsNotZero(last, n);
  }
};

class SignMergeGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& first = context->input(0);
    const Tensor& second = context->input(1);
    SignMergeInputs inputs;
    OP_REQUIRES_OK(context, ReadSignMergeInputs(context, &inputs));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                {0, 1}, 0, first.shape(), &merged));
    OP_REQUIRES_OK(context,
                   CudaStatus(tf_gc_cuda_sign_merge(
                       BytesOf(first), BytesOf(second), first.NumElements(),
                       inputs.first_count, inputs.second_count, inputs.seed.key,
                       inputs.seed.stream, /*first_byte=*/0,
                       merged->flat<uint8_t>().data(), gpu.stream())));
  }
};

TF_GC_REGISTER(DEVICE_GPU, "TfGc>SignUnpack", SignUnpackGpuOp,
               .HostMemory("size"));
TF_GC_REGISTER(
    DEVICE_GPU, "TfGc>SignMerge", SignMergeGpuOp,
    .HostMemory("first_count").HostMemory("second_count").HostMemory("seed"));

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>SignPack", SignPackGpuOp);

}  // namespace
}  // namespace tf_gc
