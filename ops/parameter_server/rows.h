// Rows of a variable: gradients that have few of them (tf.IndexedSlices).

#ifndef TF_GC_OPS_PARAMETER_SERVER_ROWS_H_
#define TF_GC_OPS_PARAMETER_SERVER_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

// An index may come more than once: its rows add up.
struct Rows {
  int64_t count() const { return static_cast<int64_t>(indices.size()); }

  int64_t length = 0;  // values of a row
  std::vector<int64_t> indices;
  std::vector<float> values;
};

// What rows are of: a variable with so many of so many values each.
struct RowsShape {
  int64_t rows;
  int64_t length;
};

// to <- to, then from. Those of `to` have the same length, or are none.
void AppendRows(const Rows& from, Rows* to);

// Adds rows to the values of their variable, all of which are in its range.
void AddRows(const Rows& rows, float* values);

// The body of an entry, a uint8 tensor.
tensorflow::Tensor EncodeRows(const Rows& rows);

// Reads a body. DataLoss unless it holds rows of this shape.
absl::Status DecodeRows(const uint8_t* body, int64_t size,
                        const RowsShape& shape, const std::string& what,
                        Rows* rows);

// The values in the rows of a body that DecodeRows finds right.
int64_t CountRowValues(const uint8_t* body, int64_t size);

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_ROWS_H_
