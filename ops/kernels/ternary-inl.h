// Ternary values q of floats, for the *_simd.cc files (see kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_TERNARY_INL_H_
#define TF_GC_OPS_KERNELS_TERNARY_INL_H_

#include <cstdint>

#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

inline constexpr int32_t kSignBit = ~kMagnitudeBits;

// Bits are copied: arithmetic might flush a denormal value.
inline Floats Broadcast(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return reinterpret_cast<Floats>(Ints{} | bits);
}

// The scale M as quantising to the nearest needs it.
struct Scale {
  Ints plus;   // The bits of M
  Ints minus;  // and of -M.
  // 2 |t| > M where |t| is above the largest number that is at most M / 2.
  Floats upper;
  Floats lower;
};

inline Scale MakeScale(float scale) {
  int32_t bits;
  __builtin_memcpy(&bits, &scale, sizeof(bits));
  // Half of a number has one exponent less, or, denormal, its bits shifted.
  constexpr int32_t kExponent = 0x00800000;
  const int32_t half = bits < 2 * kExponent ? bits >> 1 : bits - kExponent;
  return {Ints{} | bits, Ints{} | bits | kSignBit,
          reinterpret_cast<Floats>(Ints{} | half),
          reinterpret_cast<Floats>(Ints{} | half | kSignBit)};
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_TERNARY_INL_H_
