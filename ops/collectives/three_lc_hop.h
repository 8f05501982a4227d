// 3LC at the hops of an all-reduce: both hops are compressed, with feedback of
// both errors through one residual.

#ifndef TF_GC_OPS_COLLECTIVES_THREE_LC_HOP_H_
#define TF_GC_OPS_COLLECTIVES_THREE_LC_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/feedback_variable.h"
#include "ops/collectives/hop.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/kernels/units.h"

namespace tf_gc {

// A contribution is t = values + residual of the rank, quantised with one scale
// for all that the rank sends of the variable; a sum is quantised by its server
// with the scale of the segment, in the same units. What quantisation leaves
// over goes into new_residual: of a contribution in the segments that other
// ranks serve, of the sum in those that this rank serves, where its own
// contribution is added exactly and leaves nothing. So the residuals of all
// ranks add up to all that is undelivered, in units of the sum.
//
// A variable that is non-finite on any rank becomes NaN on all, and its
// residual is not to be replaced. Every contribution tells every server which
// variables those are, so that all know before anything is committed. Where
// only the sum of a segment overflows, it becomes NaN, and all ranks write back
// what `residual` has there.
class ThreeLcHop : public Hop {
 public:
  // Sums are divided by `divisor`. `variables` must outlive the hop.
  ThreeLcHop(std::vector<FeedbackVariable>* variables,
             kernels::ThreeLcScaling scaling, float divisor,
             CommitCallback commit,
             kernels::ParallelFor threads = kernels::SingleThread);

  const char* name() const override { return "3LC"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kSharded};
  }
  Codec codec() const override { return Codec::kThreeLc; }
  int64_t piece_values() const override { return int64_t{8} << 20; }
  int64_t MaxBodySize(const Piece& piece, Content content) const override;

  void Prepare(const BucketLayout& layout, int rank) override;
  void Start(const Piece& piece) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Commit() override;
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;
  void Count(const Piece& piece, int64_t size, int receivers,
             std::vector<VariableTraffic>* traffic) const override;

 private:
  int64_t EncodeContribution(const Piece& piece, uint8_t* body);
  int64_t EncodeSum(const Piece& piece, uint8_t* body);
  int64_t FlagBytes() const { return (variables_.size() + 7) / 8; }
  float SumScale(const Segment& segment) const;
  void KeepRounding(const Segment& segment, const uint8_t* payload,
                    int64_t size, float scale) const;
  kernels::ThreeLcScaling ScalingOf(int variable) const;
  // Of a segment in its units; `values` and `residual` are the whole
  // variable's.
  kernels::Magnitudes Measure(kernels::ThreeLcScaling scaling,
                              const Segment& segment, const float* values,
                              const float* residual) const;
  kernels::Units UnitsOf(const Segment& segment) const;
  // What MaxAbsSum takes for them.
  kernels::Units WeightsOf(const Segment& segment) const;

  std::vector<FeedbackVariable>& variables_;
  const kernels::ThreeLcScaling scaling_;
  const float divisor_;
  int ranks_ = 0;
  const CommitCallback commit_;
  const kernels::ParallelFor threads_;
  std::vector<std::vector<float>> reciprocals_;  // of each variable's units
  // Of what this rank sends of each variable; NaN where that is non-finite
  // here.
  std::vector<float> scales_;
  std::vector<bool> non_finite_;        // anywhere
  std::vector<int64_t> encoded_sizes_;  // of the segments encoded last
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_THREE_LC_HOP_H_
