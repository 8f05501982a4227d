#include "ops/cuda/ternary.h"

#include <cmath>
#include <limits>

#include "ops/kernels/ternary.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::Seed;

constexpr Seed kSeed = {0x123456789abcdef0, 0xfedcba9876543210};

// Normal numbers, times `scale`, and some of all other kinds.
std::vector<float> RandomValues(int64_t n, float scale, uint32_t seed) {
  const float kinds[] = {0,
                         1e-42f,
                         scale,
                         scale / 2,
                         std::nextafter(scale / 2, 2 * scale),
                         std::numeric_limits<float>::max(),
                         std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& value : values) {
    value = normal(generator);
    if (generator() % 4 == 0) {
      value = std::copysign(kinds[generator() % std::size(kinds)], value);
    }
  }
  return values;
}

constexpr float kScales[] = {1, 0, 0.3f, 1e-40f, 3e38f};

TEST(TernaryTest, QuantizesToTheNearestAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    for (const float scale : kScales) {
      const std::vector<float> values = RandomValues(n, scale, 1);
      std::vector<int8_t> expected(n);
      kernels::NearestTernary(values.data(), n, scale, expected.data());
      Device<float> in(values, n % 2 ? 4 * (n % 5) : 0);
      Device<int8_t> ternary(n, n % 4 > 1 ? n % 13 : 0);
      ASSERT_EQ(tf_gc_cuda_nearest_ternary(in.data(), n, scale, ternary.data(),
                                           nullptr),
                0);
      ASSERT_EQ(ternary.Values(), expected) << n << " " << scale;
    }
  }
}

TEST(TernaryTest, QuantizesAtRandomAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    for (const float scale : kScales) {
      const int64_t first = n % 3 == 0 ? 0 : 8 * n + (int64_t{1} << 40);
      const std::vector<float> values = RandomValues(n, scale, 2);
      std::vector<int8_t> expected(n);
      kernels::StochasticTernary(values.data(), n, scale, kSeed, first,
                                 expected.data());
      Device<float> in(values, n % 2 ? 4 * (n % 5) : 0);
      Device<int8_t> ternary(n, n % 4 > 1 ? n % 13 : 0);
      ASSERT_EQ(tf_gc_cuda_stochastic_ternary(in.data(), n, scale, kSeed.key,
                                              kSeed.stream, first,
                                              ternary.data(), nullptr),
                0);
      ASSERT_EQ(ternary.Values(), expected) << n << " " << scale;
    }
  }
}

}  // namespace
}  // namespace tf_gc::cuda
