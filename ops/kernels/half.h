// Converting float16 and bfloat16 without branches.

#ifndef TF_GC_OPS_KERNELS_HALF_H_
#define TF_GC_OPS_KERNELS_HALF_H_

#include <cstdint>
#include <cstring>

namespace tf_gc::kernels {

namespace half_internal {

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// condition ? first : second, of which a compiler would make a branch around
// floating-point operations.
inline uint32_t Select(bool condition, uint32_t first, uint32_t second) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (first & mask) | (second & ~mask);
}

}  // namespace half_internal

// Of float16 both functions give the bits that Eigen's conversions give, which
// choose between normal numbers, denormal ones and the rest by branches: loops
// of them do not become vector instructions, and take ten times as long. These
// here compute all three cases, and select one.
//
// A float16 has the sign in bit 15, 5 bits of exponent and 10 of mantissa; a
// float32 has 8 and 23. The exponents' biases are 15 and 127.

// The value of a float16 with these bits, exactly. NaN stays NaN.
inline float HalfToFloat(uint16_t half) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  constexpr uint32_t kSmallestNormal = kRebias + (1 << 23);  // 2^-14
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  const uint32_t exponent = half & 0x7c00;
  const uint32_t normal = magnitude + kRebias;
  const uint32_t infinite = normal + kRebias;
  // 2^-14 (1 + mantissa / 2^10), less 2^-14.
  const uint32_t denormal = half_internal::BitsOf(
      half_internal::FloatOf(magnitude + kSmallestNormal) -
      half_internal::FloatOf(kSmallestNormal));
  uint32_t bits = half_internal::Select(exponent == 0x7c00, infinite, normal);
  bits = half_internal::Select(exponent == 0, denormal, bits);
  return half_internal::FloatOf(bits | static_cast<uint32_t>(half & 0x8000)
                                           << 16);
}

// The bits of the nearest float16, of two the even one. NaN becomes the quiet
// NaN of its sign.
inline uint16_t FloatToHalf(float value) {
  constexpr uint32_t kInfinity = 255u << 23;
  constexpr uint32_t kOverflow = (127 + 16) << 23;        // 2^16
  constexpr uint32_t kSmallestNormal = (127 - 14) << 23;  // 2^-14
  // The last bit of its mantissa is worth that of a denormal float16, 2^-24.
  constexpr uint32_t kHalf = (127 - 1) << 23;  // 2^-1
  const uint32_t bits = half_internal::BitsOf(value);
  const uint32_t sign = bits & 0x80000000;
  const uint32_t magnitude = bits ^ sign;
  // The mantissa is rounded by the carry of what is added to the bits that go:
  // half of the last bit that stays, less one where that bit is even. A carry
  // out of the mantissa goes to the exponent, and so to infinity in the end.
  const uint32_t normal =
      (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const uint32_t denormal =
      half_internal::BitsOf(half_internal::FloatOf(magnitude) +
                            half_internal::FloatOf(kHalf)) -
      kHalf;
  const uint32_t infinite = magnitude > kInfinity ? 0x7e00 : 0x7c00;
  uint32_t half =
      half_internal::Select(magnitude < kSmallestNormal, denormal, normal);
  half = half_internal::Select(magnitude >= kOverflow, infinite, half);
  return static_cast<uint16_t>(half | sign >> 16);
}

// A bfloat16 is the upper half of a float32.
inline float Bfloat16ToFloat(uint16_t bfloat16) {
  return half_internal::FloatOf(uint32_t{bfloat16} << 16);
}

// The bits of the nearest bfloat16, of two the even one. NaN becomes the
// positive quiet NaN, whatever its sign; Eigen keeps that.
inline uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = half_internal::BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(half_internal::Select(is_nan, 0x7fc0, rounded));
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_HALF_H_
