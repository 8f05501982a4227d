// Lanes of any width.

#include "ops/kernels/lane_packing.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/kernels/bit_packing.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(LanePackingTest, LanesHaveTheBitsOfTheLargest) {
  for (const auto& [largest, bits] :
       std::vector<std::pair<int64_t, int>>{{0, 1},
                                            {1, 1},
                                            {2, 2},
                                            {3, 2},
                                            {255, 8},
                                            {256, 9},
                                            {960, 10},
                                            {65535, 16}}) {
    EXPECT_EQ(LaneBits(largest), bits) << largest;
  }
}

TEST(LanePackingTest, LanesFollowEachOtherFromTheLowestBit) {
  Bytes packed(3);
  PackLanes(std::vector<uint16_t>{0x3ff, 0x001}.data(), 2, 10, packed.data());
  EXPECT_EQ(packed, (Bytes{0xff, 0x07, 0x00}));
}

// Bit by bit.
template <typename Lane>
Bytes SlowPack(const std::vector<Lane>& lanes, int bits) {
  Bytes packed(PackedSize(lanes.size(), bits));
  for (size_t i = 0; i < lanes.size() * bits; ++i) {
    packed[i / 8] |= (lanes[i / bits] >> i % bits & 1) << i % 8;
  }
  return packed;
}

template <typename Lane>
void ExpectPacks(int bits) {
  for (int64_t n = 0; n <= 160; ++n) {
    SCOPED_TRACE(testing::Message() << n << " lanes of " << bits << " bits");
    std::vector<Lane> lanes(n);
    for (int64_t i = 0; i < n; ++i) {
      lanes[i] = static_cast<Lane>((40503 * (i + 1)) & ((1 << bits) - 1));
    }
    const Bytes expected = SlowPack(lanes, bits);
    Guarded<uint8_t> packed(expected.size());
    PackLanes(lanes.data(), n, bits, packed.data());
    EXPECT_EQ(packed.Values(), expected);
    EXPECT_TRUE(packed.GuardsAreIntact());
    Guarded<Lane> unpacked(n);
    UnpackLanes(expected.data(), n, bits, unpacked.data());
    EXPECT_EQ(unpacked.Values(), lanes);
    EXPECT_TRUE(unpacked.GuardsAreIntact());
  }
}

TEST(LanePackingTest, PacksAndUnpacksLanesOfAnyWidth) {
  for (int bits = 1; bits <= 8; ++bits) ExpectPacks<uint8_t>(bits);
  for (int bits = 1; bits <= 16; ++bits) ExpectPacks<uint16_t>(bits);
}

}  // namespace
}  // namespace tf_gc::kernels
