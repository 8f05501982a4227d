// Ternary values q of floats, for the *_simd.cc files (see kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_TERNARY_INL_H_
#define TF_GC_OPS_KERNELS_TERNARY_INL_H_

#include <cstdint>

#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

inline constexpr int32_t kMagnitudeBits = 0x7fffffff;
inline constexpr int32_t kSignBit = ~kMagnitudeBits;

// Bits are copied: arithmetic might flush a denormal value.
inline Floats Broadcast(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return reinterpret_cast<Floats>(Ints{} | bits);
}

// |v| of the floats v with these bits.
inline Floats Magnitude(Ints bits) {
  return reinterpret_cast<Floats>(bits & kMagnitudeBits);
}

// Where 2 |v| > scale.
inline Ints IsLarge(Ints bits, Floats scale) {
  const Floats magnitude = Magnitude(bits);
  return magnitude + magnitude > scale;
}

// q: the sign of v where `is_nonzero`, else 0.
inline Ints SignWhere(Ints is_nonzero, Ints bits) {
  return ((bits >> 31) | 1) & is_nonzero;
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_TERNARY_INL_H_
