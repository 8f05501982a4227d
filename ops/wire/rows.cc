#include "ops/wire/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/half.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

using kernels::ParallelFor;

constexpr int64_t kHeadSize = sizeof(uint32_t) + sizeof(uint8_t);
constexpr int64_t kScaleSize = sizeof(uint16_t);
constexpr uint16_t kNanScale = 0x7fc0;

// The values of a unit of work, about: they stay in the second-level cache.
constexpr int64_t kUnit = 1 << 14;
// Codes of eight values begin on a byte, and on a block of random numbers.
constexpr int64_t kGroup = 8;

// What the codes of b bits stand for, in units of a row's scale.
class Levels {
 public:
  explicit Levels(int bits)
      : largest_((1 << (bits - 1)) - 1), values_(2 * largest_ + 1) {
    for (size_t code = 0; code < values_.size(); ++code) {
      values_[code] = static_cast<float>(static_cast<int>(code) - largest_) /
                      static_cast<float>(largest_);
    }
  }
  int count() const { return static_cast<int>(values_.size()); }
  const float* data() const { return values_.data(); }

 private:
  const int largest_;  // s
  std::vector<float> values_;
};

// Where the parts of a body lie.
struct Parts {
  Parts(int64_t k, const RowsShape& shape, int bits)
      : scales(kHeadSize + kernels::PackedIndicesSize(k, shape.rows)),
        values(scales + (bits == kExactBits ? 0 : k * kScaleSize)),
        end(values + (bits == kExactBits
                          ? k * shape.length * int64_t{sizeof(float)}
                          : kernels::PackedSize(k * shape.length, bits))) {}

  const int64_t scales, values, end;
};

// The bits of the least bfloat16 that is max |x| or more; NaN where it is not
// finite, or some x is not.
uint16_t ScaleOf(const float* x, int64_t n) {
  float max = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < n; ++i) {
    max = std::max(max, std::fabs(x[i]));
    is_finite &= std::isfinite(x[i]);
  }
  constexpr uint32_t kBelow = 0xffff;
  const auto scale = static_cast<uint16_t>(
      (ReadNumber<uint32_t>(reinterpret_cast<const uint8_t*>(&max)) + kBelow) >>
      16);
  const bool is_scale =
      is_finite && std::isfinite(kernels::Bfloat16ToFloat(scale));
  return is_scale ? scale : kNanScale;
}

// scaled <- x / scale, or zeros where that is nothing.
void Scale(const float* x, int64_t n, float scale, float* scaled) {
  if (!(scale > 0)) {
    std::fill_n(scaled, n, 0.0f);
    return;
  }
  for (int64_t i = 0; i < n; ++i) scaled[i] = x[i] / scale;
}

// Writes the scales and codes of rows [begin, end), of which begin is a
// multiple of kGroup.
void PackValues(const Rows& rows, int64_t begin, int64_t end,
                const Levels& levels, kernels::Seed seed, int bits,
                uint8_t* scales, uint8_t* codes) {
  const int64_t n = rows.length;
  std::vector<float> scaled((end - begin) * n);
  for (int64_t row = begin; row < end; ++row) {
    const float* const x = rows.values.data() + row * n;
    const uint16_t scale = ScaleOf(x, n);
    WriteNumber(scale, scales + row * kScaleSize);
    Scale(x, n, kernels::Bfloat16ToFloat(scale),
          scaled.data() + (row - begin) * n);
  }
  kernels::StochasticQuantizePack(scaled.data(), /*divisor=*/1, scaled.size(),
                                  levels.data(), levels.count(), seed,
                                  begin * n, bits,
                                  codes + kernels::PackedSize(begin * n, bits));
}

// values[i] <- what codes[i] stands for.
void Decode(const uint8_t* codes, int64_t n, float scale, const Levels& levels,
            float* values) {
  const float* const level = levels.data();
  for (int64_t i = 0; i < n; ++i) values[i] = scale * level[codes[i]];
}

template <typename... Text>
absl::Status Damaged(const std::string& what, const Text&... text) {
  return absl::DataLossError(absl::StrCat(what, ": ", text...));
}

absl::Status UnpackIndices(const std::string& what, const uint8_t* packed,
                           const RowsShape& shape, Rows* rows) {
  std::vector<int32_t> indices(rows->count());
  const char* const error =
      kernels::UnpackIndices(packed, rows->count(), shape.rows, indices.data());
  if (error != nullptr) {
    return Damaged(what, "the packed indices of rows ", error);
  }
  std::copy(indices.begin(), indices.end(), rows->indices.begin());
  return absl::OkStatus();
}

absl::Status UnpackValues(const std::string& what, int bits,
                          const uint8_t* scales, const uint8_t* packed,
                          Rows* rows) {
  const Levels levels(bits);
  const int64_t n = rows->values.size();
  std::vector<uint8_t> codes(n);
  kernels::UnpackBits(packed, n, bits, codes.data());
  if (!kernels::PaddingIsZero(packed, n, bits)) {
    return Damaged(what, "the padding of the codes is not 0");
  }
  const auto wrong = std::find_if(codes.begin(), codes.end(), [&](int code) {
    return code >= levels.count();
  });
  if (wrong != codes.end()) {
    return Damaged(what, "the code of value ", wrong - codes.begin(), " is ",
                   +*wrong, ", over ", levels.count() - 1);
  }
  for (int64_t row = 0; row < rows->count(); ++row) {
    const float scale = kernels::Bfloat16ToFloat(
        ReadNumber<uint16_t>(scales + row * kScaleSize));
    if (!IsScale(scale) && !std::isnan(scale)) {
      return Damaged(what, "the scale of row ", row, " is ", scale);
    }
    Decode(codes.data() + row * rows->length, rows->length, scale, levels,
           rows->values.data() + row * rows->length);
  }
  return absl::OkStatus();
}

// Room for so many more values, and in time for others.
template <typename T>
void Grow(size_t count, std::vector<T>* values) {
  const size_t size = values->size() + count;
  if (size <= values->capacity()) return;
  values->reserve(std::max(size, 2 * values->capacity()));
}

}  // namespace

RowsShape RowsShapeOf(const tensorflow::TensorShape& shape) {
  RowsShape rows = {shape.dims() > 0 ? shape.dim_size(0) : 1, 1};
  for (int i = 1; i < shape.dims(); ++i) rows.length *= shape.dim_size(i);
  return rows;
}

void ReserveRows(const Rows& from, Rows* to) {
  Grow(from.indices.size(), &to->indices);
  Grow(from.values.size(), &to->values);
}

void AppendRows(const Rows& from, Rows* to) {
  ReserveRows(from, to);
  if (from.count() > 0) to->length = from.length;
  to->indices.insert(to->indices.end(), from.indices.begin(),
                     from.indices.end());
  to->values.insert(to->values.end(), from.values.begin(), from.values.end());
}

void AddRows(const Rows& rows, float* values) {
  const float* row = rows.values.data();
  for (const int64_t index : rows.indices) {
    float* const sum = values + index * rows.length;
    for (int64_t i = 0; i < rows.length; ++i) sum[i] += row[i];
    row += rows.length;
  }
}

Rows SumRows(const Rows& rows) {
  std::vector<int64_t> order(rows.count());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return rows.indices[a] < rows.indices[b];
  });
  Rows sums;
  sums.length = rows.length;
  sums.indices.reserve(rows.count());
  sums.values.reserve(rows.values.size());
  for (const int64_t place : order) {
    const float* const row = rows.values.data() + place * rows.length;
    if (sums.count() > 0 && sums.indices.back() == rows.indices[place]) {
      float* const sum = sums.values.data() + sums.values.size() - sums.length;
      for (int64_t i = 0; i < sums.length; ++i) sum[i] += row[i];
    } else {
      sums.indices.push_back(rows.indices[place]);
      sums.values.insert(sums.values.end(), row, row + rows.length);
    }
  }
  return sums;
}

bool CanPackRows(const RowsShape& shape) {
  return shape.rows <= kernels::kMaxPackedSize;
}

int64_t PackedRowsSize(int64_t k, const RowsShape& shape, int bits) {
  return Parts(k, shape, bits).end;
}

void PackRows(const Rows& rows, const RowsShape& shape, int bits,
              kernels::Seed seed, const ParallelFor& parallel_for,
              uint8_t* body) {
  const kernels::KeepDenormals keep_denormals;
  const int64_t k = rows.count();
  const Parts parts(k, shape, bits);
  WriteNumber(static_cast<uint32_t>(k), body);
  body[sizeof(uint32_t)] = static_cast<uint8_t>(bits);
  const std::vector<int32_t> indices(rows.indices.begin(), rows.indices.end());
  kernels::PackIndices(indices.data(), k, shape.rows, body + kHeadSize);
  if (bits == kExactBits) {
    std::copy_n(reinterpret_cast<const uint8_t*>(rows.values.data()),
                parts.end - parts.values, body + parts.values);
    return;
  }
  const Levels levels(bits);
  const int64_t length = std::max<int64_t>(rows.length, 1);
  const int64_t groups = std::max<int64_t>(kUnit / (kGroup * length), 1);
  kernels::ParallelForUnits(parallel_for, k, groups * kGroup,
                            length * kernels::kStochasticQuantizeCost,
                            [&](int64_t begin, int64_t end) {
                              PackValues(rows, begin, end, levels, seed, bits,
                                         body + parts.scales,
                                         body + parts.values);
                            });
}

absl::Status UnpackRows(const std::string& what, const RowsShape& shape,
                        const uint8_t** at, const uint8_t* end, Rows* rows) {
  const kernels::KeepDenormals keep_denormals;
  const uint8_t* const body = *at;
  const int64_t size = end - body;
  if (size < kHeadSize) {
    return Damaged(what, "the number of rows, or their bits, are missing");
  }
  const int64_t k = CountPackedRows(body);
  const int bits = body[sizeof(uint32_t)];
  if (k > shape.rows || !CanPackRows(shape)) {
    return Damaged(what, "the number of rows is ", k, " of ", shape.rows);
  }
  if (!IsRowBits(bits)) {
    return Damaged(what, "the bits of a value are ", bits);
  }
  const Parts parts(k, shape, bits);
  if (size < parts.end) {
    return Damaged(what, k, " rows take ", parts.end, " bytes, got ", size);
  }
  rows->length = shape.length;
  rows->indices.resize(k);
  rows->values.resize(k * shape.length);
  *at = body + parts.end;
  TF_GC_RETURN_IF_ERROR(UnpackIndices(what, body + kHeadSize, shape, rows));
  if (bits != kExactBits) {
    return UnpackValues(what, bits, body + parts.scales, body + parts.values,
                        rows);
  }
  std::copy(body + parts.values, body + parts.end,
            reinterpret_cast<uint8_t*>(rows->values.data()));
  return absl::OkStatus();
}

int64_t CountPackedRows(const uint8_t* body) {
  return ReadNumber<uint32_t>(body);
}

}  // namespace tf_gc
