#include "ops/collectives/cascading_sign_hop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "ops/kernels/signs.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/wire/body.h"
#include "ops/wire/seeds.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

constexpr int64_t kNormSize = sizeof(float);
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Signs are unpacked, and drawn, in parts that stay in the cache.
constexpr int64_t kPart = 4096;

int64_t BodySize(const Piece& piece) {
  return kNormSize + kernels::SignPackedSize(piece.values);
}

// ||v||_2, or NaN where the distance 2 ||v|| of the levels is not a finite
// number. Eight sums, for the compiler to vectorise.
float Norm(const float* values, int64_t n) {
  constexpr int kLanes = 8;
  double squares[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      squares[lane] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = values[i];
    squares[i % kLanes] += value * value;
  }
  double sum = 0;
  for (const double square : squares) sum += square;
  const float norm = static_cast<float>(std::sqrt(sum));
  return std::isfinite(2 * norm) ? norm : kNaN;
}

// sums[i] += norm times the sign.
void AddSigns(const uint8_t* packed, float norm, int64_t n, float* sums) {
  float signs[kPart];
  for (int64_t begin = 0; begin < n; begin += kPart) {
    const int64_t size = std::min(kPart, n - begin);
    kernels::SignUnpack(packed + begin / 8, size, signs);
    for (int64_t i = 0; i < size; ++i) sums[begin + i] += norm * signs[i];
  }
}

}  // namespace

int64_t CascadingSignHop::MaxBodySize(const Piece& piece, Content) const {
  return BodySize(piece);
}

void CascadingSignHop::Prepare(const BucketLayout&, int rank) { rank_ = rank; }

void CascadingSignHop::Start(const Piece& piece) {
  if (reduced_ == values_) return;
  std::copy_n(values_ + piece.begin, piece.values, reduced_ + piece.begin);
}

absl::Status CascadingSignHop::Merge(const Piece& piece, const Aggregate&,
                                     const uint8_t* body, int64_t size) {
  return Add(piece, body, size);
}

int64_t CascadingSignHop::Encode(const Piece& piece, const Aggregate& aggregate,
                                 uint8_t* body) {
  const bool is_own = aggregate.content == Content::kContribution;
  const float* const values = (is_own ? values_ : reduced_) + piece.begin;
  const float norm = Norm(values, piece.values);
  WriteNumber(norm, body);
  uint8_t* const packed = body + kNormSize;
  if (std::isnan(norm)) {
    std::fill_n(packed, kernels::SignPackedSize(piece.values), uint8_t{0});
    return BodySize(piece);
  }
  const float levels[2] = {-norm, norm};
  const kernels::Seed seed = HopSeed(seed_, rank_, aggregate.ranks);
  uint8_t signs[kPart];
  for (int64_t begin = 0; begin < piece.values; begin += kPart) {
    const int64_t size = std::min(kPart, piece.values - begin);
    kernels::StochasticQuantize(values + begin, size, levels, 2, seed,
                                piece.begin + begin, signs);
    kernels::SignPackWhere(
        size, [&](int64_t i) { return signs[i] != 0; }, packed + begin / 8);
  }
  return BodySize(piece);
}

absl::Status CascadingSignHop::Decode(const Piece& piece, const uint8_t* body,
                                      int64_t size) {
  std::fill_n(reduced_ + piece.begin, piece.values, 0.0f);
  return Add(piece, body, size);
}

absl::Status CascadingSignHop::Add(const Piece& piece, const uint8_t* body,
                                   int64_t size) {
  TF_GC_RETURN_IF_ERROR(CheckBodySize(name(), size, BodySize(piece)));
  const float norm = ReadNumber<float>(body);
  if (!IsScale(norm) && !std::isnan(norm)) {
    return absl::DataLossError(
        absl::StrCat(name(), " message: the norm is ", norm));
  }
  const uint8_t* const packed = body + kNormSize;
  TF_GC_RETURN_IF_ERROR(
      CheckSigns(name(), packed, size - kNormSize, piece.values));
  AddSigns(packed, norm, piece.values, reduced_ + piece.begin);
  return absl::OkStatus();
}

}  // namespace tf_gc
