// However the work is cut in parts, and whichever threads do them: the results
// are the same.

#include <cmath>
#include <limits>

#include "ops/kernels/quartic.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/kernels/zero_run.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class PartsTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(PartsTest);

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

// Parts of a decoding begin at multiples of it.
constexpr int64_t kStep = 16384;

// Any part may be empty, and shorter than any vector, group or run.
std::vector<ParallelFor> Cuts() {
  return {
      SingleThread,
      CutAt({1}),
      CutAt({13}),
      CutAt({14, 28, 29}),
      CutAt({0, 0, 5, 6, 6, 7, 40, 41, 64, 65, 128, 1000, 1000}),
  };
}

std::vector<ParallelFor> CutsAndThreads() {
  std::vector<ParallelFor> all = Cuts();
  for (const int count : {2, 3, 7}) all.push_back(Threads(count));
  return all;
}

// Calls check(size, cuts): small sizes in all cuts, and large ones on threads,
// too.
template <typename Check>
void ForAllSizes(const Check& check) {
  for (int64_t size = 0; size <= 400; ++size) check(size, Cuts());
  for (const int64_t size : {int64_t{5 * 128 * 7}, int64_t{10000},
                             int64_t{100003}, 5 * 3 * kStep + 77}) {
    check(size, CutsAndThreads());
  }
}

// From no value at all on, so that runs extend over many parts, to all.
constexpr double kDensities[] = {0, 0.0003, 0.02, 0.2, 1};

// Values that have the given quantisation with the scale 1.
Floats ValuesOf(const std::vector<int8_t>& ternary) {
  Floats values;
  for (const int8_t q : ternary) values.push_back(q == 0 ? 0.25f : 0.75f * q);
  return values;
}

Floats ResidualOf(const std::vector<int8_t>& ternary) {
  Floats residual;
  for (const int8_t q : ternary) {
    residual.push_back(q == 0 ? 0.25f : -0.25f * q);
  }
  return residual;
}

TEST_P(PartsTest, ARunOverSeveralPartsIsCutFromItsBegin) {
  Bytes quartic = {5};
  quartic.insert(quartic.end(), 40, 121);
  quartic.push_back(7);
  for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
           {3}, {1}, {41}, {3, 17, 18, 30}, {15, 16, 16, 29}, {2, 3, 4, 5}}) {
    Bytes encoded(quartic.size());
    encoded.resize(ZeroRunEncode(quartic.data(), quartic.size(), encoded.data(),
                                 CutAt(cuts)));
    EXPECT_EQ(encoded, (Bytes{5, 255, 255, 253, 7}));
  }
}

TEST_P(PartsTest, ZeroRunEncodes) {
  for (const double zeros : {0.0, 0.5, 0.9, 0.99, 1.0}) {
    ForAllSizes([&](int64_t m, const std::vector<ParallelFor>& cuts) {
      const Bytes quartic = RandomQuartic(m, zeros, m);
      const Bytes expected = ReferenceZeroRun(quartic);
      for (const ParallelFor& parallel_for : cuts) {
        Guarded<uint8_t> encoded(m, m % 7);
        const int64_t size =
            ZeroRunEncode(quartic.data(), m, encoded.data(), parallel_for);
        ASSERT_EQ(encoded.Values(size), expected) << m;
        ASSERT_TRUE(encoded.GuardsAreIntact()) << m;
      }
    });
  }
}

TEST_P(PartsTest, ZeroRunDecodes) {
  for (const double zeros : {0.0, 0.5, 0.9, 0.999, 1.0}) {
    for (const int64_t m : {kStep, kStep + 1, 2 * kStep - 1, 5 * kStep + 14}) {
      const Bytes quartic = RandomQuartic(m, zeros, m);
      const Bytes encoded = ReferenceZeroRun(quartic);
      const int64_t size = encoded.size();
      for (const ParallelFor& parallel_for : CutsAndThreads()) {
        Guarded<uint8_t> decoded(m, 1);
        ASSERT_EQ(ZeroRunDecodedSize(encoded.data(), size, parallel_for), m);
        ASSERT_EQ(ZeroRunDecode(encoded.data(), size, m, decoded.data(),
                                parallel_for),
                  size);
        ASSERT_EQ(decoded.Values(), quartic);
        ASSERT_TRUE(decoded.GuardsAreIntact());
        ASSERT_EQ(ZeroRunDecode(encoded.data(), size - 1, m, decoded.data(),
                                parallel_for),
                  -1);
      }
    }
  }
}

TEST_P(PartsTest, QuarticEncodesAndDecodes) {
  ForAllSizes([&](int64_t n, const std::vector<ParallelFor>& cuts) {
    const std::vector<int8_t> ternary = RandomTernary(n, 0.5, n);
    const Bytes expected = ReferenceQuartic(ternary);
    for (const ParallelFor& parallel_for : cuts) {
      Guarded<uint8_t> quartic(QuarticSize(n), n % 5);
      QuarticEncode(ternary.data(), n, quartic.data(), parallel_for);
      ASSERT_EQ(quartic.Values(), expected) << n;
      Guarded<int8_t> decoded(n, n % 7);
      QuarticDecode(quartic.data(), n, decoded.data(), parallel_for);
      ASSERT_EQ(decoded.Values(), ternary) << n;
      ASSERT_TRUE(quartic.GuardsAreIntact() && decoded.GuardsAreIntact()) << n;
    }
  });
}

TEST_P(PartsTest, TheFirstBadByteIsFound) {
  constexpr int64_t kSize = 300;
  for (const ParallelFor& parallel_for : CutsAndThreads()) {
    std::vector<int8_t> ternary(kSize);
    Bytes quartic(kSize);
    EXPECT_EQ(FindNonTernary(ternary.data(), kSize, parallel_for), -1);
    EXPECT_EQ(FindNonQuartic(quartic.data(), 5 * kSize, parallel_for), -1);
    for (int64_t i = kSize - 1; i >= 0; i -= 7) {
      ternary[i] = 2;
      quartic[i] = 243;
      ASSERT_EQ(FindNonTernary(ternary.data(), kSize, parallel_for), i);
      ASSERT_EQ(FindNonQuartic(quartic.data(), 5 * kSize, parallel_for), i);
    }
  }
}

TEST_P(PartsTest, MaxAbsSumIsThatOfAllParts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {1, 14, 100, 1300}) {
    for (const ParallelFor& parallel_for : CutsAndThreads()) {
      for (int64_t i = 0; i < n; i += 1 + n / 20) {
        Floats values(n, 0.5f), residual(n, 0.25f);
        values[i] = -3;
        ASSERT_EQ(MaxAbsSum(values.data(), residual.data(), n, parallel_for),
                  2.75f);
        ASSERT_EQ(MaxAbsSum(values.data(), nullptr, n, parallel_for), 3);
        residual[i] = nan;
        ASSERT_TRUE(std::isnan(
            MaxAbsSum(values.data(), residual.data(), n, parallel_for)));
      }
    }
  }
}

TEST_P(PartsTest, ThreeLcEncodes) {
  for (const double density : kDensities) {
    ForAllSizes([&](int64_t n, const std::vector<ParallelFor>& cuts) {
      const std::vector<int8_t> ternary = RandomTernary(n, density, n);
      const Bytes expected = ReferenceZeroRun(ReferenceQuartic(ternary));
      const Floats expected_residual = ResidualOf(ternary);
      const Floats old_residual(n, 0.125f);
      Floats values = ValuesOf(ternary);
      for (float& value : values) value -= 0.125f;
      for (const ParallelFor& parallel_for : cuts) {
        Guarded<float> residual(old_residual, n % 4);
        Guarded<uint8_t> payload(QuarticSize(n), n % 7);
        const int64_t size =
            ThreeLcEncode(values.data(), residual.data(), 1, n, residual.data(),
                          payload.data(), parallel_for);
        ASSERT_EQ(payload.Values(size), expected) << n;
        ASSERT_EQ(residual.Values(), expected_residual) << n;
        ASSERT_TRUE(payload.GuardsAreIntact() && residual.GuardsAreIntact());
      }
    });
  }
}

TEST_P(PartsTest, ThreeLcDecodes) {
  for (const double density : kDensities) {
    for (const int64_t n : {5 * kStep + 1, 15 * kStep + 777}) {
      const std::vector<int8_t> ternary = RandomTernary(n, density, n);
      const Bytes payload = ReferenceZeroRun(ReferenceQuartic(ternary));
      const int64_t size = payload.size();
      Floats expected(n), expected_sum(n);
      for (int64_t i = 0; i < n; ++i) {
        expected[i] = 0.5f * ternary[i];
        expected_sum[i] = 3 + expected[i];
      }
      for (const ParallelFor& parallel_for : CutsAndThreads()) {
        Guarded<float> values(n, 1), sum(Floats(n, 3), 2);
        ASSERT_EQ(ThreeLcDecode(payload.data(), size, 0.5f, n, values.data(),
                                parallel_for),
                  size);
        ASSERT_EQ(values.Values(), expected);
        ASSERT_EQ(ThreeLcDecodeAdd(payload.data(), size, 0.5f, n, sum.data(),
                                   parallel_for),
                  size);
        ASSERT_EQ(sum.Values(), expected_sum);
        ASSERT_TRUE(values.GuardsAreIntact() && sum.GuardsAreIntact());
        ASSERT_EQ(ThreeLcValidate(payload.data(), size, n, parallel_for), size);
      }
    }
  }
}

TEST_P(PartsTest, BadPayloadsAreRefused) {
  constexpr int64_t kSize = 15 * kStep + 3;  // with two digits of padding
  const Bytes good =
      ReferenceZeroRun(ReferenceQuartic(RandomTernary(kSize, 0.01, 1)));
  for (const ParallelFor& parallel_for : CutsAndThreads()) {
    const auto used = [&](Bytes payload) {
      payload.shrink_to_fit();
      Guarded<float> values(kSize);
      const int64_t result = ThreeLcDecode(payload.data(), payload.size(), 1,
                                           kSize, values.data(), parallel_for);
      EXPECT_EQ(
          ThreeLcValidate(payload.data(), payload.size(), kSize, parallel_for),
          result);
      EXPECT_TRUE(values.GuardsAreIntact());
      return result;
    };
    const int64_t size = good.size();
    EXPECT_EQ(used(good), size);
    for (const int64_t cut : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
      EXPECT_EQ(used(Bytes(good.begin(), good.begin() + cut)), -1);
    }
    Bytes longer = good;
    longer.push_back(255);
    EXPECT_EQ(used(longer), size);
    Bytes shifted = good;
    shifted.insert(shifted.begin(), 1);
    shifted.back() = 255;
    EXPECT_EQ(used(shifted), -1);
    Bytes bad_padding(QuarticSize(kSize), 1);
    EXPECT_EQ(used(bad_padding), -1);
  }
}

TEST_P(PartsTest, TensorsAreEncodedAndDecoded) {
  constexpr int64_t kSize = 5 * kStep + 1234;
  const std::vector<int8_t> ternary = RandomTernary(kSize, 0.01, 1);
  const Floats values = ValuesOf(ternary);  // of which the largest is 0.75
  Bytes expected = ReferenceZeroRun(ReferenceQuartic(ternary));
  expected.insert(expected.begin(), {0, 0, 0x40, 0x3f});
  for (const ParallelFor& parallel_for : CutsAndThreads()) {
    Floats residual(kSize), decoded(kSize);
    Guarded<uint8_t> encoded(ThreeLcTensorBufferSize(kSize));
    const int64_t size =
        ThreeLcEncodeTensor(values.data(), nullptr, 1, kSize, residual.data(),
                            encoded.data(), parallel_for);
    ASSERT_EQ(encoded.Values(size), expected);
    ASSERT_TRUE(encoded.GuardsAreIntact());
    ASSERT_EQ(ThreeLcDecodeTensor(encoded.data(), size, kSize, decoded.data(),
                                  parallel_for),
              nullptr);
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(decoded[i], 0.75f * ternary[i]) << i;
      ASSERT_EQ(residual[i] + decoded[i], values[i]) << i;
    }
  }
}

}  // namespace
}  // namespace tf_gc::kernels
