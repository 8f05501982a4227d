#include "ops/tensorflow/gpu.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/stream_executor/stream.h"

namespace tf_gc {

absl::Status CudaStatus(int error) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("CUDA error ", error, ": ", tf_gc_cuda_error_text(error)));
}

Gpu::Gpu(tensorflow::OpKernelContext* context)
    : context_(context),
      stream_(context->op_device_context()
                  ->stream()
                  ->platform_specific_handle()
                  .stream) {}

absl::Status Gpu::AllocateBytes(int64_t size,
                                tensorflow::Tensor* tensor) const {
  return context_->allocate_temp(tensorflow::DT_UINT8,
                                 tensorflow::TensorShape({size}), tensor);
}

}  // namespace tf_gc
