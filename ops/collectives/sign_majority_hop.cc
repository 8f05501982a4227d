#include "ops/collectives/sign_majority_hop.h"

#include <algorithm>

#include "ops/kernels/signs.h"
#include "ops/wire/body.h"

namespace tf_gc {
namespace {

constexpr char kMessage[] = "sign majority";
constexpr uint16_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};

int64_t BodySize(const Piece& piece) {
  return kernels::SignPackedSize(piece.values);
}

// Adds each bit to the count of its value. (Eight lanes a byte, with a mask of
// their own each: the compiler vectorises it.)
void AddBits(const uint8_t* packed, int64_t bytes, uint16_t* counts) {
  for (int64_t i = 0; i < bytes; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      counts[8 * i + bit] += (packed[i] & kBits[bit]) != 0;
    }
  }
}

// The bits of the values of which at least half of the ranks have 1. (That of
// padding, of which none have, is 0.)
void PackMajority(const uint16_t* counts, int64_t bytes, int ranks,
                  uint8_t* packed) {
  const int half = (ranks + 1) / 2;
  for (int64_t i = 0; i < bytes; ++i) {
    int byte = 0;
    for (int bit = 0; bit < 8; ++bit) {
      byte |= (counts[8 * i + bit] >= half) << bit;
    }
    packed[i] = static_cast<uint8_t>(byte);
  }
}

}  // namespace

int64_t SignMajorityHop::MaxBodySize(const Piece& piece, int) const {
  return BodySize(piece);
}

void SignMajorityHop::Prepare(const BucketLayout& layout, int) {
  ranks_ = layout.ranks();
  positive_.reset(new uint16_t[8 * kernels::SignPackedSize(layout.values())]);
}

void SignMajorityHop::Start(const Piece& piece) {
  uint16_t* const counts = positive_.get() + piece.begin;
  std::fill_n(counts, 8 * BodySize(piece), uint16_t{0});
  AddBits(packed_ + piece.begin / 8, BodySize(piece), counts);
}

absl::Status SignMajorityHop::Merge(const Piece& piece, int, int,
                                    const uint8_t* body, int64_t size) {
  const absl::Status checked = CheckSigns(kMessage, body, size, piece.values);
  if (checked.ok()) AddBits(body, size, positive_.get() + piece.begin);
  return checked;
}

int64_t SignMajorityHop::Encode(const Piece& piece, int count, uint8_t* body) {
  if (count == ranks_) {
    PackMajority(positive_.get() + piece.begin, BodySize(piece), ranks_, body);
  } else {
    std::copy_n(packed_ + piece.begin / 8, BodySize(piece), body);
  }
  return BodySize(piece);
}

absl::Status SignMajorityHop::Decode(const Piece& piece, const uint8_t* body,
                                     int64_t size) {
  const absl::Status checked = CheckSigns(kMessage, body, size, piece.values);
  if (checked.ok()) std::copy_n(body, size, majority_ + piece.begin / 8);
  return checked;
}

}  // namespace tf_gc
