#include "ops/kernels/top_k.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <thread>

#include "ops/kernels/philox.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class TopKTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(TopKTest);

using Floats = std::vector<float>;
using Indices = std::vector<int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Values whose bits are these.
Floats FromBits(const std::vector<uint32_t>& bits) {
  Floats values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

// All indices, those of the largest magnitudes first.
Indices Sorted(const Floats& values) {
  std::vector<uint32_t> keys = Bits(values);
  for (uint32_t& key : keys) key &= 0x7fffffff;
  Indices indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(),
                   [&](int32_t a, int32_t b) { return keys[a] > keys[b]; });
  return indices;
}

// What the header says, from what Sorted says.
Indices Reference(const Indices& sorted, int64_t k) {
  Indices indices(sorted.begin(), sorted.begin() + k);
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices TopK(const Floats& values, int64_t k,
             const ParallelFor& parallel_for = SingleThread,
             int misalignment = 0) {
  Guarded<float> in(values, 4 * misalignment);
  Guarded<int32_t> indices(k, 4 * misalignment + 4);
  TopKIndices(in.data(), values.size(), k, indices.data(), parallel_for);
  EXPECT_TRUE(indices.GuardsAreIntact());
  EXPECT_EQ(Bits(in.Values()), Bits(values));
  return indices.Values();
}

Floats Gaussian(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Parts of unequal length, last one first, on threads of their own.
void OddParts(int64_t total, int64_t /*cost*/, const ParallelWork& work) {
  std::vector<std::thread> threads;
  for (int64_t end = total, length = 1; end > 0; length = 3 * length + 1) {
    const int64_t begin = std::max<int64_t>(end - length, 0);
    threads.emplace_back([&work, begin, end] { work(begin, end); });
    end = begin;
  }
  for (std::thread& thread : threads) thread.join();
}

// Numbers of indices around all limits.
std::vector<int64_t> Counts(int64_t n) {
  std::vector<int64_t> counts;
  for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{2}, n / 1000, n / 100,
                          n / 10, n / 4, n / 2, n - n / 4, n - 2, n - 1, n}) {
    if (k >= 0 && k <= n) counts.push_back(k);
  }
  return counts;
}

void ExpectSelects(const Floats& values) {
  const Indices sorted = Sorted(values);
  for (const int64_t k : Counts(values.size())) {
    const Indices expected = Reference(sorted, k);
    ASSERT_EQ(TopK(values, k), expected) << values.size() << " " << k;
    ASSERT_EQ(TopK(values, k, OddParts), expected) << values.size() << " " << k;
  }
}

TEST_P(TopKTest, SelectsByHand) {
  EXPECT_EQ(TopK({1, -5, 3, 0, -3, 4}, 3), (Indices{1, 2, 5}));
  EXPECT_EQ(TopK({1, -5, 3, 0, -3, 4}, 4), (Indices{1, 2, 4, 5}));
  EXPECT_EQ(TopK({}, 0), Indices{});
  EXPECT_EQ(TopK({0}, 1), Indices{0});
}

TEST_P(TopKTest, NanIsAboveInfinityAndZerosAreAlike) {
  const Floats values = {-0.0f, 1, kInfinity, -kNan, -kInfinity, 0, kNan};
  EXPECT_EQ(TopK(values, 1), Indices{3});
  EXPECT_EQ(TopK(values, 2), (Indices{3, 6}));
  EXPECT_EQ(TopK(values, 3), (Indices{2, 3, 6}));
  EXPECT_EQ(TopK(values, 6), (Indices{0, 1, 2, 3, 4, 6}));
  const Floats nans = FromBits({0x7f800001, 0xffc00001, 0x7f800002});
  EXPECT_EQ(TopK(nans, 1), Indices{1});
  EXPECT_EQ(TopK(nans, 2), (Indices{1, 2}));
}

TEST_P(TopKTest, DenormalNumbersAreCompared) {
  EXPECT_EQ(TopK({0, kDenormal, 3 * kDenormal, -2 * kDenormal}, 2),
            (Indices{2, 3}));
}

TEST_P(TopKTest, AllLengthsAndCountsAndAlignments) {
  for (int64_t n = 0; n <= 300; ++n) {
    Floats values = Gaussian(n, n);
    // Some ties.
    for (int64_t i = 0; i + 3 < n; i += 5) values[i] = -values[i + 3];
    const Indices sorted = Sorted(values);
    for (int64_t k = 0; k <= n; k += 1 + n / 12) {
      const Indices expected = Reference(sorted, k);
      ASSERT_EQ(TopK(values, k, SingleThread, n % 16), expected) << n;
      ASSERT_EQ(TopK(values, k, OddParts), expected) << n << " " << k;
    }
  }
}

TEST_P(TopKTest, LengthsAroundTheTilesAndTheSample) {
  for (const int64_t n :
       {4095, 4096, 4097, 12289, 16383, 16384, 16385, 100003, 300001}) {
    ExpectSelects(Gaussian(n, 3));
  }
}

// n values of a shape that is hard in one way or another.
Floats Hard(const std::string& name, int64_t n) {
  std::mt19937 generator(5);
  Floats values(n);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t random = generator();
    float& value = values[i];
    if (name == "equal") value = -1.5f;
    if (name == "zero") value = i % 2 ? 0.0f : -0.0f;
    if (name == "ascending") value = static_cast<float>(i);
    if (name == "descending") value = static_cast<float>(n - i);
    if (name == "few values") value = static_cast<float>(random % 5);
    if (name == "few non-zero") value = random % 300 == 0 ? random : 0;
    if (name == "one non-zero") value = i == n - 7 ? 1e-30f : 0;
    if (name == "two values") value = random % 90 == 0 ? 2.0f : 1.0f;
    if (name == "denormal") value = kDenormal * (random % 100000);
    if (name == "NaN") value = random % 3 == 0 ? kNan : 1;
    if (name == "all NaN") value = kNan;
    if (name == "all bits") std::memcpy(&value, &random, sizeof(value));
    if (name == "heavy tail") value = 1e-4f / (random % 10000 + 1e-37f);
    if (name == "cubes of cubes") {
      const float u = static_cast<float>(random) * 0x1p-32f;
      value = u * u * u * u * u * u * u * u * u;
    }
    if (name == "period 64") value = i % 64 == 0 ? 1.0f + i : 1e-3f * (i % 64);
    if (name == "period 1024") value = i % 1024 < 11 ? 1.0f + i : 0.5f;
    if (name == "last tile") value = i + 4096 > n ? 1.0f + i : 1e-9f * (i % 77);
    if (name == "first values") value = i < 900 ? 2.0f : 1e-9f * (i % 77);
  }
  return values;
}

TEST_P(TopKTest, HardValues) {
  for (const char* name :
       {"equal", "zero", "ascending", "descending", "few values",
        "few non-zero", "one non-zero", "two values", "denormal", "NaN",
        "all NaN", "all bits", "heavy tail", "cubes of cubes", "period 64",
        "period 1024", "last tile", "first values"}) {
    SCOPED_TRACE(name);
    ExpectSelects(Hard(name, 777));
    ExpectSelects(Hard(name, 20001));  // more than the sample, and five tiles
  }
}

// The sample is one value of each of 1024 equal parts, at the place that one
// Philox word says.
TEST_P(TopKTest, ASampleThatMisleads) {
  constexpr int64_t kN = 70001, kSample = 1024;
  std::vector<uint32_t> words(kSample);
  PhiloxFill(Seed{0, 0}, 0, kSample / 4, words.data());
  // The sample sees only values that are larger than all others, or smaller.
  for (const float factor : {1e6f, 1e-6f}) {
    Floats values = Gaussian(kN, 9);
    for (int64_t i = 0; i < kSample; ++i) {
      values[(i * kN + (words[i] * kN >> 32)) / kSample] *= factor;
    }
    ExpectSelects(values);
  }
}

TEST_P(TopKTest, RunsOnManyThreadsAtOnce) {
  const Floats values = Gaussian(100000, 4);
  const Indices expected = Reference(Sorted(values), 1000);
  std::vector<Indices> results(4);
  std::vector<std::thread> threads;
  for (Indices& result : results) {
    threads.emplace_back([&] { result = TopK(values, 1000, OddParts); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Indices& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace tf_gc::kernels
