// What happens to the values of a bucket at a hop of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_HOP_H_
#define TF_GC_OPS_COLLECTIVES_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/wire/header.h"

namespace tf_gc {

// What was sent of a variable: values, counted once per receiver, and the bytes
// that they took.
struct VariableTraffic {
  int64_t values = 0;
  int64_t bytes = 0;
};

// One rank's side of one all-reduce. The topology decides which pieces go
// where, the hop what is in them. The aggregate of a piece is what some ranks
// have contributed to it, be it one, or all: then it is the result.
//
// The topology calls Prepare; for every piece that is aggregated here Start,
// then Anticipate and Merge for all that comes; Encode for what this rank
// sends; Commit; and Decode for every piece of the bucket. A piece that is not
// aggregated here is encoded at most once, with the count 1. All bytes are
// message bodies; whoever decodes trusts nothing of them. A body that is
// encoded has room for its largest size.
class Hop {
 public:
  virtual ~Hop() = default;

  virtual Codec codec() const = 0;
  // The most values that a piece should have.
  virtual int64_t piece_values() const = 0;
  // Pieces begin at multiples of so many values.
  virtual int64_t alignment() const { return BucketLayout::kAlignment; }
  // The size of the body with the aggregate of `count` ranks, at most.
  virtual int64_t MaxBodySize(const Piece& piece, int count) const = 0;

  // Before anything is sent. `rank` is this rank.
  virtual void Prepare(const BucketLayout& layout, int rank) = 0;
  // The aggregate of the piece becomes this rank's own values.
  virtual void Start(const Piece& piece) = 0;
  // Called before Merge with the same counts, while the message is still on its
  // way: for what can be computed without it.
  virtual void Anticipate(const Piece& /*piece*/, int /*own*/,
                          int /*incoming*/) {}
  // The aggregate of `own` ranks becomes that of `own` + `incoming` ranks.
  virtual absl::Status Merge(const Piece& piece, int own, int incoming,
                             const uint8_t* body, int64_t size) = 0;
  // Writes the aggregate of `count` ranks and returns its size.
  virtual int64_t Encode(const Piece& piece, int count, uint8_t* body) = 0;
  // Called when nothing but results is still missing.
  virtual absl::Status Commit() { return absl::OkStatus(); }
  // Takes the result, the aggregate of all ranks.
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
