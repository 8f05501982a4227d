// Rows in the entries of messages, exact (Codec::kRows) or packed
// (Codec::kPackedRows, ops/wire/rows.h).

#ifndef TF_GC_OPS_PARAMETER_SERVER_ROWS_H_
#define TF_GC_OPS_PARAMETER_SERVER_ROWS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"
#include "ops/wire/codec.h"
#include "ops/wire/rows.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

// The exact body of an entry, a uint8 tensor.
tensorflow::Tensor EncodeRows(const Rows& rows);

// The packed one, of the same rows, with those of one index added up.
tensorflow::Tensor EncodePackedRows(const Rows& rows, const RowsShape& shape,
                                    int bits, kernels::Seed seed,
                                    const kernels::ParallelFor& parallel_for);

constexpr bool IsOfRows(Codec codec) {
  return codec == Codec::kRows || codec == Codec::kPackedRows;
}

// Reads a body of such a codec. DataLoss unless it holds rows of this shape.
absl::Status DecodeRows(Codec codec, const uint8_t* body, int64_t size,
                        const RowsShape& shape, const std::string& what,
                        Rows* rows);

// The values in the rows, of this shape, of a body that DecodeRows finds right.
int64_t CountRowValues(Codec codec, const uint8_t* body, int64_t size,
                       const RowsShape& shape);

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_ROWS_H_
