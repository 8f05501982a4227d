#include "ops/tensorflow/handles.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {

absl::Status GetHandle(const tensorflow::Tensor& input, const std::string& name,
                       tensorflow::ResourceHandle* handle) {
  if (!tensorflow::TensorShapeUtils::IsScalar(input.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a scalar resource handle, got shape ",
                     input.shape().DebugString()));
  }
  *handle = input.scalar<tensorflow::ResourceHandle>()();
  return absl::OkStatus();
}

}  // namespace tf_gc
