// Cascading SSDM: every hop decodes, adds, and compresses to signs again.

#ifndef TF_GC_OPS_COLLECTIVES_CASCADING_SIGN_HOP_H_
#define TF_GC_OPS_COLLECTIVES_CASCADING_SIGN_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/hop.h"
#include "ops/kernels/philox.h"

namespace tf_gc {

// The aggregate v of some ranks travels as Q(v): the norm ||v||_2 of the piece
// and one random sign for each value, which is + with the probability
//
//   1/2 + v_i / (2 ||v||)
//
// so that ||v|| times the sign is v_i on average (to ||v|| 2^-16, see
// ops/kernels/stochastic_quantize.h). A hop merges Q(v) of the ranks before it
// and its own values into Q(Q(v) + values), and the result is that of as many
// compressions as there are ranks (Marsit, section 3.2 and appendix A, which
// shows how the error grows with them). The bucket is one vector of n values.
//
// An aggregate whose norm overflows becomes NaN in the whole piece, on all
// ranks.
class CascadingSignHop : public Hop {
 public:
  // `values` are finite, `seed` is the same on all ranks. Writes the n
  // `reduced`, which may be `values`. The arrays must outlive the hop.
  CascadingSignHop(const float* values, kernels::Seed seed, float* reduced)
      : values_(values), seed_(seed), reduced_(reduced) {}

  const char* name() const override { return "cascading sign"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kRing};
  }
  Codec codec() const override { return Codec::kCascadingSign; }
  int64_t piece_values() const override { return int64_t{8} << 20; }
  int64_t MaxBodySize(const Piece& piece, Content content) const override;

  void Prepare(const BucketLayout& layout, int rank) override;
  void Start(const Piece& piece) override;
  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override;
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override;
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override;

 private:
  // Adds what the body holds to the aggregate, if it is one.
  absl::Status Add(const Piece& piece, const uint8_t* body, int64_t size);

  const float* const values_;
  const kernels::Seed seed_;
  float* const reduced_;  // holds the aggregates, too
  int rank_ = 0;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_CASCADING_SIGN_HOP_H_
