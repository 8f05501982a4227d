#include "ops/kernels/signs.h"

#include <xmmintrin.h>

#include <cmath>
#include <limits>
#include <thread>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class SignsTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(SignsTest);

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr int32_t kMaxCount = std::numeric_limits<int32_t>::max();
constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {511, 512, 513, 1023, 1024, 1025, 1040, 2048, 10007}) {
    sizes.push_back(n);
  }
  return sizes;
}

// Values of which some are special.
Floats RandomFloats(int64_t n, uint32_t seed) {
  const float special[] = {0, -0.0f,      kNan,      -kNan,     kInfinity,
                           1, -kInfinity, kDenormal, -kDenormal};
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) {
    value = generator() % 3 == 0 ? special[generator() % 9] : normal(generator);
  }
  return values;
}

// `density` is the probability of a 1.
Bytes RandomBytes(int64_t n, double density, uint32_t seed) {
  std::mt19937 generator(seed);
  std::bernoulli_distribution is_one(density);
  Bytes bytes(n);
  for (uint8_t& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) byte |= is_one(generator) << bit;
  }
  return bytes;
}

int Bit(const Bytes& bytes, int64_t i) { return bytes[i / 8] >> (i % 8) & 1; }

Bytes ReferencePack(const Floats& values) {
  Bytes packed((values.size() + 7) / 8);
  for (size_t i = 0; i < values.size(); ++i) {
    // The sign of NaN is no sign.
    const bool is_one =
        !std::isnan(values[i]) && (values[i] == 0 || !std::signbit(values[i]));
    packed[i / 8] |= is_one << (i % 8);
  }
  return packed;
}

// What the header says, one value after the other.
Bytes ReferenceMerge(const Bytes& first, const Bytes& second,
                     int64_t first_count, int64_t second_count, Seed seed,
                     int64_t first_byte) {
  const int64_t sum = first_count + second_count;
  const uint32_t threshold = ((first_count << 19) + sum / 2) / sum;
  Bytes merged = second;
  const int64_t n = 8 * static_cast<int64_t>(first.size());
  for (int64_t begin = 0; begin < n; begin += 128) {
    const uint64_t block =
        uint64_t{32} * static_cast<uint64_t>((first_byte + begin / 8) / 16);
    int undecided = 0;
    for (int v = 0; v < 128 && begin + v < n; ++v) {
      const int64_t i = begin + v;
      if (Bit(first, i) == Bit(second, i)) continue;
      uint32_t u = 0;
      for (int t = 0; t < 3; ++t) {
        const uint32_t word = PhiloxBlock(seed, block + t).words[v / 32];
        u |= (word >> (v % 32) & 1) << (18 - t);
      }
      if (u >> 16 == threshold >> 16) {
        u |= PhiloxHalf(PhiloxBlock(seed, block + 3 + undecided / 8),
                        undecided % 8);
        ++undecided;
      }
      if (u < threshold) merged[i / 8] ^= 1 << (i % 8);
    }
  }
  return merged;
}

struct Counts {
  int64_t first, second;
};

// Thresholds with one plane, with two, with three, with low bits, 0, 1, all,
// and all but one.
constexpr Counts kCounts[] = {{1, 1},
                              {1, 3},
                              {3, 1},
                              {1, 7},
                              {5, 3},
                              {1, 2},
                              {2, 1},
                              {7, 9},
                              {1, 15},
                              {3, 5},
                              {1000000, 1},
                              {1, 1000000},
                              {1, 524287},
                              {524287, 1},
                              {1, 8},
                              {1, kMaxCount - 1},
                              {kMaxCount - 1, 1}};

TEST_P(SignsTest, PacksByHand) {
  const float values[] = {1,     -1,        0,          -0.0f,     kNan,
                          -kNan, kInfinity, -kInfinity, kDenormal, -kDenormal};
  uint8_t packed[2];
  SignPack(values, 10, packed);
  EXPECT_EQ(packed[0], 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6);
  EXPECT_EQ(packed[1], 1 << 0);
  float signs[10];
  SignUnpack(packed, 10, signs);
  const float expected[] = {1, -1, 1, 1, -1, -1, 1, -1, 1, -1};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(signs[i], expected[i]) << i;
}

TEST_P(SignsTest, PacksAndUnpacksAllSizes) {
  for (const int64_t n : Sizes()) {
    const Floats values = RandomFloats(n, n);
    const Bytes expected = ReferencePack(values);
    Guarded<float> in(values, n % 4);
    Guarded<uint8_t> packed(SignPackedSize(n), n % 3);
    SignPack(in.data(), n, packed.data());
    ASSERT_EQ(packed.Values(), expected) << n;
    ASSERT_TRUE(packed.GuardsAreIntact()) << n;
    ASSERT_TRUE(SignPaddingIsZero(packed.data(), n)) << n;
    Guarded<float> signs(n, n % 3);
    SignUnpack(packed.data(), n, signs.data());
    const Floats got = signs.Values();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(got[i], Bit(expected, i) ? 1 : -1) << n << " " << i;
    }
    ASSERT_TRUE(signs.GuardsAreIntact()) << n;
  }
}

TEST_P(SignsTest, PaddingDoesNotMatterToUnpacking) {
  for (int64_t n = 1; n < 40; ++n) {
    Bytes packed(SignPackedSize(n), 0xff);
    packed.shrink_to_fit();
    Guarded<float> signs(n);
    SignUnpack(packed.data(), n, signs.data());
    EXPECT_EQ(signs.Values(), Floats(n, 1));
    EXPECT_TRUE(signs.GuardsAreIntact());
  }
}

TEST(SignPaddingTest, AnyPaddingBitIsFound) {
  EXPECT_TRUE(SignPaddingIsZero(nullptr, 0));
  for (int64_t n = 1; n <= 40; ++n) {
    Bytes packed(SignPackedSize(n), 0xff);
    EXPECT_EQ(SignPaddingIsZero(packed.data(), n), n % 8 == 0) << n;
    for (int bit = n % 8; n % 8 != 0 && bit < 8; ++bit) {
      packed.back() = 1 << bit;
      EXPECT_FALSE(SignPaddingIsZero(packed.data(), n)) << n << " " << bit;
    }
  }
}

TEST_P(SignsTest, DenormalValuesHaveSignsInAnyModeOfTheThread) {
  const Floats values(100, -kDenormal);
  const unsigned int mode = _mm_getcsr();
  const unsigned int flushing = mode | 0x8040;
  _mm_setcsr(flushing);
  Bytes packed(13, 0xff);
  SignPack(values.data(), 100, packed.data());
  const unsigned int mode_after = _mm_getcsr();
  _mm_setcsr(mode);
  EXPECT_EQ(packed, Bytes(13, 0));
  EXPECT_EQ(mode_after & 0x8040, flushing & 0x8040);
}

TEST(SignMergeThresholdTest, IsTheRoundedProbability) {
  EXPECT_EQ(SignMergeThreshold(1, 1), 1u << 18);
  EXPECT_EQ(SignMergeThreshold(3, 1), 3u << 17);
  EXPECT_EQ(SignMergeThreshold(1, 2), 174763u);
  EXPECT_EQ(SignMergeThreshold(2, 1), 349525u);
  EXPECT_EQ(SignMergeThreshold(1, 1000000), 1u);
  EXPECT_EQ(SignMergeThreshold(1, kMaxCount - 1), 0u);
  EXPECT_EQ(SignMergeThreshold(kMaxCount - 1, 1), 1u << 19);
  EXPECT_EQ(SignMergeThreshold(524287, 1), (1u << 19) - 1);
}

TEST_P(SignsTest, MergesAllSizesAsTheReference) {
  for (const int64_t bytes : Sizes()) {
    const Counts counts[] = {kCounts[bytes % std::size(kCounts)], {1, 2}};
    for (const auto& [i, j] : counts) {
      const Bytes first = RandomBytes(bytes, 0.5, 2 * bytes);
      const Bytes second = RandomBytes(bytes, 0.5, 2 * bytes + 1);
      Guarded<uint8_t> a(first, bytes % 5), b(second, bytes % 7);
      Guarded<uint8_t> merged(bytes, bytes % 3);
      SignMerge(a.data(), b.data(), bytes, i, j, kSeed, 0, merged.data());
      ASSERT_EQ(merged.Values(), ReferenceMerge(first, second, i, j, kSeed, 0))
          << bytes << " " << i << " " << j;
      ASSERT_TRUE(merged.GuardsAreIntact()) << bytes;
    }
  }
}

TEST_P(SignsTest, MergesAllCountsAndDensitiesAsTheReference) {
  constexpr int64_t kBytes = 2500;
  for (const auto& [i, j] : kCounts) {
    for (const double density : {0.0, 0.01, 0.3, 0.9, 1.0}) {
      // Which bits differ, and which bits those are.
      const Bytes differ = RandomBytes(kBytes, density, 1);
      const Bytes base = RandomBytes(kBytes, 0.5, 2);
      Bytes other = base;
      for (int64_t k = 0; k < kBytes; ++k) other[k] ^= differ[k];
      Bytes merged(kBytes);
      SignMerge(base.data(), other.data(), kBytes, i, j, kSeed, 0,
                merged.data());
      ASSERT_EQ(merged, ReferenceMerge(base, other, i, j, kSeed, 0))
          << i << " " << j << " " << density;
    }
  }
}

TEST_P(SignsTest, TheResultMayBeEitherInput) {
  for (const int64_t bytes : Sizes()) {
    const Bytes first = RandomBytes(bytes, 0.5, 1);
    const Bytes second = RandomBytes(bytes, 0.5, 2);
    for (const auto& [i, j] : {Counts{1, 1}, Counts{2, 3}}) {
      const Bytes expected = ReferenceMerge(first, second, i, j, kSeed, 16);
      Bytes a = first, b = second;
      SignMerge(a.data(), second.data(), bytes, i, j, kSeed, 16, a.data());
      SignMerge(first.data(), b.data(), bytes, i, j, kSeed, 16, b.data());
      ASSERT_EQ(a, expected) << bytes;
      ASSERT_EQ(b, expected) << bytes;
    }
  }
}

TEST_P(SignsTest, AnyPartsGiveTheSameBits) {
  constexpr int64_t kBytes = 4100;
  const Bytes first = RandomBytes(kBytes, 0.5, 1);
  const Bytes second = RandomBytes(kBytes, 0.5, 2);
  // The last but one passes from 32 bits of block numbers to 33.
  for (const int64_t first_byte :
       {int64_t{0}, int64_t{16}, (int64_t{1} << 31) - 1600, int64_t{1} << 62}) {
    for (const auto& [i, j] : {Counts{1, 1}, Counts{1, 2}}) {
      const Bytes expected =
          ReferenceMerge(first, second, i, j, kSeed, first_byte);
      for (const int64_t part : {16, 48, 128, 1008, 1024, 1040, 4096, 5008}) {
        Bytes merged(kBytes);
        for (int64_t k = 0; k < kBytes; k += part) {
          SignMerge(first.data() + k, second.data() + k,
                    std::min(part, kBytes - k), i, j, kSeed, first_byte + k,
                    merged.data() + k);
        }
        ASSERT_EQ(merged, expected) << first_byte << " " << part;
      }
    }
  }
}

TEST_P(SignsTest, BitsThatAgreeStay) {
  constexpr int64_t kBytes = 10000;
  const Bytes first = RandomBytes(kBytes, 0.5, 1);
  const Bytes second = RandomBytes(kBytes, 0.5, 2);
  for (const auto& [i, j] : kCounts) {
    Bytes merged(kBytes);
    SignMerge(first.data(), second.data(), kBytes, i, j, kSeed, 0,
              merged.data());
    for (int64_t k = 0; k < kBytes; ++k) {
      ASSERT_EQ((merged[k] ^ first[k]) & ~(first[k] ^ second[k]), 0) << k;
    }
    SignMerge(first.data(), first.data(), kBytes, i, j, kSeed, 0,
              merged.data());
    ASSERT_EQ(merged, first);
  }
}

TEST_P(SignsTest, CertaintyLeavesNothingToChance) {
  const Bytes first = RandomBytes(1000, 0.5, 1);
  const Bytes second = RandomBytes(1000, 0.5, 2);
  Bytes merged(1000);
  SignMerge(first.data(), second.data(), 1000, kMaxCount - 1, 1, kSeed, 0,
            merged.data());
  EXPECT_EQ(merged, first);
  SignMerge(first.data(), second.data(), 1000, 1, kMaxCount - 1, kSeed, 0,
            merged.data());
  EXPECT_EQ(merged, second);
}

TEST_P(SignsTest, EveryWordOfTheSeedMatters) {
  const Bytes first = RandomBytes(1000, 0.5, 1);
  const Bytes second = RandomBytes(1000, 0.5, 2);
  std::vector<Bytes> results;
  for (const Seed seed : {Seed{0, 0}, Seed{1, 0}, Seed{uint64_t{1} << 32, 0},
                          Seed{0, 1}, Seed{0, uint64_t{1} << 32}}) {
    Bytes merged(1000);
    SignMerge(first.data(), second.data(), 1000, 1, 2, seed, 0, merged.data());
    for (const Bytes& other : results) EXPECT_NE(merged, other);
    results.push_back(merged);
  }
}

TEST_P(SignsTest, ThreadsMayMergeAtOnce) {
  const Bytes first = RandomBytes(50000, 0.5, 1);
  const Bytes second = RandomBytes(50000, 0.5, 2);
  const Bytes expected = ReferenceMerge(first, second, 2, 3, kSeed, 0);
  std::vector<std::thread> threads;
  std::vector<Bytes> results(4, Bytes(50000));
  for (Bytes& merged : results) {
    threads.emplace_back([&] {
      SignMerge(first.data(), second.data(), 50000, 2, 3, kSeed, 0,
                merged.data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Bytes& merged : results) EXPECT_EQ(merged, expected);
}

}  // namespace
}  // namespace tf_gc::kernels
