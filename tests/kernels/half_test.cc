#include "ops/kernels/half.h"

#include <cmath>
#include <limits>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kInfiniteHalf = 0x7c00;

// The value of a float16 that is finite, from its definition.
float Value(int half) {
  const int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  const float magnitude = exponent == 0
                              ? std::ldexp(mantissa, -24)
                              : std::ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

int Negative(int half) { return half | 0x8000; }

TEST(HalfTest, EveryFiniteValueIsExactAndComesBack) {
  for (int half = 0; half < kInfiniteHalf; ++half) {
    for (const int signed_half : {half, Negative(half)}) {
      const float value = HalfToFloat(signed_half);
      EXPECT_EQ(value, Value(signed_half)) << signed_half;
      EXPECT_EQ(std::signbit(value), signed_half != half) << signed_half;
      EXPECT_EQ(FloatToHalf(value), signed_half);
    }
  }
}

TEST(HalfTest, ValuesBetweenTwoGoToTheNearest) {
  // The one after the largest would be 2^16, and is infinity.
  for (int half = 0; half < kInfiniteHalf; ++half) {
    const int next = half + 1;
    const float end = next == kInfiniteHalf ? 65536 : Value(next);
    const float middle = (Value(half) + end) / 2;
    const float below = std::nextafter(middle, 0.0f);
    const float above = std::nextafter(middle, kInfinity);
    const int even = half % 2 == 0 ? half : next;
    EXPECT_EQ(FloatToHalf(below), half);
    EXPECT_EQ(FloatToHalf(middle), even);
    EXPECT_EQ(FloatToHalf(above), next);
    EXPECT_EQ(FloatToHalf(-below), Negative(half));
    EXPECT_EQ(FloatToHalf(-middle), Negative(even));
    EXPECT_EQ(FloatToHalf(-above), Negative(next));
  }
}

TEST(HalfTest, InfinityStays) {
  EXPECT_EQ(HalfToFloat(kInfiniteHalf), kInfinity);
  EXPECT_EQ(HalfToFloat(Negative(kInfiniteHalf)), -kInfinity);
  for (const float value :
       {65536.0f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(FloatToHalf(value), kInfiniteHalf);
    EXPECT_EQ(FloatToHalf(-value), Negative(kInfiniteHalf));
  }
}

TEST(HalfTest, NanStays) {
  for (int half = kInfiniteHalf + 1; half < 0x8000; ++half) {
    EXPECT_TRUE(std::isnan(HalfToFloat(half)));
    EXPECT_TRUE(std::isnan(HalfToFloat(Negative(half))));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FloatToHalf(nan), 0x7e00);
  EXPECT_EQ(FloatToHalf(-nan), 0xfe00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::signaling_NaN()), 0x7e00);
}

TEST(HalfTest, DenormalFloatsAreZeros) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(FloatToHalf(denormal), 0);
  EXPECT_EQ(FloatToHalf(-denormal), 0x8000);
}

}  // namespace
}  // namespace tf_gc::kernels
