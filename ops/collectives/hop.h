// What happens to the values of a bucket at a hop of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_HOP_H_
#define TF_GC_OPS_COLLECTIVES_HOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/wire_format.h"

namespace tf_gc {

// One rank's side of one all-reduce. The topology decides which pieces go
// where and calls, in this order: Prepare, EncodeContribution (pieces that
// others sum up), StartSum and AddContribution (pieces that this rank sums up),
// EncodeSum, Commit, and DecodeSum for every piece of the bucket. All bytes are
// message bodies; whoever decodes trusts nothing of them. A body that is
// encoded has room for its largest size.
class Hop {
 public:
  explicit Hop(int variables)
      : encoded_bytes_{Counts(variables), Counts(variables)} {}
  virtual ~Hop() = default;

  virtual Codec codec() const = 0;
  // The most values that a piece should have.
  virtual int64_t piece_values() const = 0;
  // The size of a piece's body, at most.
  virtual int64_t MaxBodySize(const Piece& piece, Phase phase) const = 0;

  // Before anything is sent. `rank` is this rank, the server of that shard.
  virtual void Prepare(const BucketLayout& layout, int rank) = 0;
  virtual int64_t EncodeContribution(const Piece& piece, uint8_t* body) = 0;
  virtual void StartSum(const Piece& piece) = 0;
  virtual absl::Status AddContribution(const Piece& piece, const uint8_t* body,
                                       int64_t size) = 0;
  // Called when the contributions of all ranks to the piece have been added.
  virtual int64_t EncodeSum(const Piece& piece, uint8_t* body) = 0;
  // Called when nothing but the sums is still missing.
  virtual absl::Status Commit() = 0;
  virtual absl::Status DecodeSum(const Piece& piece, const uint8_t* body,
                                 int64_t size) = 0;

  // The bytes that one receiver of all messages of a phase gets for a variable.
  int64_t encoded_bytes(Phase phase, int variable) const {
    return encoded_bytes_[static_cast<int>(phase)][variable];
  }

 protected:
  void CountBytes(Phase phase, int variable, int64_t bytes) {
    encoded_bytes_[static_cast<int>(phase)][variable] += bytes;
  }

 private:
  using Counts = std::vector<int64_t>;

  Counts encoded_bytes_[2];  // by phase and variable
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_HOP_H_
