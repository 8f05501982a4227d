// Signs, one bit each: packing them, and merging those of groups of workers
// (Marsit, section 4.1.1).
//
// The sign of value i is bit i % 8 of byte i / 8. n signs take
// SignPackedSize(n) bytes; the padding bits of the last one are 0.
//
// Pointers need no alignment; n = 0 is fine. Denormal numbers count, whatever
// the calling thread's mode. Every instruction set gives the same bits.

#ifndef TF_GC_OPS_KERNELS_SIGNS_H_
#define TF_GC_OPS_KERNELS_SIGNS_H_

#include <cstdint>

#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

// The bytes that n signs take: ceil(n / 8).
constexpr int64_t SignPackedSize(int64_t n) { return n / 8 + (n % 8 != 0); }

// Writes SignPackedSize(n) bytes: bit 1 where value >= 0, -0 too; NaN gives 0.
// Input and output must not overlap. A part of a tensor begins at a multiple of
// 8 values.
void SignPack(const float* values, int64_t n, uint8_t* packed);

// Writes as many bytes: bit 1 where is_set(i).
template <typename IsSet>
void SignPackWhere(int64_t n, IsSet is_set, uint8_t* packed) {
  const auto pack_byte = [&](int64_t byte, int bits) {
    int value = 0;
    for (int bit = 0; bit < bits; ++bit) value |= is_set(8 * byte + bit) << bit;
    packed[byte] = static_cast<uint8_t>(value);
  };
  for (int64_t byte = 0; byte < n / 8; ++byte) pack_byte(byte, 8);
  if (n % 8 != 0) pack_byte(n / 8, static_cast<int>(n % 8));
}

// values[i] = 1 where the bit is 1, else -1. Reads SignPackedSize(n) bytes,
// of which the padding does not matter. Input and output must not overlap.
void SignUnpack(const uint8_t* packed, int64_t n, float* values);

// Whether SignPack can have written these SignPackedSize(n) bytes.
constexpr bool SignPaddingIsZero(const uint8_t* packed, int64_t n) {
  return n % 8 == 0 || packed[n / 8] >> (n % 8) == 0;
}

// Whether groups of so many workers can be merged: at least 1 each, and at most
// 2^31 - 1 in all.
constexpr bool AreSignMergeCounts(int64_t first_count, int64_t second_count) {
  return first_count >= 1 && second_count >= 1 &&
         first_count <= INT32_MAX - second_count;
}

// What SignMerge compares its random numbers with: the probability
// first_count / (first_count + second_count) times 2^19, rounded.
constexpr uint32_t SignMergeThreshold(int64_t first_count,
                                      int64_t second_count) {
  const int64_t sum = first_count + second_count;
  return static_cast<uint32_t>(((first_count << 19) + sum / 2) / sum);
}

// A part of what is merged begins at a multiple of so many bytes.
inline constexpr int64_t kSignMergeUnit = 16;

// Merges the packed signs of first_count workers with those of second_count, as
// Marsit's operator does with its transient vector (equation 2; second_count is
// 1 there). Where the two agree the bit stays; where they differ it is that of
// `first` with the probability first_count / (first_count + second_count), but
// for 2^-20 at most. If both bits are 1 with a probability that is the mean of
// their workers' bits, so is that of the result.
//
// AreSignMergeCounts(first_count, second_count). `bytes` bytes are merged; the
// first one is number `first_byte` of the stream, a multiple of kSignMergeUnit.
// `merged` may be `first` or `second`, and must not overlap them otherwise.
// Padding that is 0 in both stays 0.
//
// The random numbers: per value U of 19 bits; `first`'s bit is kept where
// U < T = SignMergeThreshold. The 128 values of the bytes 16 g ... 16 g + 15 of
// the stream are group g. The three upper bits of U are planes: bit 18 - t of
// the group's value v is bit v % 32 of word v / 32 of the block 32 g + t of the
// seed's stream (philox.h). Where the bits of the workers differ, and these
// three are those of T, the lower 16 bits decide: half r % 8 of the block
// 32 g + 3 + r / 8 for the r-th such value of the group, in ascending order.
// What cannot change the result is not drawn: as soon as all further bits of T
// are 0, the values that are left are not below T. p = 1/2 takes one plane.
void SignMerge(const uint8_t* first, const uint8_t* second, int64_t bytes,
               int64_t first_count, int64_t second_count, Seed seed,
               int64_t first_byte, uint8_t* merged);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_SIGNS_H_
