#include "ops/collectives/lane_hop.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/lane_packing.h"
#include "ops/kernels/table_sum.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

using kernels::PackedSize;

// The values of a unit of work, whose lanes stay in the first-level cache:
// whole bytes, however they are packed.
constexpr int64_t kUnit = 4096;

void Raise(int64_t value, std::atomic<int64_t>* largest) {
  int64_t known = *largest;
  while (known < value && !largest->compare_exchange_weak(known, value)) {
  }
}

// Without a branch, for the compiler to vectorise.
template <typename Lane>
Lane LargestOf(const Lane* lanes, int64_t n) {
  Lane largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, lanes[i]);
  return largest;
}

}  // namespace

template <typename Lane>
LaneHop<Lane>::LaneHop(const uint8_t* packed, std::vector<Lane> table, int bits,
                       int ranks, Lane* sums, kernels::ParallelFor threads)
    : packed_(packed),
      table_(std::move(table)),
      bits_(bits),
      ranks_(ranks),
      largest_(*std::max_element(table_.begin(), table_.end())),
      lane_bits_(kernels::LaneBits(ranks * largest_)),
      sums_(sums),
      threads_(std::move(threads)) {}

template <typename Lane>
Codec LaneHop<Lane>::codec() const {
  return std::is_same_v<Lane, uint8_t> ? Codec::kByteLanes : Codec::kWordLanes;
}

template <typename Lane>
int64_t LaneHop<Lane>::MaxBodySize(const Piece& piece, Content content) const {
  return PackedSize(piece.values,
                    content == Content::kContribution ? bits_ : lane_bits_);
}

template <typename Lane>
template <typename Work>
void LaneHop<Lane>::ForEachPart(const Piece& piece, int64_t cost,
                                const Work& work) const {
  kernels::ParallelForUnits(threads_, piece.values, kUnit, cost,
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; i += kUnit) {
                                work(i, std::min(kUnit, end - i));
                              }
                            });
}

template <typename Lane>
void LaneHop<Lane>::Start(const Piece& piece) {
  std::fill_n(sums_ + piece.begin, piece.values, Lane{0});
  AddIndices(piece, packed_ + PackedSize(piece.begin, bits_));
}

template <typename Lane>
void LaneHop<Lane>::AddIndices(const Piece& piece, const uint8_t* packed) {
  ForEachPart(piece, kernels::kTableSumCost, [&](int64_t begin, int64_t n) {
    kernels::TableSum(packed + PackedSize(begin, bits_), n, table_.data(),
                      bits_, sums_ + piece.begin + begin);
  });
}

template <typename Lane>
absl::Status LaneHop<Lane>::Merge(const Piece& piece, const Aggregate& incoming,
                                  const uint8_t* body, int64_t size) {
  if (incoming.content == Content::kContribution) {
    TF_GC_RETURN_IF_ERROR(
        CheckBodySize(name(), size, MaxBodySize(piece, incoming.content)));
    TF_GC_RETURN_IF_ERROR(CheckPadding(piece, body, bits_, "indices"));
    AddIndices(piece, body);
    return absl::OkStatus();
  }
  return TakeLanes(piece, incoming.ranks, body, size,
                   [](const Lane* lanes, int64_t n, Lane* sums) {
                     for (int64_t i = 0; i < n; ++i) {
                       sums[i] = static_cast<Lane>(sums[i] + lanes[i]);
                     }
                   });
}

template <typename Lane>
int64_t LaneHop<Lane>::Encode(const Piece& piece, const Aggregate& aggregate,
                              uint8_t* body) {
  const int64_t size = MaxBodySize(piece, aggregate.content);
  if (size == 0) return 0;
  if (aggregate.content == Content::kContribution) {
    std::memcpy(body, packed_ + PackedSize(piece.begin, bits_), size);
    return size;
  }
  ForEachPart(piece, kernels::kLanePackingCost, [&](int64_t begin, int64_t n) {
    kernels::PackLanes(sums_ + piece.begin + begin, n, lane_bits_,
                       body + PackedSize(begin, lane_bits_));
  });
  return size;
}

template <typename Lane>
absl::Status LaneHop<Lane>::Decode(const Piece& piece, const uint8_t* body,
                                   int64_t size) {
  return TakeLanes(piece, ranks_, body, size,
                   [](const Lane* lanes, int64_t n, Lane* sums) {
                     std::copy_n(lanes, n, sums);
                   });
}

template <typename Lane>
template <typename Take>
absl::Status LaneHop<Lane>::TakeLanes(const Piece& piece, int ranks,
                                      const uint8_t* body, int64_t size,
                                      const Take& take) {
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(name(), size, PackedSize(piece.values, lane_bits_)));
  TF_GC_RETURN_IF_ERROR(CheckPadding(piece, body, lane_bits_, "lanes"));
  std::atomic<int64_t> largest = 0;
  ForEachPart(piece, kernels::kLanePackingCost, [&](int64_t begin, int64_t n) {
    Lane lanes[kUnit];
    kernels::UnpackLanes(body + PackedSize(begin, lane_bits_), n, lane_bits_,
                         lanes);
    Raise(LargestOf(lanes, n), &largest);
    take(lanes, n, sums_ + piece.begin + begin);
  });
  // Larger lanes might overflow on the way.
  if (largest <= ranks * largest_) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("lane message: a lane is ", largest.load(), ", but ", ranks,
                   " workers have no more than ", ranks * largest_, " in all"));
}

template <typename Lane>
absl::Status LaneHop<Lane>::CheckPadding(const Piece& piece,
                                         const uint8_t* body, int bits,
                                         const char* what) const {
  if (kernels::PaddingIsZero(body, piece.values, bits)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("lane message: the padding bits behind ", piece.values, " ",
                   what, " of ", bits, " bits are not 0"));
}

template class LaneHop<uint8_t>;
template class LaneHop<uint16_t>;

}  // namespace tf_gc
