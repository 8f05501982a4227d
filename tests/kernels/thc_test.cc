#include "ops/kernels/thc.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr Seed kSigns = {1, 2}, kRounding = {3, 4};

TEST(ThcTest, BlocksAreTheLargestThatNeedLittlePadding) {
  const auto expect = [](int64_t n, int64_t size, int64_t count) {
    const ThcBlocks blocks(n);
    EXPECT_EQ(blocks.size, size) << n;
    EXPECT_EQ(blocks.count, count) << n;
  };
  expect(0, 65536, 0);
  expect(1, 64, 1);
  expect(64, 64, 1);
  expect(65, 64, 2);
  expect(128, 128, 1);
  expect(1000, 64, 16);
  expect(65536, 65536, 1);
  expect(65535, 65536, 1);  // one value of padding
  expect(65536 - 512, 512, 127);
  expect(65536 - 508, 65536, 1);  // 508 <= 65028 / 128
  EXPECT_EQ(ThcBlocks::OfAtMost(4096, 65536).size, 4096);
  EXPECT_EQ(ThcBlocks::OfAtMost(4096, 65536 - 512).size, 512);
}

TEST(ThcTest, TableGivesItsBitsAndLevels) {
  const ThcTable table({0, 2, 3, 6});
  EXPECT_EQ(table.bits, 2);
  EXPECT_EQ(table.granularity(), 6);
  EXPECT_EQ(table.levels, (Floats{-1, static_cast<float>(-1 / 3.0), 0, 1}));
}

// A vector in blocks, each with a limit of its own.
struct Vector {
  explicit Vector(int64_t n) : blocks(n), values(blocks.padded()) {
    for (int64_t i = 0; i < n; ++i) values[i] = std::sin(0.7f * i) * (i % 97);
    for (int64_t b = 0; b < blocks.count; ++b) {
      limits.push_back(b % 3 == 1 ? 0 : 30.0f + b % 7);
    }
  }

  Bytes Quantize(const ThcTable& table,
                 const ParallelFor& parallel_for = SingleThread,
                 const std::optional<Seed>& rounding = kRounding) const {
    Floats room(values.size());
    Bytes packed(PackedSize(blocks.padded(), table.bits));
    ThcQuantize(values.data(), blocks, limits.data(), table, kSigns, rounding,
                room.data(), packed.data(), parallel_for);
    return packed;
  }
  Floats Decode(const Bytes& packed, const ThcTable& table,
                const ParallelFor& parallel_for = SingleThread) const {
    Floats decoded(values.size());
    ThcDecode(packed.data(), blocks, limits.data(), table, kSigns,
              decoded.data(), parallel_for);
    return decoded;
  }
  template <typename Lane>
  Floats DecodeSums(const std::vector<Lane>& sums, int64_t granularity,
                    int64_t workers,
                    const ParallelFor& parallel_for = SingleThread) const {
    Floats decoded(values.size());
    ThcDecodeSums(sums.data(), blocks, limits.data(), granularity, workers,
                  kSigns, decoded.data(), parallel_for);
    return decoded;
  }

  const ThcBlocks blocks;
  Floats values, limits;
};

const ThcTable& Table() {
  static const auto* const table = new ThcTable({0, 1, 3, 4, 6, 9, 14, 20});
  return *table;
}

// What is rounded: R / M.
Floats Rotated(const Vector& vector) {
  Floats rotated(vector.values.size());
  RandomizedHadamard(vector.values.data(), vector.blocks.count,
                     vector.blocks.size, kSigns, rotated.data(), SingleThread);
  for (size_t i = 0; i < rotated.size(); ++i) {
    const float limit = vector.limits[i / vector.blocks.size];
    rotated[i] = limit == 0 ? 0 : rotated[i] / limit;
  }
  return rotated;
}

// By the kernels that it is made of, one value after the other.
Bytes SlowQuantize(const Vector& vector, const ThcTable& table) {
  const Floats rotated = Rotated(vector);
  Bytes indices(rotated.size());
  StochasticQuantize(rotated.data(), rotated.size(), table.levels.data(),
                     table.levels.size(), kRounding, 0, indices.data());
  Bytes packed(PackedSize(indices.size(), table.bits));
  PackBits(indices.data(), indices.size(), table.bits, packed.data());
  return packed;
}

TEST(ThcTest, QuantizesAndDecodesAsTheKernelsThatItIsMadeOf) {
  for (const int64_t n : {0, 1, 64, 100, 4096, 8190, 70000, 200000}) {
    const Vector vector(n);
    const Bytes packed = vector.Quantize(Table());
    EXPECT_EQ(packed, SlowQuantize(vector, Table())) << n;
    Bytes indices(vector.values.size());
    UnpackBits(packed.data(), indices.size(), Table().bits, indices.data());
    Floats expected(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
      expected[i] =
          vector.limits[i / vector.blocks.size] * Table().levels[indices[i]];
    }
    InverseRandomizedHadamard(expected.data(), vector.blocks.count,
                              vector.blocks.size, kSigns, expected.data(),
                              SingleThread);
    EXPECT_EQ(vector.Decode(packed, Table()), expected) << n;
  }
}

TEST(ThcTest, WithoutASeedTheNearestLevelIsTaken) {
  for (const int64_t n : {1, 100, 4096, 70000}) {
    const Vector vector(n);
    const Bytes packed = vector.Quantize(Table(), SingleThread, std::nullopt);
    EXPECT_EQ(vector.Quantize(Table(), Threads(3), std::nullopt), packed);
    Bytes indices(vector.values.size());
    UnpackBits(packed.data(), indices.size(), Table().bits, indices.data());
    const Floats rotated = Rotated(vector);
    const Floats& levels = Table().levels;
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto distance = [&](float level) {
        return std::abs(double{rotated[i]} - level);
      };
      const float nearest = *std::min_element(
          levels.begin(), levels.end(),
          [&](float a, float b) { return distance(a) < distance(b); });
      // Two may be equally near but for rounding.
      ASSERT_NEAR(distance(levels[indices[i]]), distance(nearest), 1e-6) << i;
    }
  }
}

TEST(ThcTest, RoomMayBeTheValues) {
  Vector vector(5000);
  const Bytes expected = vector.Quantize(Table());
  Bytes packed(expected.size());
  ThcQuantize(vector.values.data(), vector.blocks, vector.limits.data(),
              Table(), kSigns, kRounding, vector.values.data(), packed.data(),
              SingleThread);
  EXPECT_EQ(packed, expected);
}

template <typename Lane>
void ExpectSumsDecode() {
  const Vector vector(1000);
  const Bytes packed = vector.Quantize(Table());
  std::vector<Lane> table(Table().integers.begin(), Table().integers.end());
  std::vector<Lane> sums(vector.values.size());
  for (int worker = 0; worker < 3; ++worker) {
    TableSum(packed.data(), sums.size(), table.data(), Table().bits,
             sums.data());
  }
  const Floats of_one = vector.Decode(packed, Table());
  const Floats sum = vector.DecodeSums(sums, Table().granularity(), 3);
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(sum[i], 3 * of_one[i], 1e-3) << i;
  }
}

TEST(ThcTest, SumsOfWorkersDecodeToTheSumOfWhatTheyStandFor) {
  ExpectSumsDecode<uint8_t>();
  ExpectSumsDecode<uint16_t>();
}

TEST(ThcTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const int64_t n : {1000, 70000, 200000}) {
    const Vector vector(n);
    const Bytes packed = vector.Quantize(Table());
    const std::vector<uint8_t> sums(vector.values.size(), 17);
    for (const auto& parallel_for : {Threads(3), CutAt({1, 3})}) {
      EXPECT_EQ(vector.Quantize(Table(), parallel_for), packed);
      EXPECT_EQ(vector.Decode(packed, Table(), parallel_for),
                vector.Decode(packed, Table()));
      EXPECT_EQ(vector.DecodeSums(sums, 20, 2, parallel_for),
                vector.DecodeSums(sums, 20, 2));
    }
  }
}

}  // namespace
}  // namespace tf_gc::kernels
