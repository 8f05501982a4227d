// How the values of a bucket of variables are cut up among the ranks.

#ifndef TF_GC_OPS_COLLECTIVES_BUCKET_LAYOUT_H_
#define TF_GC_OPS_COLLECTIVES_BUCKET_LAYOUT_H_

#include <cstdint>
#include <vector>

namespace tf_gc {

// `length` values of one variable of the bucket, from its value `begin` on.
struct Segment {
  int variable;
  int64_t begin;
  int64_t length;
};

// One message's share of a bucket: `values` consecutive values, in segments of
// consecutive variables. `begin` counts the bucket's values before them, and
// `index` the pieces.
struct Piece {
  std::vector<Segment> segments;
  int64_t values = 0;
  int64_t begin = 0;
  uint32_t index = 0;
};

// The bucket's variables, one after the other, are cut in one shard of nearly
// equal size per rank, and each shard in pieces of at most `piece_values`
// values, one message each. Shards and pieces begin at multiples of `alignment`
// values; no piece is made shorter than that. A shard has at least one piece,
// if an empty one: every pair of ranks exchanges at least one message. Where
// there are fewer shards than ranks, the last ranks have none. All ranks
// compute the same layout from the same sizes.
class BucketLayout {
 public:
  // A cache line of floats.
  static constexpr int64_t kAlignment = 16;

  BucketLayout(const std::vector<int64_t>& variable_sizes, int ranks,
               int64_t piece_values, int64_t alignment, int shards);
  BucketLayout(const std::vector<int64_t>& variable_sizes, int ranks,
               int64_t piece_values, int64_t alignment = kAlignment)
      : BucketLayout(variable_sizes, ranks, piece_values, alignment, ranks) {}

  int ranks() const { return shards_.size(); }
  int variables() const { return variables_; }
  int64_t values() const { return values_; }
  const std::vector<Piece>& shard(int rank) const { return shards_[rank]; }

 private:
  int variables_;
  int64_t values_;
  std::vector<std::vector<Piece>> shards_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_BUCKET_LAYOUT_H_
