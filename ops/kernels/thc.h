// THC's quantiser (Li et al., NSDI 2024, algorithm 3). Values t in blocks of
// d = 2^k, with a limit M for each block, a table T of 2^bits integers that
// ascend from 0 to the granularity g, and random signs D:
//
//   R = H D t / sqrt(d)            (ops/kernels/hadamard.h)
//   z = stochastic index of R, clamped to [-M, M], among M (2 T[z] / g - 1),
//       or, without a seed of the rounding, that of the nearest one
//
// The indices z of several workers are summed up as S = sum T[z] without being
// decoded (ops/kernels/table_sum.h), and then decoded once:
//
//   sum of t = D H (M (2 S / g - workers)) / sqrt(d)
//
// A block with M = 0 is 0 everywhere.
//
// Arithmetic is float32 under the thread's rounding and denormal modes, but for
// the rounding to indices, where denormal numbers count
// (ops/kernels/stochastic_quantize.h). Every instruction set and every number
// of threads give the same bits. Arrays must not overlap but where said.

#ifndef TF_GC_OPS_KERNELS_THC_H_
#define TF_GC_OPS_KERNELS_THC_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

// How n values are cut: in the largest blocks, 2^6 to 2^16 values, that need
// less than one part in 128 of padding, or else the smallest.
struct ThcBlocks {
  static constexpr int64_t kSmallest = 1 << 6;
  static constexpr int64_t kLargest = 1 << 16;
  // Of 16 KiB, which stay in the first-level cache.
  static constexpr int64_t kCached = 1 << 12;

  explicit ThcBlocks(int64_t n) : ThcBlocks(OfAtMost(kLargest, n)) {}
  ThcBlocks(int64_t size, int64_t count) : size(size), count(count) {}

  // The same with blocks of at most `largest` values, a power of two from
  // kCached to kLargest.
  static ThcBlocks OfAtMost(int64_t largest, int64_t n);

  int64_t size;
  int64_t count;

  int64_t padded() const { return size * count; }  // values, with the padding
  // The values of the blocks that one thread works on at a time, while they are
  // in its cache.
  int64_t part() const { return std::max(size, kCached); }
};

// T, and what follows from it.
struct ThcTable {
  ThcTable() = default;
  explicit ThcTable(std::vector<uint16_t> integers);

  int64_t granularity() const { return integers.back(); }  // g

  int bits = 0;  // of an index
  std::vector<uint16_t> integers;
  std::vector<float> levels;  // 2 T[z] / g - 1
};

// Some consecutive blocks, a multiple of 128 values or all of them. What is
// computed of their n values, from the value `first` on, does not depend on how
// blocks are cut in parts. Arrays hold what belongs to the part alone.
class ThcPart {
 public:
  // `limits` are those of all blocks.
  ThcPart(const ThcBlocks& blocks, const float* limits, Seed signs,
          int64_t first, int64_t n)
      : blocks_(blocks), limits_(limits), signs_(signs), first_(first), n_(n) {}

  int64_t first() const { return first_; }

  // ThcQuantize, ThcDecode and ThcDecodeSums, which see below.
  void Quantize(const ThcTable& table, const std::optional<Seed>& rounding,
                const float* values, float* rotated, uint8_t* packed) const;
  void Decode(const ThcTable& table, const uint8_t* packed,
              float* values) const;
  template <typename Lane>
  void DecodeSums(const Lane* sums, int64_t granularity, int64_t workers,
                  float* values) const;

 private:
  template <typename Work, typename Pass>
  void ForEachUnit(const Work& work, const Pass& pass) const;
  void InverseTransform(float* values) const;

  const ThcBlocks blocks_;
  const float* const limits_;
  const Seed signs_;
  const int64_t first_, n_;
};

// Processor cycles, about, that a value takes, for ParallelFor.
inline constexpr int64_t kThcQuantizeCost = 6;
inline constexpr int64_t kThcDecodeCost = 4;

// The sum of n squares, in float64.
double SumOfSquares(const float* values, int64_t n);

// Of n values each; the result may be any of the arguments.
void Divide(const float* values, int64_t n, float divisor, float* quotients);
void Subtract(const float* values, const float* others, int64_t n,
              float* differences);
// In place, by row * columns[i], the units of a part of a row.
void DivideByUnits(float* values, int64_t n, float row, const float* columns);
void MultiplyByUnits(float* values, int64_t n, float row, const float* columns);

// Writes the PackedSize(blocks.padded(), bits) bytes of the packed indices.
// `values` are blocks.padded(), `limits` one a block. `rotated` has room for
// blocks.padded() values, which become undefined; it may be `values`.
void ThcQuantize(const float* values, const ThcBlocks& blocks,
                 const float* limits, const ThcTable& table, Seed signs,
                 const std::optional<Seed>& rounding, float* rotated,
                 uint8_t* packed, const ParallelFor& parallel_for);

// Writes the blocks.padded() values that packed indices stand for.
void ThcDecode(const uint8_t* packed, const ThcBlocks& blocks,
               const float* limits, const ThcTable& table, Seed signs,
               float* values, const ParallelFor& parallel_for);

// The same of sums over so many workers.
template <typename Lane>
void ThcDecodeSums(const Lane* sums, const ThcBlocks& blocks,
                   const float* limits, int64_t granularity, int64_t workers,
                   Seed signs, float* values, const ParallelFor& parallel_for);

extern template void ThcPart::DecodeSums(const uint8_t*, int64_t, int64_t,
                                         float*) const;
extern template void ThcPart::DecodeSums(const uint16_t*, int64_t, int64_t,
                                         float*) const;
extern template void ThcDecodeSums(const uint8_t*, const ThcBlocks&,
                                   const float*, int64_t, int64_t, Seed, float*,
                                   const ParallelFor&);
extern template void ThcDecodeSums(const uint16_t*, const ThcBlocks&,
                                   const float*, int64_t, int64_t, Seed, float*,
                                   const ParallelFor&);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_THC_H_
