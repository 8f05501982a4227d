#include "ops/kernels/ternary.h"

#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/quartic.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/zero_run.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class TernaryTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(TernaryTest);

using Floats = std::vector<float>;
using Ternary = std::vector<int8_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kMin = std::numeric_limits<float>::min();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {511, 512, 513, 1023, 1024, 1025, 10007}) {
    sizes.push_back(n);
  }
  return sizes;
}

// Values around `scale`, of which some are special.
Floats RandomFloats(int64_t n, float scale, uint32_t seed) {
  const float special[] = {0,     -0.0f,     kNan,       -kNan,     kInfinity,
                           scale, -scale,    -kInfinity, kDenormal, -kDenormal,
                           kMax,  scale / 2, -scale / 2};
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> factor(-1.5f, 1.5f);
  Floats values(n);
  for (float& value : values) {
    value = generator() % 3 == 0 ? special[generator() % std::size(special)]
                                 : factor(generator) * scale;
  }
  return values;
}

int8_t Sign(float value) { return value > 0 ? 1 : -1; }

// 2 |v| > scale, without rounding.
Ternary ReferenceNearest(const Floats& values, float scale) {
  Ternary ternary;
  for (const float value : values) {
    const bool is_large = 2 * std::fabs(double{value}) > double{scale};
    ternary.push_back(scale > 0 && is_large ? Sign(value) : 0);
  }
  return ternary;
}

// |v| > r scale, with r scale rounded.
Ternary ReferenceStochastic(const Floats& values, float scale, Seed seed,
                            int64_t first) {
  Ternary ternary;
  for (size_t k = 0; k < values.size(); ++k) {
    const int64_t i = first + static_cast<int64_t>(k);
    const uint32_t half = PhiloxHalf(PhiloxBlock(seed, i / 8), i % 8);
    const float limit = static_cast<float>((half + 0.5) / 65536) * scale;
    ternary.push_back(
        scale > 0 && std::fabs(values[k]) > limit ? Sign(values[k]) : 0);
  }
  return ternary;
}

constexpr float kScales[] = {
    1,           0.7f,          3e30f,     kMax,   kMin,
    3.1f * kMin, 5 * kDenormal, kDenormal, 1e-36f, 0};

TEST_P(TernaryTest, NearestByHand) {
  const float values[] = {0.5f, 0.6f, -0.6f, -0.5f,     0,          -0.0f,
                          7,    kNan, -kNan, kInfinity, -kInfinity, kDenormal};
  int8_t ternary[12];
  NearestTernary(values, 12, 1, ternary);
  const int8_t expected[] = {0, 1, -1, 0, 0, 0, 1, 0, 0, 1, -1, 0};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(ternary[i], expected[i]) << i;
}

TEST_P(TernaryTest, AScaleOfZeroGivesZeros) {
  const Floats values = RandomFloats(1000, 1, 1);
  Ternary ternary(1000, 7);
  NearestTernary(values.data(), 1000, 0, ternary.data());
  EXPECT_EQ(ternary, Ternary(1000, 0));
  ternary.assign(1000, 7);
  StochasticTernary(values.data(), 1000, -0.0f, kSeed, 0, ternary.data());
  EXPECT_EQ(ternary, Ternary(1000, 0));
}

TEST_P(TernaryTest, AllSizesAndScalesAgreeWithTheReference) {
  for (const int64_t n : Sizes()) {
    for (const float scale : {kScales[n % std::size(kScales)], 1.5f}) {
      const Floats values = RandomFloats(n, scale, n);
      Guarded<float> in(values, n % 4);
      Guarded<int8_t> ternary(n, n % 3);
      NearestTernary(in.data(), n, scale, ternary.data());
      ASSERT_EQ(ternary.Values(), ReferenceNearest(values, scale))
          << n << " " << scale;
      StochasticTernary(in.data(), n, scale, kSeed, 8 * n, ternary.data());
      ASSERT_EQ(ternary.Values(),
                ReferenceStochastic(values, scale, kSeed, 8 * n))
          << n << " " << scale;
      ASSERT_TRUE(ternary.GuardsAreIntact()) << n;
    }
  }
}

TEST_P(TernaryTest, DenormalNumbersCountInAnyModeOfTheThread) {
  const unsigned int mode = _mm_getcsr();
  const unsigned int flushing = mode | 0x8040;
  for (const float scale : {kMin, 5 * kDenormal, 3.1f * kMin}) {
    const Floats values = RandomFloats(300, scale, 1);
    const Ternary expected_nearest = ReferenceNearest(values, scale);
    const Ternary expected = ReferenceStochastic(values, scale, kSeed, 0);
    Ternary nearest(300), stochastic(300);
    _mm_setcsr(flushing);
    NearestTernary(values.data(), 300, scale, nearest.data());
    StochasticTernary(values.data(), 300, scale, kSeed, 0, stochastic.data());
    const unsigned int mode_after = _mm_getcsr();
    _mm_setcsr(mode);
    EXPECT_EQ(nearest, expected_nearest);
    EXPECT_EQ(stochastic, expected);
    EXPECT_EQ(mode_after & 0x8040, flushing & 0x8040);
  }
}

TEST_P(TernaryTest, NearestIsWhat3LcSendsWithoutAResidual) {
  for (const int64_t n : Sizes()) {
    std::mt19937 generator(n);
    std::normal_distribution<float> normal;
    Floats values(n), residual(n);
    for (float& value : values) value = normal(generator);
    const float scale =
        1.25f * MaxAbsSum(values.data(), nullptr, n, SingleThread);
    Ternary nearest(n), sent(n);
    NearestTernary(values.data(), n, scale, nearest.data());
    TernaryQuantize(values.data(), nullptr, scale, n, sent.data(),
                    residual.data());
    ASSERT_EQ(nearest, sent);
    const int64_t m = QuarticSize(n);
    std::vector<uint8_t> quartic(m), zero_run(m), payload(m);
    QuarticEncode(nearest.data(), n, quartic.data(), SingleThread);
    zero_run.resize(
        ZeroRunEncode(quartic.data(), m, zero_run.data(), SingleThread));
    payload.resize(ThreeLcEncode(values.data(), nullptr, scale, n,
                                 residual.data(), payload.data(),
                                 SingleThread));
    ASSERT_EQ(zero_run, payload);
  }
}

TEST_P(TernaryTest, AnyPartsGiveTheSameTernaryValues) {
  constexpr int64_t kSize = 4099;
  const Floats values = RandomFloats(kSize, 1, 1);
  // The last passes from 32 bits of block numbers to 33.
  for (const int64_t first :
       {int64_t{0}, int64_t{8}, (int64_t{1} << 35) - 800}) {
    const Ternary expected = ReferenceStochastic(values, 1, kSeed, first);
    for (const int64_t part : {8, 24, 64, 1000, 1024, 4096, 5000}) {
      Ternary ternary(kSize);
      for (int64_t i = 0; i < kSize; i += part) {
        StochasticTernary(values.data() + i, std::min(part, kSize - i), 1,
                          kSeed, first + i, ternary.data() + i);
      }
      ASSERT_EQ(ternary, expected) << first << " " << part;
    }
  }
}

TEST_P(TernaryTest, StochasticGivesTheSignFromTheScaleOn) {
  const Floats values = {1, -1, 1.5f, -1.5f, kMax, -kMax, kInfinity};
  for (int64_t first = 0; first < 80000; first += 8) {
    Ternary ternary(7);
    StochasticTernary(values.data(), 7, 1, kSeed, first, ternary.data());
    ASSERT_EQ(ternary, (Ternary{1, -1, 1, -1, 1, -1, 1})) << first;
  }
}

TEST(TernaryScaleTest, IsFiniteAndNotNegative) {
  for (const float scale : {0.0f, -0.0f, kDenormal, 1.0f, kMax}) {
    EXPECT_TRUE(IsTernaryScale(scale)) << scale;
  }
  for (const float scale : {-kDenormal, -1.0f, kInfinity, -kInfinity, kNan}) {
    EXPECT_FALSE(IsTernaryScale(scale)) << scale;
  }
}

}  // namespace
}  // namespace tf_gc::kernels
