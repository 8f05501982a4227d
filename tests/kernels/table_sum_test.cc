#include "ops/kernels/table_sum.h"

#include "ops/kernels/bit_packing.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class TableSumTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(TableSumTest);

constexpr int kAllBits[] = {2, 3, 4, 5, 8};

template <typename T>
std::vector<T> Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(generator());
  return values;
}

// Bit by bit, in wide integers.
template <typename Lane>
std::vector<Lane> ReferenceSum(const std::vector<uint8_t>& packed,
                               const std::vector<Lane>& table, int bits,
                               const std::vector<Lane>& accumulator) {
  std::vector<Lane> sums(accumulator.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    int z = 0;
    for (int bit = 0; bit < bits; ++bit) {
      const size_t b = bits * i + bit;
      z |= (packed[b / 8] >> (b % 8) & 1) << bit;
    }
    sums[i] = static_cast<Lane>(int64_t{accumulator[i]} + table[z]);
  }
  return sums;
}

template <typename Lane>
void ExpectSums() {
  for (const int bits : kAllBits) {
    const std::vector<Lane> table = Random<Lane>(1 << bits, bits);
    for (int64_t n = 0; n <= 300; ++n) {
      // Any bytes, padding too, right before the end of an allocation.
      const std::vector<uint8_t> packed =
          Random<uint8_t>(PackedSize(n, bits), n);
      const std::vector<Lane> accumulator = Random<Lane>(n, n + 1);
      Guarded<Lane> sums(accumulator, n % 7 * sizeof(Lane));
      TableSum(packed.data(), n, table.data(), bits, sums.data());
      ASSERT_EQ(sums.Values(), ReferenceSum(packed, table, bits, accumulator))
          << n << " " << bits;
      ASSERT_TRUE(sums.GuardsAreIntact()) << n << " " << bits;
    }
  }
}

template <typename Lane>
void ExpectPartsAreTheWhole() {
  constexpr int64_t n = 1003;
  for (const int bits : kAllBits) {
    const std::vector<Lane> table = Random<Lane>(1 << bits, bits);
    const std::vector<uint8_t> packed = Random<uint8_t>(PackedSize(n, bits), 1);
    const std::vector<Lane> accumulator = Random<Lane>(n, 2);
    const std::vector<Lane> expected =
        ReferenceSum(packed, table, bits, accumulator);
    for (int64_t cut = 0; cut < n; cut += 8) {
      std::vector<Lane> sums = accumulator;
      TableSum(packed.data() + cut / 8 * bits, n - cut, table.data(), bits,
               sums.data() + cut);
      TableSum(packed.data(), cut, table.data(), bits, sums.data());
      ASSERT_EQ(sums, expected) << cut << " " << bits;
    }
  }
}

TEST_P(TableSumTest, ByHand) {
  // The indices 0, 1, 2, 3, 3.
  const uint8_t packed[] = {0b11'10'01'00, 0b11};
  const uint8_t table[] = {0, 2, 3, 4};
  uint8_t sums[] = {10, 10, 10, 10, 255};
  TableSum(packed, 5, table, 2, sums);
  EXPECT_EQ((std::vector<uint8_t>(sums, sums + 5)),
            (std::vector<uint8_t>{10, 12, 13, 14, 3}));
  const uint16_t wide_table[] = {0, 300, 65535, 4};
  uint16_t wide_sums[] = {10, 10, 10, 65535, 255};
  TableSum(packed, 5, wide_table, 2, wide_sums);
  EXPECT_EQ((std::vector<uint16_t>(wide_sums, wide_sums + 5)),
            (std::vector<uint16_t>{10, 310, 9, 3, 259}));
}

TEST_P(TableSumTest, SumsOfBytesAgreeWithTheReference) {
  ExpectSums<uint8_t>();
}

TEST_P(TableSumTest, SumsOfWordsAgreeWithTheReference) {
  ExpectSums<uint16_t>();
}

TEST_P(TableSumTest, PartsOfEightsAreTheWhole) {
  ExpectPartsAreTheWhole<uint8_t>();
  ExpectPartsAreTheWhole<uint16_t>();
}

}  // namespace
}  // namespace tf_gc::kernels
