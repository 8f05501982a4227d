#include "ops/collectives/sign_majority_hop.h"

#include <algorithm>

#include "ops/kernels/signs.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

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

}  // namespace

int64_t SignMajorityHop::MaxBodySize(const Piece& piece, Content) const {
  return BodySize(piece);
}

void SignMajorityHop::Prepare(const BucketLayout& layout, int) {
  positive_.reset(new uint16_t[8 * kernels::SignPackedSize(layout.values())]);
}

void SignMajorityHop::Start(const Piece& piece) {
  uint16_t* const counts = positive_.get() + piece.begin;
  std::fill_n(counts, 8 * BodySize(piece), uint16_t{0});
  AddBits(packed_ + piece.begin / 8, BodySize(piece), counts);
}

absl::Status SignMajorityHop::Merge(const Piece& piece, const Aggregate&,
                                    const uint8_t* body, int64_t size) {
  TF_GC_RETURN_IF_ERROR(CheckSigns(name(), body, size, piece.values));
  AddBits(body, size, positive_.get() + piece.begin);
  return absl::OkStatus();
}

int64_t SignMajorityHop::Encode(const Piece& piece, const Aggregate& aggregate,
                                uint8_t* body) {
  if (aggregate.content == Content::kContribution) {
    std::copy_n(packed_ + piece.begin / 8, BodySize(piece), body);
  } else {
    const uint16_t* const counts = positive_.get() + piece.begin;
    const int half = (aggregate.ranks + 1) / 2;
    kernels::SignPackWhere(
        piece.values, [=](int64_t i) { return counts[i] >= half; }, body);
  }
  return BodySize(piece);
}

absl::Status SignMajorityHop::Decode(const Piece& piece, const uint8_t* body,
                                     int64_t size) {
  TF_GC_RETURN_IF_ERROR(CheckSigns(name(), body, size, piece.values));
  std::copy_n(body, size, majority_ + piece.begin / 8);
  return absl::OkStatus();
}

}  // namespace tf_gc
