#include "ops/cuda/signs.h"

#include <cmath>
#include <limits>

#include "ops/kernels/signs.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::Bits;
using kernels::Seed;
using kernels::SignPackedSize;

constexpr Seed kSeed = {0x123456789abcdef0, 0xfedcba9876543210};

// Numbers of all kinds, both signs of each.
std::vector<float> RandomValues(int64_t n, uint32_t seed) {
  const float kinds[] = {0,
                         1,
                         1e-42f,
                         std::numeric_limits<float>::max(),
                         std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 generator(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    const float magnitude = kinds[generator() % 6];
    value = generator() % 2 ? magnitude : -magnitude;
  }
  return values;
}

std::vector<uint8_t> RandomBytes(int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

std::vector<uint8_t> Pack(const std::vector<float>& values) {
  std::vector<uint8_t> packed(SignPackedSize(values.size()));
  kernels::SignPack(values.data(), values.size(), packed.data());
  return packed;
}

TEST(SignsTest, PacksAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<float> values = RandomValues(n, 1);
    Device<float> in(values, 4 * (n % 5));
    Device<uint8_t> packed(SignPackedSize(n), n % 13);
    ASSERT_EQ(tf_gc_cuda_sign_pack(in.data(), n, packed.data(), nullptr), 0);
    ASSERT_EQ(packed.Values(), Pack(values)) << n;
  }
}

TEST(SignsTest, UnpacksAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<uint8_t> packed = Pack(RandomValues(n, 2));
    std::vector<float> expected(n);
    kernels::SignUnpack(packed.data(), n, expected.data());
    Device<uint8_t> in(packed, n % 13);
    Device<float> values(n, 4 * (n % 5));
    Device<int64_t> padding(1);
    ASSERT_EQ(tf_gc_cuda_sign_unpack(in.data(), n, values.data(),
                                     padding.data(), nullptr),
              0);
    ASSERT_EQ(Bits(values.Values()), Bits(expected)) << n;
    ASSERT_EQ(padding.Value(), 0) << n;
  }
}

TEST(SignsTest, FindsPaddingThatIsNotZero) {
  for (const int64_t n : Sizes()) {
    for (int bit = n % 8; n % 8 != 0 && bit < 8; ++bit) {
      std::vector<uint8_t> packed = Pack(RandomValues(n, 3));
      packed.back() |= 1 << bit;
      Device<uint8_t> in(packed, n % 13);
      Device<float> values(n);
      Device<int64_t> padding(1);
      ASSERT_EQ(tf_gc_cuda_sign_unpack(in.data(), n, values.data(),
                                       padding.data(), nullptr),
                0);
      ASSERT_EQ(padding.Value(), 1) << n << " " << bit;
    }
  }
}

struct Counts {
  int64_t first;
  int64_t second;
};

// Thresholds with all numbers of planes, with and without low bits, and those
// that round to 0 and to 2^19.
constexpr Counts kCounts[] = {{1, 1},          {1, 3},         {7, 1}, {3, 5},
                              {2, 1},          {5, 8},         {1, 6}, {9, 1},
                              {1, 0x7ffffffe}, {0x7ffffffe, 1}};

void ExpectMerged(const std::vector<uint8_t>& first,
                  const std::vector<uint8_t>& second, const Counts& counts,
                  int64_t first_byte, int misalignment) {
  const int64_t size = first.size();
  std::vector<uint8_t> expected(size);
  kernels::SignMerge(first.data(), second.data(), size, counts.first,
                     counts.second, kSeed, first_byte, expected.data());
  Device<uint8_t> a(first, misalignment), b(second, misalignment * 5 % 16);
  Device<uint8_t> merged(size, misalignment * 3 % 16);
  ASSERT_EQ(tf_gc_cuda_sign_merge(a.data(), b.data(), size, counts.first,
                                  counts.second, kSeed.key, kSeed.stream,
                                  first_byte, merged.data(), nullptr),
            0);
  ASSERT_EQ(merged.Values(), expected)
      << size << " bytes, counts " << counts.first << " and " << counts.second;
}

TEST(SignsTest, MergesAsTheCpuDoesAtAnyAlignment) {
  for (int64_t size = 0; size <= 300; ++size) {
    ExpectMerged(RandomBytes(size, 4), RandomBytes(size, 5),
                 kCounts[size % std::size(kCounts)], 0,
                 size % 3 ? 0 : size % 16);
  }
}

TEST(SignsTest, MergesWithAnyCountsAndOffset) {
  for (const Counts& counts : kCounts) {
    ExpectMerged(RandomBytes(20011, 6), RandomBytes(20011, 7), counts,
                 int64_t{16} << 40, 0);
  }
}

TEST(SignsTest, MergesOppositeSigns) {
  // Many undecided values in each group, up to all of them.
  for (const Counts& counts : kCounts) {
    const std::vector<uint8_t> zeros(100000, 0), ones(100000, 255);
    ExpectMerged(zeros, ones, counts, 0, 0);
    ExpectMerged(ones, zeros, counts, 160, 1);
  }
}

TEST(SignsTest, MergesInPlace) {
  const std::vector<uint8_t> first = RandomBytes(1003, 8);
  const std::vector<uint8_t> second = RandomBytes(1003, 9);
  std::vector<uint8_t> expected(1003);
  kernels::SignMerge(first.data(), second.data(), 1003, 2, 3, kSeed, 0,
                     expected.data());
  for (const bool into_first : {true, false}) {
    Device<uint8_t> a(first), b(second);
    Device<uint8_t>& merged = into_first ? a : b;
    ASSERT_EQ(tf_gc_cuda_sign_merge(a.data(), b.data(), 1003, 2, 3, kSeed.key,
                                    kSeed.stream, 0, merged.data(), nullptr),
              0);
    EXPECT_EQ(merged.Values(), expected);
  }
}

}  // namespace
}  // namespace tf_gc::cuda
