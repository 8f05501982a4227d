// Quartic encoding: five values of {-1, 0, 1} in one byte (3LC, section 3.2).
//
// 1 is added to each of the n values, zeros are appended up to a multiple of
// five, and the result is cut in five equal partitions p0 ... p4 of
// QuarticSize(n) digits. Byte i is
//
//   81 p0[i] + 27 p1[i] + 9 p2[i] + 3 p3[i] + p4[i]
//
// and lies in 0 ... 242; 121 stands for five zeros.
//
// Pointers need no alignment; input and output must not overlap. n = 0 gives
// zero bytes. Every instruction set gives the same bytes.

#ifndef TF_GC_OPS_KERNELS_QUARTIC_H_
#define TF_GC_OPS_KERNELS_QUARTIC_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// The byte of five zeros, and the number of byte values that quartic encoding
// gives; those from kQuarticValues on are left to zero-run encoding.
inline constexpr uint8_t kQuarticZero = 121;
inline constexpr int kQuarticValues = 243;

// The bytes that n values take: ceil(n / 5).
constexpr int64_t QuarticSize(int64_t n) { return (n + 4) / 5; }

// Index of the first of n values that is not -1, 0 or 1, or -1.
int64_t FindNonTernary(const int8_t* ternary, int64_t n,
                       const ParallelFor& parallel_for);

// Writes QuarticSize(n) bytes. Precondition: FindNonTernary(ternary, n) == -1.
void QuarticEncode(const int8_t* ternary, int64_t n, uint8_t* quartic,
                   const ParallelFor& parallel_for);

// Index of the first of QuarticSize(n) bytes that QuarticEncode cannot have
// given (above 242, or with padding other than 0), or -1.
int64_t FindNonQuartic(const uint8_t* quartic, int64_t n,
                       const ParallelFor& parallel_for);

// Writes n values. Precondition: FindNonQuartic(quartic, n) == -1.
void QuarticDecode(const uint8_t* quartic, int64_t n, int8_t* ternary,
                   const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_QUARTIC_H_
