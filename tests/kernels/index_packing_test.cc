#include "ops/kernels/index_packing.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class IndexPackingTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(IndexPackingTest);

using Bytes = std::vector<uint8_t>;
using Indices = std::vector<int32_t>;

constexpr int64_t kMax = 0x7fffffff;

Bytes ToBytes(const std::vector<bool>& bits) {
  Bytes bytes((bits.size() + 7) / 8);
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] |= static_cast<uint8_t>(1 << i % 8);
  }
  return bytes;
}

// All forms, bit by bit, and the first of the smallest.
Bytes Reference(const Indices& indices, int64_t n) {
  const int64_t k = indices.size();
  if (k == 0) return {};
  std::vector<bool> bitmap(n);
  for (const int32_t index : indices) bitmap[index] = true;
  Bytes smallest = ToBytes(bitmap);
  for (int l = 0; l < 32; ++l) {
    if (k + ((n - 1) >> l) + k * l > n) continue;  // Above the bitmap.
    std::vector<bool> upper(k + ((n - 1) >> l)), lower;
    for (int64_t j = 0; j < k; ++j) {
      upper[(int64_t{indices[j]} >> l) + j] = true;
      for (int bit = 0; bit < l; ++bit) lower.push_back(indices[j] >> bit & 1);
    }
    Bytes bytes = ToBytes(upper);
    const Bytes low_bytes = ToBytes(lower);
    bytes.insert(bytes.end(), low_bytes.begin(), low_bytes.end());
    if (bytes.size() < smallest.size()) smallest = bytes;
  }
  return smallest;
}

Indices RandomIndices(int64_t k, int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  Indices indices;
  int64_t left = k;
  for (int64_t i = 0; i < n && left > 0; ++i) {
    if (static_cast<int64_t>(generator() % static_cast<uint32_t>(n - i)) <
        left) {
      indices.push_back(static_cast<int32_t>(i));
      --left;
    }
  }
  return indices;
}

Bytes Pack(const Indices& indices, int64_t n, int misalignment = 0) {
  const int64_t k = indices.size();
  EXPECT_EQ(FindNotAscending(indices.data(), k, n), -1);
  Guarded<int32_t> in(indices, 4 * misalignment);
  Guarded<uint8_t> packed(PackedIndicesSize(k, n), misalignment);
  PackIndices(in.data(), k, n, packed.data());
  EXPECT_TRUE(packed.GuardsAreIntact());
  return packed.Values();
}

// The indices, or no index and the error.
struct Unpacked {
  Indices indices;
  std::string error;
};

Unpacked Unpack(const Bytes& packed, int64_t k, int64_t n,
                int misalignment = 0) {
  EXPECT_EQ(static_cast<int64_t>(packed.size()), PackedIndicesSize(k, n));
  // No byte behind them may be read: under AddressSanitizer this is exact.
  const std::unique_ptr<uint8_t[]> in(new uint8_t[packed.size()]);
  std::copy(packed.begin(), packed.end(), in.get());
  Guarded<int32_t> indices(k, 4 * misalignment);
  const char* const error = UnpackIndices(in.get(), k, n, indices.data());
  EXPECT_TRUE(indices.GuardsAreIntact());
  if (error != nullptr) return {{}, error};
  return {indices.Values(), ""};
}

void ExpectPacks(const Indices& indices, int64_t n, int misalignment = 0) {
  const Bytes packed = Pack(indices, n, misalignment);
  ASSERT_EQ(packed, Reference(indices, n)) << indices.size() << " " << n;
  const Unpacked unpacked = Unpack(packed, indices.size(), n, misalignment);
  ASSERT_EQ(unpacked.error, "") << indices.size() << " " << n;
  ASSERT_EQ(unpacked.indices, indices) << n;
}

TEST_P(IndexPackingTest, PacksByHand) {
  // 3 of 8 as a bitmap; no form is smaller.
  EXPECT_EQ(Pack({0, 3, 7}, 8), Bytes{0b10001001});
  // 2 of 100 with l = 4: bits (5 >> 4) + 0 = 0 and (70 >> 4) + 1 = 5 of 2 + 6,
  // low bits 5 and 70 - 64 = 6. No other form has less than 3 bytes.
  EXPECT_EQ(PackedIndicesForm(2, 100), 4);
  EXPECT_EQ(Pack({5, 70}, 100), (Bytes{0b100001, 0x65}));
  EXPECT_EQ(Pack({}, 100), Bytes{});
  EXPECT_EQ(Pack({}, 0), Bytes{});
  EXPECT_EQ(Pack({0}, 1), Bytes{1});
}

TEST_P(IndexPackingTest, AllSmallSets) {
  for (int64_t n = 0; n <= 11; ++n) {
    for (int set = 0; set < 1 << n; ++set) {
      Indices indices;
      for (int i = 0; i < n; ++i) {
        if (set >> i & 1) indices.push_back(i);
      }
      ExpectPacks(indices, n);
    }
  }
}

TEST_P(IndexPackingTest, AllSizesUpTo300) {
  for (int64_t n = 0; n <= 300; ++n) {
    for (int64_t k = 0; k <= n; k += 1 + n / 17) {
      ExpectPacks(RandomIndices(k, n, n), n, n % 8);
    }
    ExpectPacks(RandomIndices(n, n, n), n, n % 8);
  }
}

TEST_P(IndexPackingTest, ManyDensities) {
  constexpr int64_t kN = 20011;
  for (const int64_t k : {1, 2, 10, 50, 100, 200, 1000, 2000, 4000, 5003, 8000,
                          10006, 18000, 20010, 20011}) {
    ExpectPacks(RandomIndices(k, kN, k), kN);
    // All at one end.
    Indices first(k), last(k);
    std::iota(first.begin(), first.end(), 0);
    std::iota(last.begin(), last.end(), static_cast<int32_t>(kN - k));
    ExpectPacks(first, kN);
    ExpectPacks(last, kN);
  }
}

TEST_P(IndexPackingTest, TheLargestIndices) {
  for (const Indices& indices :
       {Indices{0}, Indices{0x7ffffffe}, Indices{0, 0x7ffffffe},
        Indices{1, 2, 3, 0x40000000, 0x7ffffffd, 0x7ffffffe}}) {
    const Bytes packed = Pack(indices, kMax);
    EXPECT_LT(packed.size(), 30);
    const Unpacked unpacked = Unpack(packed, indices.size(), kMax);
    EXPECT_EQ(unpacked.error, "");
    EXPECT_EQ(unpacked.indices, indices);
  }
}

TEST(IndexPackingSizeTest, IsThatOfTheSmallestForm) {
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{1} << 24, kMax}) {
    for (int64_t k = 1; k <= n; k += 1 + k / 2) {
      int64_t smallest = (n + 7) / 8;
      for (int l = 0; l < 32; ++l) {
        smallest =
            std::min(smallest, (k + ((n - 1) >> l) + 7) / 8 + (k * l + 7) / 8);
      }
      EXPECT_EQ(PackedIndicesSize(k, n), smallest) << k << " " << n;
    }
    EXPECT_EQ(PackedIndicesSize(0, n), 0);
    EXPECT_EQ(PackedIndicesSize(n, n), (n + 7) / 8);
  }
}

TEST(IndexPackingSizeTest, OneInAHundredTakesNineBitsAtMost) {
  for (const int64_t n : {int64_t{100000}, int64_t{123456}, int64_t{1} << 20,
                          int64_t{1} << 24, int64_t{1000000007}, kMax}) {
    const int64_t k = n / 100;
    EXPECT_LE(8 * PackedIndicesSize(k, n), 9 * k) << n;
    EXPECT_LE(8.0 * PackedIndicesSize(n / 10, n), 5.26 * (n / 10)) << n;
    EXPECT_LE(8.0 * PackedIndicesSize(n / 4, n), 4.01 * (n / 4)) << n;
    EXPECT_LE(8.0 * PackedIndicesSize(n / 2, n), 2.01 * (n / 2)) << n;
  }
}

TEST_P(IndexPackingTest, WhatDoesNotAscendIsFound) {
  for (const int64_t k : {1, 2, 15, 16, 17, 33, 100}) {
    Indices good(k);
    for (int64_t j = 0; j < k; ++j) good[j] = static_cast<int32_t>(2 * j);
    const int64_t n = 2 * k;
    for (int64_t j = 0; j < k; ++j) {
      for (const int32_t wrong :
           {-1, static_cast<int32_t>(n), INT32_MAX, INT32_MIN}) {
        Indices bad = good;
        bad[j] = wrong;
        ASSERT_EQ(FindNotAscending(bad.data(), k, n), j) << wrong;
      }
      if (j == 0) continue;
      Indices bad = good;
      bad[j] = bad[j - 1];
      ASSERT_EQ(FindNotAscending(bad.data(), k, n), j);
      bad[j] = bad[j - 1] - 1;
      ASSERT_EQ(FindNotAscending(bad.data(), k, n), j);
    }
  }
}

// Of all bytes that Unpack gets, it accepts what Pack writes, and says what is
// wrong with the rest.
TEST_P(IndexPackingTest, EveryOtherStringIsRefused) {
  for (const auto& [k, n] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 5}, {2, 9}, {3, 13}, {1, 40}, {2, 60}, {1, 1000}, {1, 14}}) {
    const int64_t size = PackedIndicesSize(k, n);
    ASSERT_LE(size, 2) << k << " " << n;
    for (int word = 0; word < 1 << (8 * size); ++word) {
      Bytes packed;
      for (int64_t i = 0; i < size; ++i) packed.push_back(word >> 8 * i);
      const Unpacked unpacked = Unpack(packed, k, n);
      if (unpacked.error.empty()) {
        ASSERT_EQ(Pack(unpacked.indices, n), packed);
      }
    }
  }
}

TEST_P(IndexPackingTest, EveryFlippedBitOfALargeSetIsRefusedOrAnotherSet) {
  for (const int64_t k : {50, 400, 1500}) {
    constexpr int64_t kN = 3001;
    const Bytes packed = Pack(RandomIndices(k, kN, 1), kN);
    for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
      Bytes bad = packed;
      bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Unpacked unpacked = Unpack(bad, k, kN);
      if (unpacked.error.empty()) {
        ASSERT_EQ(Pack(unpacked.indices, kN), bad);
      }
    }
  }
}

TEST_P(IndexPackingTest, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(Unpack({0b10001011}, 3, 8).error,
            "has more bits that are 1 than indices");
  EXPECT_EQ(Unpack({0b10001000}, 3, 8).error,
            "has fewer bits that are 1 than indices");
  EXPECT_EQ(Unpack({0b10001001}, 3, 7).error, "has padding that is not 0");
  // 2 of 60: l = 4, 2 + 3 upper bits and 8 low bits.
  EXPECT_EQ(Unpack({0b100001, 0}, 2, 60).error, "has padding that is not 0");
  EXPECT_EQ(Unpack({0b11, 0x44}, 2, 60).error,
            "has indices that do not ascend");
  EXPECT_EQ(Unpack({0b10001, 0xc4}, 2, 60).error,
            "has an index that is too large");
  EXPECT_EQ(Unpack({0b10001, 0xb4}, 2, 60).indices, (Indices{4, 59}));
  // 1 of 1000: l = 7, 1 + 7 upper bits and 7 low bits.
  EXPECT_EQ(Unpack({1, 0x80}, 1, 1000).error, "has padding that is not 0");
  EXPECT_EQ(Unpack({0x80, 104}, 1, 1000).error,
            "has an index that is too large");
  EXPECT_EQ(Unpack({0x80, 103}, 1, 1000).indices, Indices{999});
}

}  // namespace
}  // namespace tf_gc::kernels
