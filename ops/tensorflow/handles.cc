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

absl::Status NoteResidual(tensorflow::Var* variable, int i,
                          Residuals* residuals) {
  const auto [first, is_new] = residuals->emplace(variable, i);
  if (is_new) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("residuals[", i, "] must be another variable than ",
                   "residuals[", first->second, "]"));
}

}  // namespace tf_gc
