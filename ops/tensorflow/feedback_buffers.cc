#include "ops/tensorflow/feedback_buffers.h"

#include <algorithm>
#include <cmath>

namespace tf_gc {

absl::Status GetRows(tensorflow::OpKernelConstruction* context,
                     const char* name, std::vector<int64_t>* rows) {
  TF_RETURN_IF_ERROR(context->GetAttr(name, rows));
  int gradients;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &gradients));
  if (static_cast<int>(rows->size()) == gradients) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have one number for each of the ", gradients,
                   " gradients, got ", rows->size()));
}

absl::Status GetUnits(const tensorflow::Tensor& units, int64_t size,
                      int64_t rows, const char* rows_name, int i,
                      const float** array) {
  if (units.NumElements() == 0 || size == 0) return absl::OkStatus();
  if (rows < 1 || size % rows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows_name, "[", i, "] must divide the ", size,
                     " values of gradients[", i, "], got ", rows));
  }
  if (units.dims() != 1 || units.NumElements() != rows + size / rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("units[", i, "] must have the shape [", rows + size / rows,
                     "], for ", rows_name, " = ", rows, " and ", size / rows,
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

absl::Status AreSmall(const tensorflow::Tensor& statistics, int i,
                      FeedbackVariable* variable) {
  if (statistics.NumElements() == 0 || variable->units == nullptr) {
    return absl::OkStatus();
  }
  const int64_t rows = variable->rows;
  const int64_t columns = variable->size / rows;
  if (statistics.dims() != 1 || statistics.NumElements() != rows + columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("statistics[", i, "] must have the shape [",
                     rows + columns, "], as units[", i, "] has, or [0], got ",
                     statistics.shape().DebugString()));
  }
  // Values whose squares have a finite sum are less than 2^64, and ranks
  // deliver up to 64 units each. What is less than 2^103 in all does not make a
  // finite float32 infinite.
  constexpr float kLargestUnit = 0x1p64f;
  const auto largest = [](const float* first, int64_t n) {
    return *std::max_element(first, first + n);
  };
  const auto squares = statistics.flat<tensorflow::bfloat16>();
  variable->are_small = largest(variable->units, rows) *
                                largest(variable->units + rows, columns) <
                            kLargestUnit &&
                        std::all_of(
                            squares.data(), squares.data() + squares.size(),
                            [](tensorflow::bfloat16 square) {
                              return Eigen::numext::isfinite(square);
                            });
  return absl::OkStatus();
}

}  // namespace tf_gc
