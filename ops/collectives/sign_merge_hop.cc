#include "ops/collectives/sign_merge_hop.h"

#include <algorithm>

#include "ops/wire/body.h"
#include "ops/wire/seeds.h"

namespace tf_gc {
namespace {

constexpr char kMessage[] = "sign merge";

// What the transient vector is drawn from, in parts that stay in the cache.
constexpr int64_t kZeros = 256 * kernels::kSignMergeUnit;
constexpr uint8_t zeros[kZeros] = {};

int64_t BodySize(const Piece& piece) {
  return kernels::SignPackedSize(piece.values);
}

}  // namespace

int64_t SignMergeHop::MaxBodySize(const Piece& piece, int) const {
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

absl::Status SignMergeHop::Merge(const Piece& piece, int, int,
                                 const uint8_t* body, int64_t size) {
  const absl::Status checked = CheckSigns(kMessage, body, size, piece.values);
  if (!checked.ok()) return checked;
  uint8_t* const own = merged_ + piece.begin / 8;
  const uint8_t* const transient = transient_.data();
  for (int64_t i = 0; i < size; ++i) {
    own[i] = (transient[i] & body[i]) | (~transient[i] & own[i]);
  }
  return absl::OkStatus();
}

int64_t SignMergeHop::Encode(const Piece& piece, int count, uint8_t* body) {
  std::copy_n((count == 1 ? packed_ : merged_) + piece.begin / 8,
              BodySize(piece), body);
  return BodySize(piece);
}

absl::Status SignMergeHop::Decode(const Piece& piece, const uint8_t* body,
                                  int64_t size) {
  const absl::Status checked = CheckSigns(kMessage, body, size, piece.values);
  if (checked.ok()) std::copy_n(body, size, merged_ + piece.begin / 8);
  return checked;
}

}  // namespace tf_gc
