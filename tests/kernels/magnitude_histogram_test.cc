#include "ops/kernels/magnitude_histogram.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Bins that have values: their counts and sums of squares.
using Bins = std::map<int, std::pair<int64_t, double>>;

Bins Histogram(const Floats& values,
               const ParallelFor& parallel_for = SingleThread) {
  Guarded<float> in(values, 4);
  Guarded<int64_t> counts(kMagnitudeBins);
  Guarded<double> squares(kMagnitudeBins);
  MagnitudeHistogram(in.data(), values.size(), counts.data(), squares.data(),
                     parallel_for);
  EXPECT_TRUE(counts.GuardsAreIntact() && squares.GuardsAreIntact());
  const std::vector<int64_t> of_counts = counts.Values();
  const std::vector<double> of_squares = squares.Values();
  Bins bins;
  for (int i = 0; i < kMagnitudeBins; ++i) {
    if (of_counts[i] != 0 || of_squares[i] != 0) {
      bins[i] = {of_counts[i], of_squares[i]};
    }
  }
  return bins;
}

// Of all magnitudes that float32 has.
Floats RandomFloats(int64_t n) {
  std::mt19937 generator(n);
  Floats values(n);
  for (float& value : values) {
    const uint32_t bits = generator();
    std::memcpy(&value, &bits, sizeof(bits));
  }
  return values;
}

TEST(MagnitudeHistogramTest, BinsByHand) {
  // 1 + 1/32 begins a bin, and the float below is in the one before.
  const float below = std::nextafter(1 + 1 / 32.f, 0.f);
  const Bins bins =
      Histogram({1, -1, 1 + 1 / 64.f, below, 1 + 1 / 32.f, 0, -0.f, 2});
  ASSERT_EQ(bins.size(), 4);
  EXPECT_EQ(bins.at(0), std::pair(int64_t{2}, 0.0));
  EXPECT_EQ(bins.at(127 * 32).first, 4);
  EXPECT_NEAR(bins.at(127 * 32).second,
              2 + 1.015625 * 1.015625 + double{below} * below, 1e-8);
  EXPECT_EQ(bins.at(127 * 32 + 1), std::pair(int64_t{1}, 1.03125 * 1.03125));
  EXPECT_EQ(bins.at(128 * 32), std::pair(int64_t{1}, 4.0));
}

TEST(MagnitudeHistogramTest, NoValuesAreInNoBin) {
  EXPECT_TRUE(Histogram({}).empty());
}

TEST(MagnitudeHistogramTest, ValuesThatAreNotFiniteAreInNoBin) {
  EXPECT_TRUE(Histogram({kNan, -kNan, kInfinity, -kInfinity}).empty());
}

TEST(MagnitudeHistogramTest, DenormalSquaresAreZeroAndTheLargestAreNot) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::min();
  const Bins bins = Histogram({kDenormal, kSmallest, kLargest});
  ASSERT_EQ(bins.size(), 3);
  EXPECT_EQ(bins.at(0), std::pair(int64_t{1}, 0.0));
  EXPECT_EQ(bins.at(32), std::pair(int64_t{1}, 0x1p-252));
  EXPECT_NEAR(bins.at(kMagnitudeBins - 1).second / kLargest / kLargest, 1,
              0x1p-29);
}

TEST(MagnitudeHistogramTest, IsWhatEachValueAdds) {
  const Floats values = RandomFloats(300001);
  Bins expected;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    int exponent;
    const double mantissa =
        std::frexp(std::fabs(value), &exponent);  // [1/2, 1)
    int bin = 0;
    if (std::isnormal(value)) {
      bin = (exponent + 126) * 32 + static_cast<int>((mantissa - 0.5) * 64);
    } else if (value != 0) {
      bin = static_cast<int>(std::fabs(value) / kDenormal) >> 18;
    }
    auto& [count, square] = expected[bin];
    ++count;
    if (std::isnormal(value)) square += double{value} * value;
  }
  const Bins bins = Histogram(values);
  ASSERT_EQ(bins.size(), expected.size());
  for (const auto& [bin, count_and_square] : expected) {
    EXPECT_EQ(bins.at(bin).first, count_and_square.first) << bin;
    EXPECT_NEAR(bins.at(bin).second, count_and_square.second,
                count_and_square.second * 0x1p-28)
        << bin;
  }
}

TEST(MagnitudeHistogramTest, PartsChangeNoBit) {
  Floats values = RandomFloats(500003);
  const Bins expected = Histogram(values);
  EXPECT_EQ(Histogram(values, Threads(3)), expected);
  EXPECT_EQ(Histogram(values, CutAt({1, 3})), expected);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(Histogram(values), expected);
}

// An entry of the kernel's tables has room for 2^16 of the largest squares.
TEST(MagnitudeHistogramTest, ManyEqualValuesDoNotOverflow) {
  const float value = std::nextafter(2.f, 0.f);
  constexpr int64_t kCount = 1000001;
  const Bins bins = Histogram(Floats(kCount, -value));
  ASSERT_EQ(bins.size(), 1);
  EXPECT_EQ(bins.begin()->second.first, kCount);
  EXPECT_NEAR(bins.begin()->second.second / kCount / value / value, 1, 0x1p-29);
}

}  // namespace
}  // namespace tf_gc::kernels
