#include "ops/collectives/sign_merge_hop.h"

#include <algorithm>

#include "ops/wire/body.h"
#include "ops/wire/seeds.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// What the transient vector is drawn from, in parts that stay in the cache.
constexpr int64_t kZeros = 256 * kernels::kSignMergeUnit;
constexpr uint8_t zeros[kZeros] = {};

int64_t BodySize(const Piece& piece) {
  return kernels::SignPackedSize(piece.values);
}

}  // namespace

int64_t SignMergeHop::MaxBodySize(const Piece& piece, Content) const {
  return BodySize(piece);
}

void SignMergeHop::Prepare(const BucketLayout&, int rank) { rank_ = rank; }

void SignMergeHop::Start(const Piece& piece) {
  std::copy_n(packed_ + piece.begin / 8, BodySize(piece),
              merged_ + piece.begin / 8);
}

void SignMergeHop::Anticipate(const Piece& piece, int own, int incoming) {
  // Merging ones with zeros gives ones as often as the first is kept.
  const int64_t size = BodySize(piece);
  transient_.assign(size, 0xff);
  const kernels::Seed seed = HopSeed(seed_, rank_, incoming);
  for (int64_t begin = 0; begin < size; begin += kZeros) {
    uint8_t* const part = transient_.data() + begin;
    kernels::SignMerge(part, zeros, std::min(kZeros, size - begin), incoming,
                       own, seed, piece.begin / 8 + begin, part);
  }
}

absl::Status SignMergeHop::Merge(const Piece& piece, const Aggregate&,
                                 const uint8_t* body, int64_t size) {
  TF_GC_RETURN_IF_ERROR(CheckSigns(name(), body, size, piece.values));
  uint8_t* const own = merged_ + piece.begin / 8;
  const uint8_t* const transient = transient_.data();
  for (int64_t i = 0; i < size; ++i) {
    own[i] = (transient[i] & body[i]) | (~transient[i] & own[i]);
  }
  return absl::OkStatus();
}

int64_t SignMergeHop::Encode(const Piece& piece, const Aggregate& aggregate,
                             uint8_t* body) {
  const uint8_t* const signs =
      aggregate.content == Content::kContribution ? packed_ : merged_;
  std::copy_n(signs + piece.begin / 8, BodySize(piece), body);
  return BodySize(piece);
}

absl::Status SignMergeHop::Decode(const Piece& piece, const uint8_t* body,
                                  int64_t size) {
  TF_GC_RETURN_IF_ERROR(CheckSigns(name(), body, size, piece.values));
  std::copy_n(body, size, merged_ + piece.begin / 8);
  return absl::OkStatus();
}

}  // namespace tf_gc
