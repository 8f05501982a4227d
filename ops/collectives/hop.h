// What happens to the values of a bucket at a hop of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_HOP_H_
#define TF_GC_OPS_COLLECTIVES_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/topology.h"
#include "ops/wire/header.h"

namespace tf_gc {

// What was sent of a variable: values, counted once per receiver, and the bytes
// that they took.
struct VariableTraffic {
  int64_t values = 0;
  int64_t bytes = 0;
};

// What an aggregate is to the all-reduce.
enum class Content {
  kContribution,  // what one rank has contributed
  kPartialSum,    // what several have, on the way to the result
  kResult,        // what all have, be it one
};

// What some ranks have contributed to a piece.
struct Aggregate {
  static constexpr Aggregate Contribution() {
    return {Content::kContribution, 1};
  }
  // What is on its way to the result.
  static constexpr Aggregate Partial(int ranks) {
    return ranks == 1 ? Contribution() : Aggregate{Content::kPartialSum, ranks};
  }

  Content content;
  int ranks;
};

// One rank's side of one all-reduce. The topology decides which pieces go
// where, the hop what is in them.
//
// Plan comes first. The topology calls Prepare; for every piece that is
// aggregated here Start, then Anticipate and Merge for all that comes; Encode
// for what this rank sends; Commit; and Decode for every piece of the bucket. A
// piece that is not aggregated here is encoded at most once, as a contribution.
// All bytes are message bodies; whoever decodes trusts nothing of them. A body
// that is encoded has room for its largest size.
class Hop {
 public:
  virtual ~Hop() = default;

  // What errors call its messages.
  virtual const char* name() const = 0;
  // What it can run on. An op that gives no choice takes the first.
  virtual std::vector<TopologyKind> topologies() const = 0;
  virtual Codec codec() const = 0;
  // Whether a small bucket may take a tree, which sends partial sums as well.
  virtual bool suits_trees() const { return false; }
  // The most values that a piece should have.
  virtual int64_t piece_values() const = 0;
  // Pieces begin at multiples of so many values.
  virtual int64_t alignment() const { return BucketLayout::kAlignment; }
  // How the bucket is cut up. The layout outlives the hop.
  virtual void Plan(const BucketLayout& /*layout*/) {}
  // The size of a body with this content, at most.
  virtual int64_t MaxBodySize(const Piece& piece, Content content) const = 0;

  // Before anything is sent. `rank` is this rank.
  virtual void Prepare(const BucketLayout& layout, int rank) = 0;
  // The aggregate of the piece becomes this rank's own values.
  virtual void Start(const Piece& piece) = 0;
  // Called before Merge, while the message is still on its way, for what can be
  // computed without it: the aggregate of `own` ranks will take in that of
  // `incoming` ranks.
  virtual void Anticipate(const Piece& /*piece*/, int /*own*/,
                          int /*incoming*/) {}
  // The aggregate of this rank takes in the incoming one.
  virtual absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                             const uint8_t* body, int64_t size) = 0;
  // Writes this rank's aggregate and returns its size.
  virtual int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                         uint8_t* body) = 0;
  // Called when nothing but results is still missing.
  virtual absl::Status Commit() { return absl::OkStatus(); }
  // Takes the result.
  virtual absl::Status Decode(const Piece& piece, const uint8_t* body,
                              int64_t size) = 0;

  // Counts a body of `size` bytes that `receivers` ranks get, right after it
  // was encoded, or when it is passed on. Here every value takes the same room.
  virtual void Count(const Piece& piece, int64_t size, int receivers,
                     std::vector<VariableTraffic>* traffic) const {
    for (const Segment& segment : piece.segments) {
      VariableTraffic& variable = (*traffic)[segment.variable];
      variable.values += receivers * segment.length;
      variable.bytes += receivers * (size * segment.length / piece.values);
    }
  }
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_HOP_H_
