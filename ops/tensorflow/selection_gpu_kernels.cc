// Selection and the packing of indices on GPUs: checks of the inputs around
// ops/cuda.

#include <cstdint>

#include "absl/status/status.h"
#include "ops/cuda/chunk_argmax.h"
#include "ops/cuda/index_packing.h"
#include "ops/cuda/top_k.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/tensorflow/gpu.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/selection_inputs.h"
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
class TopKIndicesGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckValues(values));
    const int64_t n = values.NumElements();
    int64_t k;
    OP_REQUIRES_OK(context, ReadWithin(context->input(1), "k", 0, n, &k));
    Tensor floats;
    OP_REQUIRES_OK(context, gpu.ToFloat<T>(values, &floats));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, k, &indices));
    Tensor memory;
    uint8_t* workspace;
    OP_REQUIRES_OK(context,
                   gpu.Allocate(tf_gc_cuda_top_k_indices_workspace_size(n),
                                &memory, &workspace));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_top_k_indices(
                                floats.flat<float>().data(), n, k, indices,
                                workspace, gpu.stream())));
  }
};

template <typename T>
class ChunkArgmaxGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckValues(values));
    const int64_t n = values.NumElements();
    int64_t chunk;
    OP_REQUIRES_OK(
        context, ReadWithin(context->input(1), "chunk", 1, INT64_MAX, &chunk));
    Tensor floats;
    OP_REQUIRES_OK(context, gpu.ToFloat<T>(values, &floats));
    int32_t* indices;
    OP_REQUIRES_OK(
        context,
        AllocateIndices(context, kernels::NumChunks(n, chunk), &indices));
    Tensor memory;
    uint8_t* workspace;
    OP_REQUIRES_OK(
        context, gpu.Allocate(tf_gc_cuda_chunk_argmax_workspace_size(n, chunk),
                              &memory, &workspace));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_chunk_argmax(
                                floats.flat<float>().data(), n, chunk, indices,
                                workspace, gpu.stream())));
  }
};

class PackIndicesGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    int64_t size;
    OP_REQUIRES_OK(context, ReadPackInputs(context, &size));
    const int64_t k = context->input(0).NumElements();
    const int32_t* indices = context->input(0).flat<int32_t>().data();
    OP_REQUIRES_OK(context, CheckIndices(gpu, indices, k, size));
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(
        context,
        context->allocate_output(
            0, TensorShape({kernels::PackedIndicesSize(k, size)}), &packed));
    OP_REQUIRES_OK(context, CudaStatus(tf_gc_cuda_pack_indices(
                                indices, k, size,
                                packed->flat<uint8_t>().data(), gpu.stream())));
  }

 private:
  static absl::Status CheckIndices(const Gpu& gpu, const int32_t* indices,
                                   int64_t k, int64_t size) {
    int64_t wrong;
    TF_RETURN_IF_ERROR(FindFirst(
        gpu,
        [&](int64_t* first, void* stream) {
          return tf_gc_cuda_find_not_ascending(indices, k, size, first, stream);
        },
        &wrong));
    if (wrong < 0) return absl::OkStatus();
    int32_t index;
    TF_RETURN_IF_ERROR(gpu.Read(indices + wrong, 1, &index));
    return NotAscending(index, wrong, size);
  }
};

class UnpackIndicesGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Gpu gpu(context);
    const Tensor& packed = context->input(0);
    int64_t count, size, sender;
    // Before `count` indices are allocated.
    OP_REQUIRES_OK(context, ReadUnpackInputs(context, &count, &size, &sender));
    int32_t* indices;
    OP_REQUIRES_OK(context, AllocateIndices(context, count, &indices));
    int64_t error;
    OP_REQUIRES_OK(context,
                   Unpack(gpu, BytesOf(packed), count, size, indices, &error));
    OP_REQUIRES_OK(context,
                   UnpackStatus(tf_gc_cuda_unpack_indices_message(error), count,
                                size, sender));
  }

 private:
  static absl::Status Unpack(const Gpu& gpu, const uint8_t* packed,
                             int64_t count, int64_t size, int32_t* indices,
                             int64_t* error) {
    Tensor memory;
    uint8_t* workspace;
    TF_RETURN_IF_ERROR(
        gpu.Allocate(tf_gc_cuda_unpack_indices_workspace_size(count, size),
                     &memory, &workspace));
    return FindFirst(
        gpu,
        [&](int64_t* first, void* stream) {
          return tf_gc_cuda_unpack_indices(packed, count, size, indices, first,
                                           workspace, stream);
        },
        error);
  }
};

TF_GC_REGISTER(DEVICE_GPU, "TfGc>PackIndices", PackIndicesGpuOp,
               .HostMemory("size"));
TF_GC_REGISTER(DEVICE_GPU, "TfGc>UnpackIndices", UnpackIndicesGpuOp,
               .HostMemory("count").HostMemory("size").HostMemory("sender"));

TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>TopKIndices", TopKIndicesGpuOp,
                      .HostMemory("k"));
TF_GC_REGISTER_FLOATS(DEVICE_GPU, "TfGc>ChunkArgmax", ChunkArgmaxGpuOp,
                      .HostMemory("chunk"));

}  // namespace
}  // namespace tf_gc
