#include <cmath>
#include <limits>

#include "ops/cuda/bit_packing.h"
#include "ops/cuda/stochastic_quantize.h"
#include "ops/cuda/table_sum.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::PackedSize;
using kernels::Seed;

constexpr int kBits[] = {2, 3, 4, 5, 8};
constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

template <typename T>
std::vector<T> RandomIntegers(int64_t n, uint32_t limit, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<T> integers(n);
  for (T& integer : integers) integer = static_cast<T>(generator() % limit);
  return integers;
}

// ---- Packing ----------------------------------------------------------------

TEST(BitPackingTest, PacksAsTheCpuDoesAtAnyAlignment) {
  for (const int bits : kBits) {
    for (const int64_t n : Sizes()) {
      const auto indices = RandomIntegers<uint8_t>(n, 1 << bits, 1);
      std::vector<uint8_t> expected(PackedSize(n, bits));
      kernels::PackBits(indices.data(), n, bits, expected.data());
      for (const int misalignment : {0, static_cast<int>(n % 16)}) {
        Device<uint8_t> in(indices, misalignment);
        Device<uint8_t> out(PackedSize(n, bits), n % 13 * misalignment % 16);
        ASSERT_EQ(tf_gc_cuda_pack_bits(in.data(), n, bits, out.data(), nullptr),
                  0);
        ASSERT_EQ(out.Values(), expected) << n << " of " << bits << " bits";
      }
    }
  }
}

TEST(BitPackingTest, UnpacksAnyBytesAsTheCpuDoesAtAnyAlignment) {
  for (const int bits : kBits) {
    for (const int64_t n : Sizes()) {
      const auto packed = RandomIntegers<uint8_t>(PackedSize(n, bits), 256, 2);
      std::vector<uint8_t> expected(n);
      kernels::UnpackBits(packed.data(), n, bits, expected.data());
      for (const int misalignment : {0, static_cast<int>(n % 16)}) {
        Device<uint8_t> in(packed, misalignment);
        Device<uint8_t> out(n, n % 13 * misalignment % 16);
        ASSERT_EQ(
            tf_gc_cuda_unpack_bits(in.data(), n, bits, out.data(), nullptr), 0);
        ASSERT_EQ(out.Values(), expected) << n << " of " << bits << " bits";
      }
    }
  }
}

TEST(BitPackingTest, PackingIndicesThatAreTooLargeStaysInside) {
  for (const int bits : kBits) {
    for (const int64_t n : {1, 13, 300, 10241}) {
      Device<uint8_t> in(std::vector<uint8_t>(n, 255), n % 16);
      Device<uint8_t> out(PackedSize(n, bits), n % 13);
      ASSERT_EQ(tf_gc_cuda_pack_bits(in.data(), n, bits, out.data(), nullptr),
                0);
    }
  }
}

TEST(BitPackingTest, FindsTheFirstIndexThatIsTooLarge) {
  for (const int bits : kBits) {
    for (const int64_t n : Sizes()) {
      auto indices = RandomIntegers<uint8_t>(n, 1 << bits, 3);
      for (int turn = 0; turn < 3; ++turn) {
        Device<uint8_t> in(indices, n % 16);
        Device<int64_t> first(1);
        ASSERT_EQ(tf_gc_cuda_find_unpackable(in.data(), n, bits, first.data(),
                                             nullptr),
                  0);
        ASSERT_EQ(first.Value(),
                  kernels::FindUnpackable(indices.data(), n, bits))
            << n << " of " << bits << " bits";
        if (n > 0) indices[(n - 1) / (turn + 1)] = 1 << bits % 8;
      }
    }
  }
}

TEST(BitPackingTest, FindsPaddingThatIsNotZero) {
  for (const int bits : kBits) {
    for (int64_t n = 0; n <= 20; ++n) {
      const int64_t size = PackedSize(n, bits);
      for (int last = 0; last < 256; last += size > 0 ? 1 : 256) {
        std::vector<uint8_t> packed(size, 255);
        if (size > 0) packed.back() = static_cast<uint8_t>(last);
        Device<uint8_t> in(packed);
        Device<int64_t> is_zero(1);
        ASSERT_EQ(tf_gc_cuda_padding_is_zero(in.data(), n, bits, is_zero.data(),
                                             nullptr),
                  0);
        ASSERT_EQ(is_zero.Value(),
                  kernels::PaddingIsZero(packed.data(), n, bits))
            << n << " of " << bits << " bits, " << last;
      }
    }
  }
}

TEST(BitPackingTest, OtherBitsAreRefused) {
  Device<uint8_t> bytes(16);
  for (const int bits : {-1, 0, 1, 6, 7, 9}) {
    EXPECT_NE(
        tf_gc_cuda_pack_bits(bytes.data(), 8, bits, bytes.data() + 8, nullptr),
        0);
    EXPECT_NE(tf_gc_cuda_unpack_bits(bytes.data(), 8, bits, bytes.data() + 8,
                                     nullptr),
              0);
  }
}

// ---- Stochastic quantisation ------------------------------------------------

// Ascending; some are equal.
std::vector<float> RandomLevels(int count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distance(0, 4.0f / count);
  std::vector<float> levels(count);
  float level = -2;
  for (float& next : levels) {
    next = level;
    if (generator() % 8 != 0) level += distance(generator);
  }
  return levels;
}

// Among them special ones, and levels.
std::vector<float> RandomValues(int64_t n, const std::vector<float>& levels,
                                uint32_t seed) {
  const float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min(),
                            -0.0f,
                            0.0f};
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) {
    value = normal(generator);
    if (generator() % 8 == 0) value = kSpecial[generator() % 7];
    if (generator() % 8 == 0) value = levels[generator() % levels.size()];
  }
  return values;
}

void ExpectTheSameIndices(const std::vector<float>& values,
                          const std::vector<float>& levels, int64_t first,
                          int misalignment) {
  const int64_t n = static_cast<int64_t>(values.size());
  const int num_levels = static_cast<int>(levels.size());
  SCOPED_TRACE(testing::Message()
               << n << " values from " << first << " on, " << num_levels
               << " levels, misalignment " << misalignment);
  std::vector<uint8_t> expected(n);
  kernels::StochasticQuantize(values.data(), n, levels.data(), num_levels,
                              kSeed, first, expected.data());
  Device<float> in(values, misalignment / 4 * 4);
  Device<uint8_t> indices(n, misalignment);
  ASSERT_EQ(tf_gc_cuda_stochastic_quantize(in.data(), n, levels.data(),
                                           num_levels, kSeed.key, kSeed.stream,
                                           first, indices.data(), nullptr),
            0);
  ASSERT_EQ(indices.Values(), expected);
  for (const int bits : kBits) {
    if (num_levels > 1 << bits) continue;
    std::vector<uint8_t> expected_bytes(PackedSize(n, bits));
    kernels::PackBits(expected.data(), n, bits, expected_bytes.data());
    Device<uint8_t> packed(PackedSize(n, bits), misalignment);
    ASSERT_EQ(tf_gc_cuda_stochastic_quantize_pack(
                  in.data(), n, levels.data(), num_levels, kSeed.key,
                  kSeed.stream, first, bits, packed.data(), nullptr),
              0);
    ASSERT_EQ(packed.Values(), expected_bytes) << bits << " bits";
  }
}

TEST(StochasticQuantizeTest, AnySizeAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<float> levels =
        RandomLevels(n % 2 ? 16 : 4, static_cast<uint32_t>(n));
    const std::vector<float> values = RandomValues(n, levels, 1);
    ExpectTheSameIndices(values, levels, 0, 0);
    ExpectTheSameIndices(values, levels, 0, static_cast<int>(n % 16));
  }
}

TEST(StochasticQuantizeTest, AnyNumberOfLevels) {
  for (int num_levels = 2; num_levels <= 256; ++num_levels) {
    const std::vector<float> levels = RandomLevels(num_levels, num_levels);
    ExpectTheSameIndices(RandomValues(999, levels, 2), levels, 0, 0);
  }
}

TEST(StochasticQuantizeTest, AnyPlaceInTheStream) {
  const std::vector<float> levels = RandomLevels(8, 3);
  const std::vector<float> values = RandomValues(1000, levels, 3);
  for (const int64_t first :
       {int64_t{8}, int64_t{8000}, (int64_t{1} << 35) - 80,
        (int64_t{1} << 60) - 800}) {
    ExpectTheSameIndices(values, levels, first, 0);
  }
}

TEST(StochasticQuantizeTest, LevelsWithoutOrWithInfiniteDistance) {
  const float max = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::vector<float>> all_levels = {
      {0, 0},        {1, 1, 1, 1}, {-max, max},         {-max, 0, max},
      {-0.0f, 0.0f}, {0, tiny},    {0, tiny, 2 * tiny}, {-1, 0, 0, 0, 1}};
  for (const std::vector<float>& levels : all_levels) {
    ExpectTheSameIndices(RandomValues(500, levels, 4), levels, 0, 0);
  }
}

// ---- Table sums -------------------------------------------------------------

int CudaTableSum(const uint8_t* packed, int64_t n, const uint8_t* table,
                 int bits, const uint8_t* accumulator, uint8_t* sums) {
  return tf_gc_cuda_table_sum_uint8(packed, n, table, bits, accumulator, sums,
                                    nullptr);
}
int CudaTableSum(const uint8_t* packed, int64_t n, const uint16_t* table,
                 int bits, const uint16_t* accumulator, uint16_t* sums) {
  return tf_gc_cuda_table_sum_uint16(packed, n, table, bits, accumulator, sums,
                                     nullptr);
}

template <typename T>
class TableSumTest : public testing::Test {};

using Lanes = testing::Types<uint8_t, uint16_t>;
TYPED_TEST_SUITE(TableSumTest, Lanes);

TYPED_TEST(TableSumTest, AddsAsTheCpuDoesAtAnyAlignment) {
  using T = TypeParam;
  constexpr int kSize = sizeof(T);
  for (const int bits : kBits) {
    const auto table = RandomIntegers<T>(1 << bits, 1 << (8 * kSize), 5);
    for (const int64_t n : Sizes()) {
      const auto packed = RandomIntegers<uint8_t>(PackedSize(n, bits), 256, 6);
      const auto accumulator = RandomIntegers<T>(n, 1 << (8 * kSize), 7);
      std::vector<T> expected = accumulator;
      kernels::TableSum(packed.data(), n, table.data(), bits, expected.data());
      for (const int misalignment : {0, static_cast<int>(n % 16)}) {
        Device<uint8_t> in(packed, misalignment);
        Device<T> terms(accumulator, misalignment / kSize * kSize);
        Device<T> sums(n, n % 7 * misalignment % 16 / kSize * kSize);
        ASSERT_EQ(CudaTableSum(in.data(), n, table.data(), bits, terms.data(),
                               sums.data()),
                  0);
        ASSERT_EQ(sums.Values(), expected) << n << " of " << bits << " bits";
        ASSERT_EQ(terms.Values(), accumulator);
        ASSERT_EQ(CudaTableSum(in.data(), n, table.data(), bits, terms.data(),
                               terms.data()),
                  0);
        ASSERT_EQ(terms.Values(), expected) << n << " of " << bits << " bits";
      }
    }
  }
}

}  // namespace
}  // namespace tf_gc::cuda
