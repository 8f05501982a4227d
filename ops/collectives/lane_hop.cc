#include "ops/collectives/lane_hop.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/table_sum.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// Both loops without a branch, for the compiler to vectorise.
template <typename Lane>
Lane LargestLane(const uint8_t* body, int64_t n) {
  Lane largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, ReadNumber<Lane>(body + i * sizeof(Lane)));
  }
  return largest;
}

template <typename Lane>
void AddLanesOf(const uint8_t* body, int64_t n, Lane* sums) {
  for (int64_t i = 0; i < n; ++i) {
    sums[i] =
        static_cast<Lane>(sums[i] + ReadNumber<Lane>(body + i * sizeof(Lane)));
  }
}

}  // namespace

template <typename Lane>
LaneHop<Lane>::LaneHop(const uint8_t* packed, std::vector<Lane> table, int bits,
                       Lane* sums)
    : packed_(packed),
      table_(std::move(table)),
      bits_(bits),
      largest_(*std::max_element(table_.begin(), table_.end())),
      sums_(sums) {}

template <typename Lane>
Codec LaneHop<Lane>::codec() const {
  return std::is_same_v<Lane, uint8_t> ? Codec::kByteLanes : Codec::kWordLanes;
}

template <typename Lane>
int64_t LaneHop<Lane>::MaxBodySize(const Piece& piece, Content content) const {
  return content == Content::kContribution
             ? kernels::PackedSize(piece.values, bits_)
             : piece.values * static_cast<int64_t>(sizeof(Lane));
}

template <typename Lane>
void LaneHop<Lane>::Prepare(const BucketLayout& layout, int) {
  ranks_ = layout.ranks();
}

template <typename Lane>
void LaneHop<Lane>::Start(const Piece& piece) {
  Clear(piece);
  kernels::TableSum(packed_ + kernels::PackedSize(piece.begin, bits_),
                    piece.values, table_.data(), bits_, sums_ + piece.begin);
}

template <typename Lane>
absl::Status LaneHop<Lane>::Merge(const Piece& piece, const Aggregate& incoming,
                                  const uint8_t* body, int64_t size) {
  return Add(piece, incoming, body, size);
}

template <typename Lane>
int64_t LaneHop<Lane>::Encode(const Piece& piece, const Aggregate& aggregate,
                              uint8_t* body) {
  const int64_t size = MaxBodySize(piece, aggregate.content);
  if (size == 0) return 0;
  if (aggregate.content == Content::kContribution) {
    std::memcpy(body, packed_ + kernels::PackedSize(piece.begin, bits_), size);
  } else {
    std::memcpy(body, sums_ + piece.begin, size);
  }
  return size;
}

template <typename Lane>
absl::Status LaneHop<Lane>::Decode(const Piece& piece, const uint8_t* body,
                                   int64_t size) {
  Clear(piece);
  return Add(piece, {Content::kResult, ranks_}, body, size);
}

template <typename Lane>
absl::Status LaneHop<Lane>::Add(const Piece& piece, const Aggregate& aggregate,
                                const uint8_t* body, int64_t size) {
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(name(), size, MaxBodySize(piece, aggregate.content)));
  return aggregate.content == Content::kContribution
             ? AddIndices(piece, body)
             : AddLanes(piece, aggregate.ranks, body);
}

template <typename Lane>
absl::Status LaneHop<Lane>::AddIndices(const Piece& piece,
                                       const uint8_t* body) {
  if (!kernels::PaddingIsZero(body, piece.values, bits_)) {
    return absl::DataLossError(
        absl::StrCat("lane message: the padding bits behind ", piece.values,
                     " indices of ", bits_, " bits are not 0"));
  }
  kernels::TableSum(body, piece.values, table_.data(), bits_,
                    sums_ + piece.begin);
  return absl::OkStatus();
}

template <typename Lane>
absl::Status LaneHop<Lane>::AddLanes(const Piece& piece, int ranks,
                                     const uint8_t* body) {
  // Larger lanes might overflow on the way.
  const int64_t largest = LargestLane<Lane>(body, piece.values);
  if (largest > ranks * largest_) {
    return absl::DataLossError(absl::StrCat(
        "lane message: a lane is ", largest, ", but ", ranks,
        " workers have no more than ", ranks * largest_, " in all"));
  }
  AddLanesOf<Lane>(body, piece.values, sums_ + piece.begin);
  return absl::OkStatus();
}

template <typename Lane>
void LaneHop<Lane>::Clear(const Piece& piece) {
  std::fill_n(sums_ + piece.begin, piece.values, Lane{0});
}

template class LaneHop<uint8_t>;
template class LaneHop<uint16_t>;

}  // namespace tf_gc
