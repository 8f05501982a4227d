#include "ops/kernels/stochastic_quantize.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class StochasticQuantizeTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(StochasticQuantizeTest);

using Bytes = std::vector<uint8_t>;
using FloatVector = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

float RandomNumber(Seed seed, uint64_t i) {
  const uint32_t half = PhiloxHalf(PhiloxBlock(seed, i / 8), i % 8);
  return (static_cast<float>(half) + 0.5f) / 65536;
}

uint8_t ReferenceIndex(float value, const FloatVector& levels, float r) {
  float v = std::isnan(value) ? levels[0] : value;
  v = std::fmin(std::fmax(v, levels.front()), levels.back());
  int z = 0;
  for (size_t level = 0; level + 2 <= levels.size(); ++level) {
    if (levels[level] <= v) z = static_cast<int>(level);
  }
  // Stored, so that each is rounded.
  volatile const float distance = v - levels[z];
  volatile const float gap = levels[z + 1] - levels[z];
  volatile const float threshold = r * gap;
  return static_cast<uint8_t>(z + (distance > threshold));
}

Bytes Reference(const FloatVector& values, const FloatVector& levels, Seed seed,
                uint64_t first) {
  Bytes indices;
  for (const float value : values) {
    const uint64_t i = first + indices.size();
    indices.push_back(ReferenceIndex(value, levels, RandomNumber(seed, i)));
  }
  return indices;
}

Bytes ReferencePack(const Bytes& indices, int bits) {
  Bytes packed((indices.size() * bits + 7) / 8);
  for (size_t b = 0; b < indices.size() * bits; ++b) {
    packed[b / 8] |= (indices[b / bits] >> (b % bits) & 1) << (b % 8);
  }
  return packed;
}

Bytes Quantize(const FloatVector& values, const FloatVector& levels,
               Seed seed = kSeed, int64_t first = 0) {
  const int64_t n = values.size();
  Guarded<float> in(values, n % 4 * sizeof(float));
  Guarded<uint8_t> indices(n, n % 7);
  StochasticQuantize(in.data(), n, levels.data(), levels.size(), seed, first,
                     indices.data());
  EXPECT_TRUE(indices.GuardsAreIntact()) << n;
  return indices.Values();
}

Bytes QuantizePack(const FloatVector& values, const FloatVector& levels,
                   int bits, Seed seed = kSeed, int64_t first = 0,
                   float divisor = 1) {
  const int64_t n = values.size();
  // Right before the end of an allocation.
  const FloatVector in(values);
  Guarded<uint8_t> packed(PackedSize(n, bits), n % 5);
  StochasticQuantizePack(in.data(), divisor, n, levels.data(), levels.size(),
                         seed, first, bits, packed.data());
  EXPECT_TRUE(packed.GuardsAreIntact()) << n;
  return packed.Values();
}

FloatVector RandomValues(int64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  FloatVector values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Irregular levels around 0.
FloatVector RandomLevels(int count, uint32_t seed) {
  FloatVector levels = RandomValues(count, seed);
  std::sort(levels.begin(), levels.end());
  return levels;
}

int SmallestBits(size_t num_levels) {
  for (const int bits : {2, 3, 4, 5}) {
    if (num_levels <= size_t{1} << bits) return bits;
  }
  return 8;
}

constexpr float kDivisor = 3;

FloatVector Quotients(FloatVector values, float divisor) {
  for (float& value : values) value /= divisor;
  return values;
}

void ExpectReference(const FloatVector& values, const FloatVector& levels,
                     Seed seed = kSeed, int64_t first = 0) {
  const Bytes expected = Reference(values, levels, seed, first);
  ASSERT_EQ(Quantize(values, levels, seed, first), expected)
      << values.size() << " values, " << levels.size() << " levels";
  const Bytes of_quotients =
      Reference(Quotients(values, kDivisor), levels, seed, first);
  for (const int bits : {2, 3, 4, 5, 8}) {
    if (bits < SmallestBits(levels.size())) continue;
    ASSERT_EQ(QuantizePack(values, levels, bits, seed, first),
              ReferencePack(expected, bits))
        << values.size() << " values, " << levels.size() << " levels, " << bits
        << " bits";
    ASSERT_EQ(QuantizePack(values, levels, bits, seed, first, kDivisor),
              ReferencePack(of_quotients, bits))
        << values.size() << " values, " << levels.size() << " levels, " << bits
        << " bits";
  }
}

TEST_P(StochasticQuantizeTest, EveryNumberOfLevelsAgreesWithTheReference) {
  for (int count = kMinLevels; count <= kMaxLevels; ++count) {
    ExpectReference(RandomValues(200, count, 1.5f), RandomLevels(count, count));
  }
}

TEST_P(StochasticQuantizeTest, EveryLengthAgreesWithTheReference) {
  for (const int count : {2, 4, 7, 16, 27, 256}) {
    const FloatVector levels = RandomLevels(count, count);
    for (int64_t n = 0; n <= 300; ++n) {
      ExpectReference(RandomValues(n, n), levels);
    }
  }
}

TEST_P(StochasticQuantizeTest, EverySplitAtEightsGivesTheSame) {
  constexpr int64_t n = 500;
  const FloatVector values = RandomValues(n, 1);
  for (const int count : {4, 8, 16, 32, 256}) {
    const int bits = SmallestBits(count);
    const FloatVector levels = RandomLevels(count, 2);
    const Bytes expected = Reference(values, levels, kSeed, 0);
    const Bytes expected_packed = ReferencePack(expected, bits);
    for (int64_t cut = 0; cut < n; cut += 8) {
      const FloatVector below(values.begin(), values.begin() + cut);
      const FloatVector above(values.begin() + cut, values.end());
      Bytes indices = Quantize(below, levels);
      const Bytes rest = Quantize(above, levels, kSeed, cut);
      indices.insert(indices.end(), rest.begin(), rest.end());
      ASSERT_EQ(indices, expected) << cut;
      Bytes packed = QuantizePack(below, levels, bits);
      const Bytes packed_rest = QuantizePack(above, levels, bits, kSeed, cut);
      packed.insert(packed.end(), packed_rest.begin(), packed_rest.end());
      ASSERT_EQ(packed, expected_packed) << cut;
    }
  }
}

TEST_P(StochasticQuantizeTest, StreamsGoOnBehind32BitsOfBlocks) {
  const FloatVector levels = RandomLevels(16, 1);
  for (const int64_t first :
       {(int64_t{1} << 35) - 64, (int64_t{1} << 35) - 8, int64_t{1} << 62}) {
    ExpectReference(RandomValues(300, 2), levels, kSeed, first);
  }
}

TEST_P(StochasticQuantizeTest, WithoutASeedTheNearestLevelIsTaken) {
  for (const int count : {2, 4, 7, 16, 27, 256}) {
    const FloatVector levels = RandomLevels(count, count);
    for (const int64_t n : {0, 1, 15, 64, 300}) {
      FloatVector values = RandomValues(n, n, 1.5f);
      if (n > 2) {
        values[0] = kNaN;
        values[1] = levels[0] / 2 + levels[1] / 2;  // the lower one, if exact
        values[2] = kDivisor * values[1];
      }
      for (const float divisor : {1.0f, kDivisor}) {
        Bytes expected;
        for (const float value : Quotients(values, divisor)) {
          expected.push_back(ReferenceIndex(value, levels, 0.5f));
        }
        for (const int bits : {2, 3, 4, 5, 8}) {
          if (bits < SmallestBits(levels.size())) continue;
          const FloatVector in(values);
          Guarded<uint8_t> packed(PackedSize(n, bits), n % 5);
          NearestQuantizePack(in.data(), divisor, n, levels.data(),
                              levels.size(), bits, packed.data());
          EXPECT_TRUE(packed.GuardsAreIntact()) << n;
          ASSERT_EQ(packed.Values(), ReferencePack(expected, bits))
              << n << " values, " << count << " levels, " << bits << " bits";
        }
      }
    }
  }
}

TEST_P(StochasticQuantizeTest, SeedsAreKeyAndStream) {
  const FloatVector levels = {0, 1};
  const FloatVector values(256, 0.5f);
  for (const Seed seed : {Seed{0, 0}, Seed{1, 0}, Seed{0, 1},
                          Seed{uint64_t{1} << 32, 0}, Seed{~uint64_t{0}, 5}}) {
    ExpectReference(values, levels, seed);
  }
  EXPECT_NE(Quantize(values, levels, {1, 0}), Quantize(values, levels, {0, 1}));
}

TEST_P(StochasticQuantizeTest, ValuesOnALevelGetItsIndex) {
  for (const int count : {2, 3, 4, 8, 13, 16, 32, 100, 256}) {
    FloatVector levels;
    for (int level = 0; level < count; ++level) {
      levels.push_back(static_cast<float>(level * level) - 40);
    }
    Bytes expected;
    for (int level = 0; level < count; ++level) {
      expected.push_back(static_cast<uint8_t>(level));
    }
    for (uint64_t key = 0; key < 20; ++key) {
      ASSERT_EQ(Quantize(levels, levels, {key, 0}), expected) << count;
    }
  }
}

TEST_P(StochasticQuantizeTest, ValuesOutsideTheLevelsAreClamped) {
  for (const int count : {2, 5, 16, 32, 256}) {
    FloatVector levels;
    for (int level = 0; level < count; ++level) {
      levels.push_back(static_cast<float>(level));
    }
    const uint8_t last = static_cast<uint8_t>(count - 1);
    const FloatVector values = {-1e-6f, -kLargest, -kInfinity, kNaN,
                                -kNaN,  256,       kLargest,   kInfinity};
    EXPECT_EQ(Quantize(values, levels),
              (Bytes{0, 0, 0, 0, 0, last, last, last}));
  }
}

TEST_P(StochasticQuantizeTest, SpecialValuesAndLevelsAgreeWithTheReference) {
  const FloatVector special = {
      0.0f,      -0.0f,      kDenormal, -kDenormal,   3 * kDenormal,
      1e-38f,    1.0f,       -1.0f,     kLargest,     -kLargest,
      kInfinity, -kInfinity, kNaN,      1e30f,        -1e30f,
      0.5f,      0.25f,      0.125f,    kLargest / 2, -kLargest / 2};
  FloatVector values;
  for (int i = 0; i < 20; ++i) {
    values.insert(values.end(), special.begin(), special.end());
  }
  for (const FloatVector& levels : {
           FloatVector{0, 0},
           FloatVector{-0.0f, 0.0f},
           FloatVector{1, 1, 1, 1, 1},
           FloatVector{0, 0, 1},
           FloatVector{0, 1, 1},
           FloatVector{-1, 0, 0, 0, 1},
           FloatVector{-kDenormal, 0, kDenormal, 4 * kDenormal},
           // Distances that overflow.
           FloatVector{-kLargest, kLargest},
           FloatVector{-kLargest, -1, 1, kLargest},
           FloatVector(20, -0.0f),
           FloatVector(256, 0.25f),
       }) {
    ExpectReference(values, levels);
  }
}

TEST_P(StochasticQuantizeTest, DenormalNumbersCountInAnyModeOfTheThread) {
  const FloatVector levels = {-9 * kDenormal, 0, 100 * kDenormal, 1e-38f};
  const FloatVector values = RandomValues(300, 1, 1e-38f);
  const FloatVector descending = {2 * kDenormal, kDenormal};
  const Bytes expected = Reference(values, levels, kSeed, 0);
  const unsigned int mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040);
  const Bytes indices = Quantize(values, levels);
  const Bytes packed = QuantizePack(values, levels, 2);
  const int bad_level = FindBadLevel(descending.data(), 2);
  _mm_setcsr(mode);
  EXPECT_EQ(indices, expected);
  EXPECT_EQ(packed, ReferencePack(expected, 2));
  EXPECT_EQ(bad_level, 1);
}

TEST_P(StochasticQuantizeTest, EqualLevelsAreSkipped) {
  // Between 0 and 1 there are 0, 0 and 1, 1: the inner two are drawn.
  const FloatVector levels = {0, 0, 1, 1};
  const Bytes indices = Quantize(FloatVector(1000, 0.5f), levels);
  for (const uint8_t index : indices) EXPECT_TRUE(index == 1 || index == 2);
  EXPECT_EQ(Quantize({0}, levels), (Bytes{1}));
  // 2 is the last index that z may be, and 1 is not above level 2.
  EXPECT_EQ(Quantize({1}, levels), (Bytes{2}));
}

TEST_P(StochasticQuantizeTest, FindsTheFirstBadLevel) {
  const auto find = [](const FloatVector& levels) {
    return FindBadLevel(levels.data(), levels.size());
  };
  EXPECT_EQ(find({0, 1}), -1);
  EXPECT_EQ(find({0, -0.0f, 0}), -1);
  EXPECT_EQ(find({1, 0}), 1);
  EXPECT_EQ(find({0, 1, 2, 1.5f, 0}), 3);
  EXPECT_EQ(find({kNaN, 1}), 0);
  EXPECT_EQ(find({-kInfinity, 1}), 0);
  EXPECT_EQ(find({0, kNaN}), 1);
  EXPECT_EQ(find({0, 1, kInfinity}), 2);
}

}  // namespace
}  // namespace tf_gc::kernels
