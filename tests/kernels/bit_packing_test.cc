#include "ops/kernels/bit_packing.h"

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class BitPackingTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(BitPackingTest);

using Bytes = std::vector<uint8_t>;

constexpr int kAllBits[] = {2, 3, 4, 5, 8};

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (int64_t n : {1023, 1024, 1025, 65536, 100003}) sizes.push_back(n);
  return sizes;
}

Bytes RandomIndices(int64_t n, int bits, uint32_t seed) {
  std::mt19937 generator(seed);
  Bytes indices(n);
  for (uint8_t& index : indices) index = generator() % (1 << bits);
  return indices;
}

// Bit by bit.
Bytes ReferencePack(const Bytes& indices, int bits) {
  Bytes packed((indices.size() * bits + 7) / 8);
  for (size_t b = 0; b < indices.size() * bits; ++b) {
    const int bit = indices[b / bits] >> (b % bits) & 1;
    packed[b / 8] |= bit << (b % 8);
  }
  return packed;
}

TEST_P(BitPackingTest, BitsByHand) {
  const uint8_t indices[] = {0b101, 0b001, 0b110};
  uint8_t packed[2];
  PackBits(indices, 3, 3, packed);
  EXPECT_EQ(packed[0], 0b10'001'101);
  EXPECT_EQ(packed[1], 0b1);
  uint8_t nibbles[2];
  PackBits(indices, 3, 4, nibbles);
  EXPECT_EQ(nibbles[0], 0x15);
  EXPECT_EQ(nibbles[1], 0x06);
}

TEST(BitPackingSizeTest, SizesAreRoundedUpToBytes) {
  EXPECT_EQ(PackedSize(0, 5), 0);
  EXPECT_EQ(PackedSize(1, 2), 1);
  EXPECT_EQ(PackedSize(3, 3), 2);
  EXPECT_EQ(PackedSize(8, 5), 5);
  EXPECT_EQ(PackedSize(9, 5), 6);
  EXPECT_EQ(PackedSize(7, 8), 7);
  EXPECT_EQ(PackedSize(INT64_MAX, 8), INT64_MAX);
  EXPECT_EQ(PackedSize(INT64_MAX, 4), INT64_MAX / 2 + 1);
}

TEST(BitPackingSizeTest, SomeBitsCannotBePacked) {
  for (const int bits : kAllBits) EXPECT_TRUE(IsPackableBits(bits));
  for (const int64_t bits : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{6},
                             int64_t{7}, int64_t{9}, (int64_t{1} << 32) + 4}) {
    EXPECT_FALSE(IsPackableBits(bits)) << bits;
  }
}

TEST_P(BitPackingTest, PackingAgreesWithTheReferenceAtAnyAlignment) {
  for (const int bits : kAllBits) {
    for (const int64_t n : Sizes()) {
      const Bytes indices = RandomIndices(n, bits, n);
      Guarded<uint8_t> in(indices, n % 7);
      Guarded<uint8_t> packed(PackedSize(n, bits), n % 5);
      PackBits(in.data(), n, bits, packed.data());
      ASSERT_EQ(packed.Values(), ReferencePack(indices, bits))
          << n << " " << bits;
      ASSERT_TRUE(packed.GuardsAreIntact()) << n << " " << bits;
    }
  }
}

TEST_P(BitPackingTest, UnpackingInvertsPackingAndReadsNoFurther) {
  for (const int bits : kAllBits) {
    for (const int64_t n : Sizes()) {
      const Bytes indices = RandomIndices(n, bits, n + 1);
      // Right before the end of an allocation.
      const Bytes packed = ReferencePack(indices, bits);
      Guarded<uint8_t> out(n, n % 7);
      UnpackBits(packed.data(), n, bits, out.data());
      ASSERT_EQ(out.Values(), indices) << n << " " << bits;
      ASSERT_TRUE(out.GuardsAreIntact()) << n << " " << bits;
    }
  }
}

TEST_P(BitPackingTest, PartsOfEightsAreTheWhole) {
  constexpr int64_t n = 1003;
  for (const int bits : kAllBits) {
    const Bytes indices = RandomIndices(n, bits, 5);
    const Bytes expected = ReferencePack(indices, bits);
    for (int64_t cut = 0; cut < n; cut += 8) {
      Bytes packed(PackedSize(n, bits)), unpacked(n);
      uint8_t* const upper = packed.data() + cut / 8 * bits;
      PackBits(indices.data() + cut, n - cut, bits, upper);
      PackBits(indices.data(), cut, bits, packed.data());
      ASSERT_EQ(packed, expected) << cut << " " << bits;
      UnpackBits(upper, n - cut, bits, unpacked.data() + cut);
      UnpackBits(packed.data(), cut, bits, unpacked.data());
      ASSERT_EQ(unpacked, indices) << cut << " " << bits;
    }
  }
}

TEST_P(BitPackingTest, FindsTheFirstIndexThatDoesNotFit) {
  for (const int bits : {2, 3, 4, 5}) {
    Bytes indices = RandomIndices(3000, bits, 6);
    EXPECT_EQ(FindUnpackable(indices.data(), 3000, bits), -1);
    indices[2999] = 255;
    EXPECT_EQ(FindUnpackable(indices.data(), 3000, bits), 2999);
    indices[7] = 1 << bits;
    EXPECT_EQ(FindUnpackable(indices.data(), 3000, bits), 7);
  }
  const Bytes all = {255, 128};
  EXPECT_EQ(FindUnpackable(all.data(), 2, 8), -1);
  EXPECT_EQ(FindUnpackable(nullptr, 0, 2), -1);
}

TEST(BitPackingPaddingTest, PaddingIsZeroOrNot) {
  // Three values of 3 bits take 9 bits.
  uint8_t packed[2] = {0xff, 0x01};
  EXPECT_TRUE(PaddingIsZero(packed, 3, 3));
  packed[1] = 0x03;
  EXPECT_FALSE(PaddingIsZero(packed, 3, 3));
  packed[1] = 0x80;
  EXPECT_FALSE(PaddingIsZero(packed, 3, 3));
  // None.
  packed[1] = 0xff;
  EXPECT_TRUE(PaddingIsZero(packed, 4, 4));
  EXPECT_TRUE(PaddingIsZero(packed, 2, 8));
  EXPECT_TRUE(PaddingIsZero(nullptr, 0, 3));
}

}  // namespace
}  // namespace tf_gc::kernels
