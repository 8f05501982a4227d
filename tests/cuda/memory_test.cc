#include "ops/cuda/memory.h"

#include <cmath>
#include <string>

#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

std::vector<uint16_t> AllBits() {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

// The value of a 16-bit float with `mantissa` bits of mantissa.
double ValueOf(uint16_t bits, int mantissa) {
  const int largest_exponent = (1 << (15 - mantissa)) - 1;
  const int exponent = bits >> mantissa & largest_exponent;
  const int fraction = bits & ((1 << mantissa) - 1);
  const int bias = largest_exponent / 2;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == largest_exponent) return sign * (fraction ? NAN : INFINITY);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign *
         std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

void ExpectConverts(int mantissa, decltype(tf_gc_cuda_half_to_float)* to_float,
                    decltype(tf_gc_cuda_float_to_half)* from_float) {
  const std::vector<uint16_t> bits = AllBits();
  const int64_t n = bits.size();
  Device<uint16_t> in(bits);
  Device<float> floats(n);
  ASSERT_EQ(to_float(in.data(), n, floats.data(), nullptr), 0);
  Device<uint16_t> out(n);
  ASSERT_EQ(from_float(floats.data(), n, out.data(), nullptr), 0);
  for (int64_t i = 0; i < n; ++i) {
    const double value = ValueOf(bits[i], mantissa);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(floats.data()[i])) << i;
      ASSERT_TRUE(std::isnan(ValueOf(out.data()[i], mantissa))) << i;
    } else {
      ASSERT_EQ(floats.data()[i], static_cast<float>(value)) << i;
      ASSERT_EQ(out.data()[i], bits[i]) << i;
    }
  }
}

TEST(MemoryTest, HalfAndFloatAreConverted) {
  ExpectConverts(10, tf_gc_cuda_half_to_float, tf_gc_cuda_float_to_half);
}

TEST(MemoryTest, Bfloat16AndFloatAreConverted) {
  ExpectConverts(7, tf_gc_cuda_bfloat16_to_float, tf_gc_cuda_float_to_bfloat16);
}

TEST(MemoryTest, ConversionsRoundToTheNearestAndTiesToEven) {
  Device<float> floats(std::vector<float>{1 + 0x1p-11f, 1 + 0x3p-11f,
                                          1 + 0x1.8p-11f, 65520, 0x1p-25f});
  Device<uint16_t> halves(5);
  tf_gc_cuda_float_to_half(floats.data(), 5, halves.data(), nullptr);
  EXPECT_EQ(halves.Values(),
            std::vector<uint16_t>({0x3c00, 0x3c02, 0x3c01, 0x7c00, 0}));
  floats = Device<float>(
      std::vector<float>{1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.8p-8f});
  Device<uint16_t> bfloats(3);
  tf_gc_cuda_float_to_bfloat16(floats.data(), 3, bfloats.data(), nullptr);
  EXPECT_EQ(bfloats.Values(), std::vector<uint16_t>({0x3f80, 0x3f82, 0x3f81}));
}

TEST(MemoryTest, FillsAndReads) {
  Device<float> values(1000);
  ASSERT_EQ(tf_gc_cuda_fill(1.5f, 1000, values.data(), nullptr), 0);
  std::vector<float> host(1000);
  ASSERT_EQ(tf_gc_cuda_read(values.data(), 4000, host.data(), nullptr), 0);
  EXPECT_EQ(host, std::vector<float>(1000, 1.5f));
}

TEST(MemoryTest, ErrorsHaveATextToShow) {
  EXPECT_NE(std::string(tf_gc_cuda_error_text(1)), "");
}

}  // namespace
}  // namespace tf_gc::cuda
