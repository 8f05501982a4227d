#include "ops/kernels/chunk_argmax.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class ChunkArgmaxTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(ChunkArgmaxTest);

using Floats = std::vector<float>;
using Indices = std::vector<int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

Indices Reference(const Floats& values, int64_t chunk) {
  const int64_t n = values.size();
  std::vector<uint32_t> keys = Bits(values);
  for (uint32_t& key : keys) key &= 0x7fffffff;
  Indices indices;
  for (int64_t begin = 0; begin < n; begin += std::min(chunk, n)) {
    const auto end = keys.begin() + std::min(begin + std::min(chunk, n), n);
    indices.push_back(static_cast<int32_t>(
        std::max_element(keys.begin() + begin, end) - keys.begin()));
  }
  return indices;
}

// Parts of unequal length, last one first.
void OddParts(int64_t total, int64_t /*cost*/, const ParallelWork& work) {
  for (int64_t end = total, length = 1; end > 0; length = 2 * length + 1) {
    const int64_t begin = std::max<int64_t>(end - length, 0);
    work(begin, end);
    end = begin;
  }
}

Indices Argmax(const Floats& values, int64_t chunk,
               const ParallelFor& parallel_for = SingleThread,
               int misalignment = 0) {
  const int64_t n = values.size();
  Guarded<float> in(values, 4 * misalignment);
  Guarded<int32_t> indices(NumChunks(n, chunk), 4 * misalignment + 4);
  ChunkArgmax(in.data(), n, chunk, indices.data(), parallel_for);
  EXPECT_TRUE(indices.GuardsAreIntact());
  return indices.Values();
}

// Few magnitudes, so that there are ties.
Floats RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  Floats values(n);
  for (float& value : values) {
    value = (static_cast<float>(generator() % 19) - 9) * 0.25f;
  }
  return values;
}

TEST_P(ChunkArgmaxTest, FindsByHand) {
  EXPECT_EQ(Argmax({1, -2, 2, 0, 0, -0.0f, 3}, 3), (Indices{1, 3, 6}));
  EXPECT_EQ(Argmax({1, -2, 2, 0}, 1), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(Argmax({1, -2, 3, 0}, 4), Indices{2});
  EXPECT_EQ(Argmax({1, -2, 3, 0}, INT64_MAX), Indices{2});
  EXPECT_EQ(Argmax({}, 4), Indices{});
}

// ScaleCom, figure A2: the leader's gradient.
TEST_P(ChunkArgmaxTest, FindsThoseOfThePaper) {
  EXPECT_EQ(Argmax({0.0206f, 0.0182f, 0.0094f, -0.0039f, -0.0102f, 0.0315f,
                    0.0220f, 0.0063f},
                   4),
            (Indices{0, 5}));
}

TEST_P(ChunkArgmaxTest, AllLengthsOfSmallChunks) {
  for (int64_t n = 0; n <= 300; ++n) {
    const Floats values = RandomFloats(n, n);
    for (int64_t chunk = 1; chunk <= 70; ++chunk) {
      const Indices expected = Reference(values, chunk);
      ASSERT_EQ(Argmax(values, chunk, SingleThread, n % 16), expected)
          << n << " " << chunk;
      ASSERT_EQ(Argmax(values, chunk, OddParts), expected) << n << " " << chunk;
    }
  }
}

TEST_P(ChunkArgmaxTest, LongChunks) {
  for (const int64_t n : {1000, 4099, 100003}) {
    const Floats values = RandomFloats(n, 1);
    for (const int64_t chunk :
         {100, 127, 128, 1000, 4098, 4099, 100003, 1 << 20}) {
      ASSERT_EQ(Argmax(values, chunk), Reference(values, chunk)) << n;
      ASSERT_EQ(Argmax(values, chunk, OddParts), Reference(values, chunk)) << n;
    }
  }
}

TEST_P(ChunkArgmaxTest, FindsEveryPlaceAndTheFirstOfTies) {
  for (const int64_t chunk :
       {2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 31, 33, 64, 100}) {
    for (int64_t place = 0; place < chunk; ++place) {
      Floats values(4 * chunk, kDenormal);
      Indices expected;
      for (int64_t begin = 0; begin < 4 * chunk; begin += chunk) {
        values[begin + place] = -2 * kDenormal;
        values[begin + chunk - 1] = 2 * kDenormal;
        expected.push_back(static_cast<int32_t>(begin + place));
      }
      ASSERT_EQ(Argmax(values, chunk), expected) << chunk << " " << place;
    }
  }
}

TEST_P(ChunkArgmaxTest, NanIsAboveInfinity) {
  for (const int64_t chunk : {4, 16, 20, 40}) {
    Floats values(3 * chunk, 1);
    values[1] = kInfinity;
    values[2] = -kInfinity;
    values[chunk] = kInfinity;
    values[chunk + 3] = -kNan;
    values[3 * chunk - 1] = kNan;
    const Indices expected = {1, static_cast<int32_t>(chunk + 3),
                              static_cast<int32_t>(3 * chunk - 1)};
    EXPECT_EQ(Argmax(values, chunk), expected) << chunk;
  }
}

}  // namespace
}  // namespace tf_gc::kernels
