// Base-3 digits of quartic bytes, for the *_simd.cc files (see
// kernel_table.h).

#ifndef TF_GC_OPS_KERNELS_QUARTIC_INL_H_
#define TF_GC_OPS_KERNELS_QUARTIC_INL_H_

#include <cstdint>

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

inline constexpr uint8_t kZeroByte = 121;
inline constexpr uint8_t kLargestQuartic = 242;

// The factor with which Digit finds partition j's digit. 270 is 2^16 / 243
// rounded up, so that 270 a / 2^16 is the fraction a / 243 and less than 1/243
// more; times 3^j, the wanted digit is the first one after the point, and the
// digits before it drop out of the 16 bits.
inline constexpr uint16_t DigitFactor(int j) {
  constexpr uint16_t kPowers[] = {1, 3, 9, 27, 81};
  return static_cast<uint16_t>(270 * kPowers[j]);
}

// Partition j's digit of a byte in 0 ... 242, for factor = DigitFactor(j): 0,
// 1 or 2.
inline uint16_t Digit(uint8_t quartic, uint16_t factor) {
  const uint16_t fraction = static_cast<uint16_t>(quartic * factor);
  return static_cast<uint16_t>((fraction * 3u) >> 16);
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_QUARTIC_INL_H_
