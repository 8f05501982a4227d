// THC's quantiser (Li et al., NSDI 2024, algorithm 3). Values t in blocks of
// d = 2^k, with a limit M for each block, a table T of 2^bits integers that
// ascend from 0 to the granularity g, and random signs D:
//
//   R = H D t / sqrt(d)            (ops/kernels/hadamard.h)
//   z = stochastic index of R, clamped to [-M, M], among M (2 T[z] / g - 1)
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

#include <cstdint>
#include <vector>

#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

// How n values are cut: in the largest blocks, 2^6 to 2^16 values, that need
// less than one part in 128 of padding, or else the smallest.
struct ThcBlocks {
  static constexpr int64_t kSmallest = 1 << 6;
  static constexpr int64_t kLargest = 1 << 16;

  explicit ThcBlocks(int64_t n);
  ThcBlocks(int64_t size, int64_t count) : size(size), count(count) {}

  int64_t size;
  int64_t count;

  int64_t padded() const { return size * count; }  // values, with the padding
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

// Writes the PackedSize(blocks.padded(), bits) bytes of the packed indices.
// `values` are blocks.padded(), `limits` one a block. `rotated` has room for
// blocks.padded() values, which become undefined; it may be `values`.
void ThcQuantize(const float* values, const ThcBlocks& blocks,
                 const float* limits, const ThcTable& table, Seed signs,
                 Seed rounding, float* rotated, uint8_t* packed,
                 const ParallelFor& parallel_for);

// Writes the blocks.padded() values that packed indices stand for.
void ThcDecode(const uint8_t* packed, const ThcBlocks& blocks,
               const float* limits, const ThcTable& table, Seed signs,
               float* values, const ParallelFor& parallel_for);

// The same of sums over so many workers.
template <typename Lane>
void ThcDecodeSums(const Lane* sums, const ThcBlocks& blocks,
                   const float* limits, int64_t granularity, int64_t workers,
                   Seed signs, float* values, const ParallelFor& parallel_for);

extern template void ThcDecodeSums(const uint8_t*, const ThcBlocks&,
                                   const float*, int64_t, int64_t, Seed, float*,
                                   const ParallelFor&);
extern template void ThcDecodeSums(const uint16_t*, const ThcBlocks&,
                                   const float*, int64_t, int64_t, Seed, float*,
                                   const ParallelFor&);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_THC_H_
