// The variables of a bucket as THC sees them: one vector, in blocks that it
// transforms (Li et al., NSDI 2024, algorithm 3; ops/kernels/thc.h).

#ifndef TF_GC_OPS_COLLECTIVES_THC_BUCKET_H_
#define TF_GC_OPS_COLLECTIVES_THC_BUCKET_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/feedback_variable.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/thc.h"
#include "ops/wire/bytes.h"

namespace tf_gc {

// The same on all ranks, but for the seed of the rounding.
struct ThcScheme {
  kernels::ThcTable table;
  float truncation;  // t_p
  kernels::Seed signs;
  std::optional<kernels::Seed> rounding;  // none: to the nearest
};

// The blocks of a bucket of n values. The norms of all ranks, float32, take at
// most 1/16 bit a value, but for more than 128 ranks, and with small buckets.
kernels::ThcBlocks ThcBucketBlocks(int64_t n, int ranks);

// One rank's side of one step. The values x are those of the variables plus
// their residuals, in their units, one variable after the other; a variable
// that is not finite here counts as zeros. Call in this order:
//
//   Statistics     which variables are finite here, and the norms |x| of blocks
//   Agree          with the statistics of all ranks
//   Quantize       x becomes packed indices; what they do not stand for, the
//                  new residuals
//   Deliver        sums of table values become the reduced values, part by part
//
// Whatever is computed of a block is computed while it is in a thread's cache;
// the results do not depend on the number of threads.
//
// A variable that is not finite on some rank becomes NaN on all, and its
// residual is not to be replaced. So does one with values in a block so large
// that the sum over the ranks might overflow in the transform.
class ThcBucket {
 public:
  // Sums are divided by `divisor`. `variables` must outlive the bucket. Their
  // units become copies that the bucket has, each at least a tenth of the root
  // mean square of a matrix's rows or columns.
  ThcBucket(std::vector<FeedbackVariable>* variables, ThcScheme scheme,
            int ranks, float divisor, kernels::ParallelFor threads);

  const kernels::ThcTable& table() const { return scheme_.table; }
  int64_t padded() const { return blocks_.padded(); }
  // Parts of so many values, and a last one with the rest.
  int64_t part() const { return blocks_.part(); }

  // A message: one bit for each variable, 1 where it is finite, and a float32
  // for each block.
  std::vector<uint8_t> Statistics();
  int64_t statistics_size() const;

  // Takes the statistics of all ranks. DataLoss for bytes that are none.
  absl::Status Agree(const std::vector<Bytes>& statistics);
  // Whether a variable is to become NaN.
  const std::vector<bool>& non_finite() const { return non_finite_; }

  // Writes PackedSize(padded(), bits) bytes. new_residual may become undefined
  // where a variable is not finite.
  void Quantize(uint8_t* packed);

  // Writes the reduced values of the part from the value `first` on. `sums` are
  // those of the whole bucket, over all ranks; `room` is for part() values.
  template <typename Lane>
  void Deliver(int64_t first, const Lane* sums, float* room);

 private:
  // Some values of one variable, `offset` of the part before them.
  struct Segment {
    int variable;
    int64_t begin, length, offset;
  };

  // Calls work(segment) for the values from `first` on, the padding left out.
  template <typename Work>
  void ForEachSegment(int64_t first, int64_t n, const Work& work) const;
  // Calls work(row, columns, offset, length) for the rows that a segment has a
  // part of: the value offset + j has the unit row * columns[j]. Nothing where
  // there are no units.
  template <typename Work>
  void ForEachUnit(const Segment& segment, const Work& work) const;
  // Multiplies the segment's values in a part by their units.
  void FromUnits(const Segment& segment, float* part) const;
  // Writes t for n values from `first` on, and zeros for the padding.
  void Gather(int64_t first, int64_t n, float* t) const;
  // Divides these by their units, in place.
  void ToUnits(int64_t first, int64_t n, float* t) const;
  // Whether all was finite that did not count as zeros.
  bool Measure(std::vector<float>* norms);
  absl::Status Read(const Bytes& statistics, std::vector<float>* norms);
  void FindOverflow();
  // `room` is for 2 n values.
  void QuantizePart(const kernels::ThcPart& part, int64_t n, float* room,
                    uint8_t* packed);
  float* RoomFor(int64_t first, float* room) const;
  void KeepRounding(const Segment& segment, const float* total) const;
  kernels::ThcPart PartAt(int64_t first) const;
  int64_t PartSize(int64_t first) const;

  std::vector<FeedbackVariable>& variables_;
  const ThcScheme scheme_;
  const int ranks_;
  const float divisor_;
  const kernels::ParallelFor threads_;
  std::vector<int64_t> begins_;  // of each variable, and the end of the last
  std::vector<std::vector<float>> units_;  // of variables that have some
  kernels::ThcBlocks blocks_;
  std::vector<float> limits_;     // M of each block
  std::vector<bool> zero_here_;   // variables that are not finite on this rank
  std::vector<bool> non_finite_;  // anywhere
};

extern template void ThcBucket::Deliver(int64_t, const uint8_t*, float*);
extern template void ThcBucket::Deliver(int64_t, const uint16_t*, float*);

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_THC_BUCKET_H_
