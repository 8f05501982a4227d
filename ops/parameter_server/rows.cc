#include "ops/parameter_server/rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/varint.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::Tensor;

template <typename T>
uint8_t* WriteAll(const std::vector<T>& values, uint8_t* out) {
  const int64_t size = values.size() * sizeof(T);
  std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), size, out);
  return out + size;
}

// Reads what is before the indices, and moves *at behind it.
bool ReadHead(const uint8_t** at, const uint8_t* end, uint64_t* count,
              uint64_t* length) {
  return ReadVarint(at, end, count) && ReadVarint(at, end, length);
}

template <typename T>
const uint8_t* ReadAll(const uint8_t* bytes, int64_t count,
                       std::vector<T>* values) {
  values->resize(count);
  const int64_t size = count * sizeof(T);
  std::copy_n(bytes, size, reinterpret_cast<uint8_t*>(values->data()));
  return bytes + size;
}

absl::Status DecodeExact(const uint8_t* body, int64_t size,
                         const RowsShape& shape, const std::string& what,
                         Rows* rows) {
  const auto error = [&](const auto&... parts) {
    return absl::DataLossError(absl::StrCat(what, " message: ", parts...));
  };
  const uint8_t* at = body;
  const uint8_t* const end = body + size;
  uint64_t count, length;
  if (!ReadHead(&at, end, &count, &length)) {
    return error("the number of rows, or of values in one, is damaged");
  }
  if (length != static_cast<uint64_t>(shape.length)) {
    return error("a row has ", length, " values, expected ", shape.length);
  }
  const uint64_t row_size = sizeof(int64_t) + length * sizeof(float);
  const uint64_t rest = end - at;
  if (rest % row_size != 0 || count != rest / row_size) {
    return error(count, " rows in ", rest, " bytes, expected ", row_size,
                 " each");
  }
  rows->length = shape.length;
  at = ReadAll(at, count, &rows->indices);
  ReadAll(at, count * length, &rows->values);
  for (const int64_t index : rows->indices) {
    if (index < 0 || index >= shape.rows) {
      return error("the index of a row is ", index, ", expected 0 ... ",
                   shape.rows - 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Tensor EncodeRows(const Rows& rows) {
  const int64_t size = VarintSize(rows.count()) + VarintSize(rows.length) +
                       rows.count() * sizeof(int64_t) +
                       rows.values.size() * sizeof(float);
  Tensor body = NewBytes(size);
  uint8_t* out = body.flat<uint8_t>().data();
  out = WriteVarint(rows.count(), out);
  out = WriteVarint(rows.length, out);
  out = WriteAll(rows.indices, out);
  WriteAll(rows.values, out);
  return body;
}

Tensor EncodePackedRows(const Rows& rows, const RowsShape& shape, int bits,
                        kernels::Seed seed,
                        const kernels::ParallelFor& parallel_for) {
  const Rows sums = SumRows(rows);
  Tensor body = NewBytes(PackedRowsSize(sums.count(), shape, bits));
  PackRows(sums, shape, bits, seed, parallel_for, body.flat<uint8_t>().data());
  return body;
}

absl::Status DecodeRows(Codec codec, const uint8_t* body, int64_t size,
                        const RowsShape& shape, const std::string& what,
                        Rows* rows) {
  if (codec == Codec::kRows) return DecodeExact(body, size, shape, what, rows);
  const std::string message = absl::StrCat(what, " message");
  const uint8_t* at = body;
  TF_GC_RETURN_IF_ERROR(UnpackRows(message, shape, &at, body + size, rows));
  return CheckBodySize(what, size, at - body);
}

int64_t CountRowValues(Codec codec, const uint8_t* body, int64_t size,
                       const RowsShape& shape) {
  if (codec == Codec::kPackedRows) return CountPackedRows(body) * shape.length;
  uint64_t count = 0, length = 0;
  ReadHead(&body, body + size, &count, &length);
  return static_cast<int64_t>(count * length);
}

}  // namespace tf_gc::parameter_server
