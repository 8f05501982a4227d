// Rows of a matrix: gradients that have few of them (tf.IndexedSlices), and how
// they travel in few bytes.

#ifndef TF_GC_OPS_WIRE_ROWS_H_
#define TF_GC_OPS_WIRE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {

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

// A scalar has one row.
RowsShape RowsShapeOf(const tensorflow::TensorShape& shape);

// to <- to, then from. Those of `to` have the same length, or are none. Where
// it throws std::bad_alloc, `to` is as it was; after ReserveRows it throws
// none.
void AppendRows(const Rows& from, Rows* to);
void ReserveRows(const Rows& from, Rows* to);

// Adds rows to the values of their variable, all of which are in its range.
void AddRows(const Rows& rows, float* values);

// The same with strictly ascending indices: rows of one index are added up, in
// the order in which they come.
Rows SumRows(const Rows& rows);

// ---- Packed rows
//
//   uint32 k    the number of rows
//   uint8 b     bits of a value: 2, 3, 4, 5, 8 or 32
//   indices     strictly ascending (ops/kernels/index_packing.h)
//   scales      b < 32 alone: bfloat16 M of each row
//   values      b = 32: float32, row by row; else codes c of b bits
//               (ops/kernels/bit_packing.h)
//
// A code stands for M ((c - s) / s) in float32, with s = 2^(b - 1) - 1, and is
// at most 2 s. M is max |x| of the row's values x, rounded up, and a code is
// drawn so that this is x on average. The scale of a row that is not finite, or
// whose M would not be, is NaN; then all of its values are NaN.

// The exact form's b.
inline constexpr int kExactBits = 32;

constexpr bool IsRowBits(int64_t bits) {
  return bits == kExactBits || kernels::IsPackableBits(bits);
}

// How many rows a variable may have whose rows are packed.
bool CanPackRows(const RowsShape& shape);

// The bytes of k rows.
int64_t PackedRowsSize(int64_t k, const RowsShape& shape, int bits);

// Writes PackedRowsSize bytes, of rows of this shape as SumRows gives them.
// Values are drawn with the random numbers of `seed`, whatever the threads.
void PackRows(const Rows& rows, const RowsShape& shape, int bits,
              kernels::Seed seed, const kernels::ParallelFor& parallel_for,
              uint8_t* body);

// Reads packed rows of this shape, and moves *at behind them. DataLoss, which
// begins with `what` and names the field, for what PackRows cannot have
// written.
absl::Status UnpackRows(const std::string& what, const RowsShape& shape,
                        const uint8_t** at, const uint8_t* end, Rows* rows);

// The number of rows in a body that UnpackRows finds right.
int64_t CountPackedRows(const uint8_t* body);

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_ROWS_H_
