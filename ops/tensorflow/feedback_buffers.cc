#include "ops/tensorflow/feedback_buffers.h"

#include <cmath>

namespace tf_gc {

absl::Status GetRows(tensorflow::OpKernelConstruction* context,
                     const char* name, std::vector<int64_t>* rows) {
  TF_RETURN_IF_ERROR(context->GetAttr(name, rows));
  if (static_cast<int>(rows->size()) == context->num_outputs()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have one number for each of the ",
                   context->num_outputs(), " gradients, got ", rows->size()));
}

absl::Status GetUnits(const tensorflow::Tensor& units, int64_t size,
                      int64_t rows, int i, const float** array) {
  if (units.NumElements() == 0 || size == 0) return absl::OkStatus();
  if (rows < 1 || size % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows[", i, "] must divide the ", size,
                     " values of gradients[", i, "], got ", rows));
  }
  if (units.dims() != 1 || units.NumElements() != rows + size / rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("units[", i, "] must have the shape [", rows + size / rows,
                     "], for rows = ", rows, " and ", size / rows,
                     " columns, or [0], got ", units.shape().DebugString()));
  }
  const auto values = units.flat<float>();
  for (int64_t j = 0; j < values.size(); ++j) {
    if (std::isfinite(values(j)) && values(j) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("units[", i, "] must be finite and above 0, got ",
                     values(j), " at ", j));
  }
  *array = values.data();
  return absl::OkStatus();
}

}  // namespace tf_gc
