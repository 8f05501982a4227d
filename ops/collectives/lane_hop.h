// Quantised values that are added up without being decoded (THC).

#ifndef TF_GC_OPS_COLLECTIVES_LANE_HOP_H_
#define TF_GC_OPS_COLLECTIVES_LANE_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/hop.h"
#include "ops/kernels/parallel.h"

namespace tf_gc {

// What one rank has contributed travels as indices of `bits` bits in a table of
// integers, and the sum of several ranks as integer lanes, so that a hop looks
// up and adds, whatever the topology, and the result does not depend on it
// (THC, section 5). Lanes are as wide as the largest sum of all ranks needs; in
// memory they are uint8_t or uint16_t. The bucket is one vector of n values.
template <typename Lane>
class LaneHop : public Hop {
 public:
  // `packed` are the PackedSize(n, bits) bytes of PackBits; `table` has 2^bits
  // values, the same on all ranks, and `ranks` times the largest fits in a
  // Lane. Writes the n `sums`. The arrays must outlive the hop.
  LaneHop(const uint8_t* packed, std::vector<Lane> table, int bits, int ranks,
          Lane* sums, kernels::ParallelFor threads = kernels::SingleThread);

  const char* name() const override { return "lane"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kSharded, TopologyKind::kRing, TopologyKind::kTorus};
  }
  Codec codec() const override;
  int64_t piece_values() const override {
    return (int64_t{4} << 20) / sizeof(Lane);
  }
  int64_t MaxBodySize(const Piece& piece, Content content) const override;

  void Prepare(const BucketLayout& /*layout*/, int /*rank*/) override {}
  void Start(const Piece& piece) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;

 private:
  // Calls work(begin, n) for parts of the piece's values.
  template <typename Work>
  void ForEachPart(const Piece& piece, int64_t cost, const Work& work) const;
  // Adds the table's values of these indices of the piece.
  void AddIndices(const Piece& piece, const uint8_t* packed);
  // Calls take(lanes, n, sums) for parts of a body that `ranks` have added up.
  template <typename Take>
  absl::Status TakeLanes(const Piece& piece, int ranks, const uint8_t* body,
                         int64_t size, const Take& take);
  absl::Status CheckPadding(const Piece& piece, const uint8_t* body, int bits,
                            const char* what) const;

  const uint8_t* const packed_;
  const std::vector<Lane> table_;
  const int bits_;
  const int ranks_;
  const int64_t largest_;  // of the table
  const int lane_bits_;
  Lane* const sums_;  // holds the aggregates, too
  const kernels::ParallelFor threads_;
};

extern template class LaneHop<uint8_t>;
extern template class LaneHop<uint16_t>;

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_LANE_HOP_H_
