#include "ops/collectives/bucket_layout.h"

#include <algorithm>
#include <numeric>

namespace tf_gc {
namespace {

// The segments of the values [begin, end) of the concatenated variables.
Piece CutPiece(const std::vector<int64_t>& variable_sizes, int64_t begin,
               int64_t end, uint32_t index) {
  Piece piece = {{}, end - begin, begin, index};
  int64_t first = 0;  // of the variable, in the concatenation
  for (size_t v = 0; v < variable_sizes.size() && first < end; ++v) {
    const int64_t last = first + variable_sizes[v];
    const int64_t from = std::max(begin, first), to = std::min(end, last);
    if (from < to) {
      piece.segments.push_back({static_cast<int>(v), from - first, to - from});
    }
    first = last;
  }
  return piece;
}

}  // namespace

BucketLayout::BucketLayout(const std::vector<int64_t>& variable_sizes,
                           int ranks, int64_t piece_values, int64_t alignment,
                           int shards)
    : variables_(variable_sizes.size()),
      values_(std::accumulate(variable_sizes.begin(), variable_sizes.end(),
                              int64_t{0})),
      shards_(ranks) {
  const auto shard_begin = [&](int rank) {
    return rank == shards ? values_
                          : values_ / shards * rank / alignment * alignment;
  };
  const int64_t length =
      std::max(alignment, piece_values / alignment * alignment);
  uint32_t index = 0;
  for (int rank = 0; rank < shards; ++rank) {
    const int64_t end = shard_begin(rank + 1);
    int64_t begin = shard_begin(rank);
    do {
      const int64_t next = std::min(begin + length, end);
      shards_[rank].push_back(CutPiece(variable_sizes, begin, next, index++));
      begin = next;
    } while (begin < end);
  }
}

}  // namespace tf_gc
