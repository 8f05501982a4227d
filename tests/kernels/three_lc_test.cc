#include "ops/kernels/three_lc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class ThreeLcTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(ThreeLcTest);

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kMin = std::numeric_limits<float>::min();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Every size up to 200, some around the blocks' limits, and a large one.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 200; ++n) sizes.push_back(n);
  for (const int64_t n : {255, 319, 320, 321, 1279, 1280, 1281, 1600, 5 * 2048,
                          5 * 2048 + 1, 5 * 4096 - 1, 100003}) {
    sizes.push_back(n);
  }
  return sizes;
}

// Values whose magnitudes differ, so that some are sent and most are not.
Floats RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) {
    value = normal(generator) * (generator() % 4 == 0 ? 1.0f : 0.05f);
  }
  return values;
}

// What the paper says, one value after the other.
struct Reference {
  std::vector<int8_t> ternary;
  Floats new_residual;
  Bytes payload;

  Reference(const Floats& values, const Floats& residual, float scale) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float t = residual.empty() ? values[i] : values[i] + residual[i];
      const double magnitude = std::fabs(static_cast<double>(t));
      const int q = 2 * magnitude > scale ? (t > 0 ? 1 : -1) : 0;
      ternary.push_back(static_cast<int8_t>(q));
      new_residual.push_back(q == 0 ? t : t - scale * static_cast<float>(q));
    }
    payload = ReferenceZeroRun(ReferenceQuartic(ternary));
  }
};

float ReferenceMaxAbsSum(const Floats& values, const Floats& residual) {
  float largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float t = residual.empty() ? values[i] : values[i] + residual[i];
    largest = std::max(largest, std::fabs(t));
  }
  return largest;
}

const float* DataOrNull(Floats& values) {
  return values.empty() ? nullptr : values.data();
}

void ExpectEncodes(const Floats& values, const Floats& residual, float scale,
                   int misalignment) {
  const int64_t n = values.size();
  const Reference expected(values, residual, scale);
  Guarded<float> in(values, misalignment);
  Guarded<float> old(residual, misalignment + 1);
  Guarded<float> new_residual(n, misalignment + 2);
  Guarded<uint8_t> payload(QuarticSize(n), misalignment + 3);
  const int64_t size =
      ThreeLcEncode(in.data(), residual.empty() ? nullptr : old.data(), scale,
                    n, new_residual.data(), payload.data(), SingleThread);
  ASSERT_EQ(payload.Values(size), expected.payload) << n;
  ASSERT_EQ(Bits(new_residual.Values()), Bits(expected.new_residual)) << n;
  ASSERT_TRUE(new_residual.GuardsAreIntact() && payload.GuardsAreIntact()) << n;
}

TEST_P(ThreeLcTest, EncodesByHand) {
  // t = (1, -0.75, 0.5, 0.25, -1, 0), M = 1: 2 |t| > 1 for three of them.
  const float values[6] = {1, -1, 0.5, 0.5, -1, 0};
  float residual[6] = {0, 0.25, 0, -0.25, 0, 0};
  EXPECT_EQ(MaxAbsSum(values, residual, 6, SingleThread), 1);
  uint8_t payload[QuarticSize(6)];
  ASSERT_EQ(
      ThreeLcEncode(values, residual, 1, 6, residual, payload, SingleThread),
      2);
  // Partitions (1, -1), (0, 0), (-1, 0) and twice padding, all plus 1.
  EXPECT_EQ(payload[0], 2 * 81 + 27);
  EXPECT_EQ(payload[1], 27 + 9);
  const float expected_residual[6] = {0, 0.25, 0.5, 0.25, 0, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(residual[i], expected_residual[i]) << i;
  float sum[6] = {1, 1, 1, 1, 1, 1};
  ASSERT_EQ(ThreeLcDecodeAdd(payload, 2, 1, 6, sum, SingleThread), 2);
  const float expected_sum[6] = {2, 0, 1, 1, 0, 1};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(sum[i], expected_sum[i]) << i;
}

TEST_P(ThreeLcTest, ZerosShrink280Fold) {
  const Floats zeros(350);
  Floats residual(350);
  Bytes payload(QuarticSize(350));
  const int64_t size =
      ThreeLcEncode(zeros.data(), nullptr, 0, 350, residual.data(),
                    payload.data(), SingleThread);
  EXPECT_EQ(Bytes(payload.begin(), payload.begin() + size), Bytes(5, 255));
  EXPECT_EQ(residual, zeros);
}

TEST_P(ThreeLcTest, MaxAbsSumOfAllSizes) {
  for (const int64_t n : Sizes()) {
    const Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    Guarded<float> in(values, n % 4), old(residual, n % 3);
    EXPECT_EQ(MaxAbsSum(in.data(), old.data(), n, SingleThread),
              ReferenceMaxAbsSum(values, residual))
        << n;
    EXPECT_EQ(MaxAbsSum(in.data(), nullptr, n, SingleThread),
              ReferenceMaxAbsSum(values, {}))
        << n;
  }
}

TEST_P(ThreeLcTest, MaxAbsSumFindsAnyPosition) {
  for (const int64_t n : {1, 5, 64, 65, 320, 321, 650, 1000}) {
    for (int64_t i = 0; i < n; ++i) {
      Floats values(n, 0.5f);
      values[i] = -3;
      ASSERT_EQ(MaxAbsSum(values.data(), nullptr, n, SingleThread), 3)
          << n << " " << i;
      values[i] = kNan;
      ASSERT_TRUE(
          std::isnan(MaxAbsSum(values.data(), nullptr, n, SingleThread)));
      values[i] = -kInfinity;
      ASSERT_EQ(MaxAbsSum(values.data(), values.data(), n, SingleThread),
                kInfinity);
    }
  }
}

TEST_P(ThreeLcTest, MaxAbsSumIsNotFiniteIfASumIsNot) {
  for (const int64_t n : {2, 3, 70, 700}) {
    Floats values(n, 1), residual(n, 1);
    values[n - 1] = kInfinity;
    residual[n - 1] = -kInfinity;
    EXPECT_TRUE(
        std::isnan(MaxAbsSum(values.data(), residual.data(), n, SingleThread)));
    values[n - 1] = residual[n - 1] = kMax;
    EXPECT_EQ(MaxAbsSum(values.data(), residual.data(), n, SingleThread),
              kInfinity);
    values[0] = -kNan;
    EXPECT_TRUE(
        std::isnan(MaxAbsSum(values.data(), residual.data(), n, SingleThread)));
  }
}

TEST_P(ThreeLcTest, AddsResidualsOfAllSizesInPlaceToo) {
  for (const int64_t n : Sizes()) {
    const Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    Floats expected(n);
    for (int64_t i = 0; i < n; ++i) expected[i] = values[i] + residual[i];
    Guarded<float> in(values, 1), old(residual, 2), sum(n, 3);
    AddResidual(in.data(), old.data(), n, sum.data());
    ASSERT_EQ(sum.Values(), expected);
    ASSERT_TRUE(sum.GuardsAreIntact());
    AddResidual(in.data(), old.data(), n, old.data());
    ASSERT_EQ(old.Values(), expected);
    ASSERT_TRUE(old.GuardsAreIntact());
  }
}

TEST_P(ThreeLcTest, EncodesAllSizesAsTheReference) {
  for (const int64_t n : Sizes()) {
    const Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    for (const float multiplier : {1.0f, 1.75f}) {
      const float scale = multiplier * ReferenceMaxAbsSum(values, residual);
      ExpectEncodes(values, residual, scale, n % 4);
      ExpectEncodes(values, {}, multiplier * ReferenceMaxAbsSum(values, {}),
                    n % 4);
    }
  }
}

TEST_P(ThreeLcTest, EncodesWithTheScaleOfALargerTensor) {
  for (const int64_t n : {7, 200, 3000}) {
    const Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    const float largest = ReferenceMaxAbsSum(values, residual);
    for (const float factor : {1.0f, 1.5f, 3.0f, 1e6f}) {
      ExpectEncodes(values, residual, factor * largest, 0);
    }
  }
}

TEST_P(ThreeLcTest, EncodesExtremeValuesExactly) {
  const float half_max = kMax / 2;
  const std::vector<Floats> cases = {
      {kMax, -kMax, half_max, -half_max, 1, kDenormal},
      {std::nextafter(half_max, kMax), half_max, kMax},
      {kDenormal, -kDenormal, 0, -0.0f},
      {3 * kDenormal, 2 * kDenormal, kDenormal},
      {kMin, kDenormal, -kDenormal},
      {std::nextafter(2 * kMin, 0.0f), kMin, std::nextafter(kMin, 0.0f)},
      {2 * kMin, kMin, std::nextafter(kMin, 1.0f)},
      {kMin + kDenormal, kMin / 2, kMin / 2 + kDenormal},
      {1, 0.5f, std::nextafter(0.5f, 1.0f), std::nextafter(0.5f, 0.0f)},
      {-0.0f, -0.0f, 0},
  };
  for (const Floats& values : cases) {
    const float largest = ReferenceMaxAbsSum(values, {});
    for (const float multiplier : {1.0f, 1.25f, 1.9f}) {
      if (std::isinf(multiplier * largest)) continue;
      ExpectEncodes(values, {}, multiplier * largest, 0);
      Floats many;
      for (int i = 0; i < 60; ++i) {
        many.insert(many.end(), values.begin(), values.end());
      }
      ExpectEncodes(many, {}, multiplier * largest, 0);
    }
  }
}

TEST_P(ThreeLcTest, TheNewResidualMayBeTheOldOneOrTheValues) {
  for (const int64_t n : Sizes()) {
    const Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    const float scale = ReferenceMaxAbsSum(values, residual);
    const Reference expected(values, residual, scale);
    Bytes payload(QuarticSize(n));
    Guarded<float> in(values), old(residual);
    int64_t size = ThreeLcEncode(in.data(), old.data(), scale, n, old.data(),
                                 payload.data(), SingleThread);
    ASSERT_EQ(Bytes(payload.begin(), payload.begin() + size), expected.payload);
    ASSERT_EQ(Bits(old.Values()), Bits(expected.new_residual));
    ASSERT_TRUE(old.GuardsAreIntact());
    Guarded<float> old_again(residual);
    size = ThreeLcEncode(in.data(), old_again.data(), scale, n, in.data(),
                         payload.data(), SingleThread);
    ASSERT_EQ(Bytes(payload.begin(), payload.begin() + size), expected.payload);
    ASSERT_EQ(Bits(in.Values()), Bits(expected.new_residual));
    ASSERT_TRUE(in.GuardsAreIntact());
  }
}

TEST_P(ThreeLcTest, TernaryQuantizeIsTheEncodingUnpacked) {
  for (const int64_t n : Sizes()) {
    Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    const float scale = 1.5f * ReferenceMaxAbsSum(values, residual);
    const Reference expected(values, residual, scale);
    Guarded<int8_t> ternary(n, 1);
    Guarded<float> new_residual(n, 1);
    TernaryQuantize(values.data(), residual.data(), scale, n, ternary.data(),
                    new_residual.data());
    ASSERT_EQ(ternary.Values(), expected.ternary);
    ASSERT_EQ(Bits(new_residual.Values()), Bits(expected.new_residual));
    ASSERT_TRUE(ternary.GuardsAreIntact() && new_residual.GuardsAreIntact());
    TernaryQuantize(values.data(), nullptr, scale, n, ternary.data(),
                    new_residual.data());
    ASSERT_EQ(ternary.Values(), Reference(values, {}, scale).ternary);
  }
}

TEST_P(ThreeLcTest, DecodesAllSizesAndDensities) {
  for (const int64_t n : Sizes()) {
    for (const double density : {0.0, 0.001, 0.05, 0.67, 1.0}) {
      const std::vector<int8_t> ternary = RandomTernary(n, density, 1);
      Bytes payload = ReferenceZeroRun(ReferenceQuartic(ternary));
      payload.shrink_to_fit();
      const int64_t size = payload.size();
      constexpr float kScale = 0.7f;
      Floats expected(n), expected_sum(n);
      Floats sum = RandomFloats(n, 2);
      for (int64_t i = 0; i < n; ++i) {
        expected[i] = kScale * ternary[i];
        expected_sum[i] = ternary[i] ? sum[i] + expected[i] : sum[i];
      }
      Guarded<float> values(n, n % 4), sums(sum, n % 4);
      ASSERT_EQ(ThreeLcDecode(payload.data(), size, kScale, n, values.data(),
                              SingleThread),
                size);
      ASSERT_EQ(values.Values(), expected) << n;
      ASSERT_EQ(ThreeLcDecodeAdd(payload.data(), size, kScale, n, sums.data(),
                                 SingleThread),
                size);
      ASSERT_EQ(Bits(sums.Values()), Bits(expected_sum)) << n;
      ASSERT_TRUE(values.GuardsAreIntact() && sums.GuardsAreIntact()) << n;
      ASSERT_EQ(ThreeLcValidate(payload.data(), size, n, SingleThread), size);
    }
  }
}

TEST_P(ThreeLcTest, DecodeAddKeepsTheBitsOfValuesThatGetNothing) {
  // Any arithmetic would change the first two.
  const Floats special = {-0.0f, kNan, kInfinity, kDenormal, 1};
  for (const int64_t n : {5, 320, 1000}) {
    Floats sum(n);
    for (int64_t i = 0; i < n; ++i) sum[i] = special[i % 5];
    Bytes payload = ReferenceZeroRun(Bytes(n / 5, 121));
    Floats result = sum;
    ASSERT_GT(ThreeLcDecodeAdd(payload.data(), payload.size(), 1, n,
                               result.data(), SingleThread),
              0);
    EXPECT_EQ(Bits(result), Bits(sum));
  }
}

TEST_P(ThreeLcTest, DecodingReportsWhatItUsed) {
  const Bytes payload = {162, 255, 255, 255};
  float values[5 * 29];
  EXPECT_EQ(ThreeLcDecode(payload.data(), 4, 1, 5, values, SingleThread), 1);
  EXPECT_EQ(ThreeLcDecode(payload.data(), 4, 1, 5 * 29, values, SingleThread),
            3);
  EXPECT_EQ(ThreeLcValidate(payload.data(), 4, 5 * 29, SingleThread), 3);
  EXPECT_EQ(ThreeLcDecode(payload.data(), 4, 1, 0, values, SingleThread), 0);
  EXPECT_EQ(ThreeLcDecode(nullptr, 0, 1, 0, nullptr, SingleThread), 0);
}

// All three decoders refuse a payload, and write only where they may.
void ExpectRefused(const Bytes& payload, int64_t n) {
  Bytes copy(payload);
  copy.shrink_to_fit();
  Guarded<float> values(n), sum(n);
  EXPECT_EQ(ThreeLcDecode(copy.data(), copy.size(), 1, n, values.data(),
                          SingleThread),
            -1);
  EXPECT_EQ(ThreeLcDecodeAdd(copy.data(), copy.size(), 1, n, sum.data(),
                             SingleThread),
            -1);
  EXPECT_EQ(ThreeLcValidate(copy.data(), copy.size(), n, SingleThread), -1);
  EXPECT_TRUE(values.GuardsAreIntact() && sum.GuardsAreIntact());
}

TEST_P(ThreeLcTest, TruncatedPayloadsAreRefused) {
  for (const int64_t n : {1, 5, 64, 700, 20001}) {
    for (const double density : {0.0, 0.05, 0.7}) {
      const Bytes payload =
          ReferenceZeroRun(ReferenceQuartic(RandomTernary(n, density, 1)));
      for (size_t size = 0; size < payload.size(); size += 1 + size / 10) {
        ExpectRefused(Bytes(payload.begin(), payload.begin() + size), n);
      }
    }
  }
}

TEST_P(ThreeLcTest, RunsThatAreTooLongAreRefused) {
  ExpectRefused({243}, 5);
  ExpectRefused({255}, 13 * 5);
  ExpectRefused({0, 243}, 10);
  Bytes payload(2047, 121);
  payload.push_back(243);
  ExpectRefused(payload, 2048 * 5);
}

TEST_P(ThreeLcTest, PaddingOtherThanZeroIsRefused) {
  ExpectRefused({121}, 4);
  ExpectRefused({1}, 1);
  ExpectRefused({0, 1}, 9);
  ExpectRefused({243}, 9);
  // The padding of 5 * 2049 - 2 values lies in two blocks.
  Bytes payload = ReferenceQuartic(RandomTernary(5 * 2049 - 2, 1, 1));
  ASSERT_EQ(payload[2047] % 3, 0);
  payload[2047] += 1;
  ExpectRefused(payload, 5 * 2049 - 2);
}

TEST_P(ThreeLcTest, GarbageIsDecodedOrRefusedWithinBounds) {
  std::mt19937 generator(1);
  for (int i = 0; i < 3000; ++i) {
    Bytes payload(generator() % 300);
    const int below = 1 + generator() % 256;
    for (uint8_t& byte : payload) byte = 255 - generator() % below;
    payload.shrink_to_fit();
    const int64_t n = generator() % 3000;
    Guarded<float> values(n, 1), sum(n, 2);
    const int64_t size = payload.size();
    const int64_t used = ThreeLcValidate(payload.data(), size, n, SingleThread);
    ASSERT_LE(used, size);
    EXPECT_EQ(
        ThreeLcDecode(payload.data(), size, 1, n, values.data(), SingleThread),
        used);
    EXPECT_EQ(
        ThreeLcDecodeAdd(payload.data(), size, 1, n, sum.data(), SingleThread),
        used);
    EXPECT_TRUE(values.GuardsAreIntact() && sum.GuardsAreIntact());
  }
}

TEST_P(ThreeLcTest, DeliveredPlusResidualIsTheInputOverManySteps) {
  constexpr int64_t kSize = 1003;
  Floats residual(kSize);
  std::vector<double> given(kSize), delivered(kSize);
  for (int step = 0; step < 50; ++step) {
    const Floats values = RandomFloats(kSize, step);
    const float scale = 1.5f * MaxAbsSum(values.data(), DataOrNull(residual),
                                         kSize, SingleThread);
    Bytes payload(QuarticSize(kSize));
    const int64_t size =
        ThreeLcEncode(values.data(), residual.data(), scale, kSize,
                      residual.data(), payload.data(), SingleThread);
    Floats decoded(kSize);
    ASSERT_EQ(ThreeLcDecode(payload.data(), size, scale, kSize, decoded.data(),
                            SingleThread),
              size);
    for (int64_t i = 0; i < kSize; ++i) {
      given[i] += values[i];
      delivered[i] += decoded[i];
    }
  }
  for (int64_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(given[i], delivered[i] + residual[i], 1e-4) << i;
  }
}

TEST_P(ThreeLcTest, ThreadsMayEncodeAndDecodeAtOnce) {
  constexpr int64_t kSize = 20011;
  const Floats values = RandomFloats(kSize, 1);
  const float scale = MaxAbsSum(values.data(), nullptr, kSize, SingleThread);
  const Reference expected(values, {}, scale);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      Floats residual(kSize), sum(kSize);
      Bytes payload(QuarticSize(kSize));
      const int64_t size =
          ThreeLcEncode(values.data(), nullptr, scale, kSize, residual.data(),
                        payload.data(), SingleThread);
      payload.resize(size);
      EXPECT_EQ(payload, expected.payload);
      EXPECT_EQ(ThreeLcDecodeAdd(payload.data(), size, scale, kSize, sum.data(),
                                 SingleThread),
                size);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DispatchTest, BaselineIsAlwaysThereAndTheBestIsActive) {
  const std::vector<InstructionSet> supported = SupportedInstructionSets();
  EXPECT_EQ(supported.front(), InstructionSet::kBaseline);
  EXPECT_EQ(ActiveInstructionSet(), supported.back());
}

TEST(DispatchTest, OneThatTheProcessorLacksIsRefused) {
  const InstructionSet before = ActiveInstructionSet();
  for (const InstructionSet set : kAllInstructionSets) {
    const std::vector<InstructionSet> supported = SupportedInstructionSets();
    const bool is_supported =
        std::find(supported.begin(), supported.end(), set) != supported.end();
    EXPECT_EQ(SetInstructionSet(set), is_supported);
  }
  SetInstructionSet(before);
}

}  // namespace
}  // namespace tf_gc::kernels
