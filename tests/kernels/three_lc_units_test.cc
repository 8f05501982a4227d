// 3LC in units, u_ij = a_i b_j.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class ThreeLcUnitsTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(ThreeLcUnitsTest);

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

Floats RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// Units of a piece of a matrix that has just the rows that the piece needs.
struct Matrix {
  Floats rows;
  Floats columns;
  int64_t first;

  // `n` values behind the first `first`.
  static Matrix Random(int64_t first, int64_t n, int64_t width) {
    std::mt19937 generator(width);
    std::lognormal_distribution<float> lognormal(-2, 2);
    Matrix matrix = {Floats((first + n + width - 1) / width), Floats(width),
                     first};
    for (float& unit : matrix.rows) unit = lognormal(generator);
    for (float& unit : matrix.columns) unit = lognormal(generator);
    return matrix;
  }

  Matrix Inverse() const {
    Matrix inverse = *this;
    for (float& unit : inverse.rows) unit = 1 / unit;
    for (float& unit : inverse.columns) unit = 1 / unit;
    return inverse;
  }

  int64_t width() const { return columns.size(); }
  // (factor a_i) b_j.
  float Scaled(float factor, int64_t i) const {
    const float row = factor * rows[(first + i) / width()];
    return row * columns[(first + i) % width()];
  }
  Units units() const { return {rows.data(), columns.data(), width(), first}; }
};

// Calls check(matrix, n): pieces that begin and end anywhere in rows that are
// shorter and longer than vectors.
template <typename Check>
void ForAllPieces(const Check& check) {
  for (const int64_t width :
       {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 1000}) {
    for (const int64_t first :
         {int64_t{0}, int64_t{1}, width - 1, width + 37}) {
      for (const int64_t n : {1, 4, 5, 16, 63, 64, 79, 320, 321, 1000, 4099}) {
        check(Matrix::Random(first, n, width), n);
      }
    }
  }
  check(Matrix::Random(3, 5 * 2048 * 3 + 1, 500), 5 * 2048 * 3 + 1);
}

// One value after the other.
struct Reference {
  std::vector<int8_t> ternary;
  Floats delivered;
  Floats new_residual;
  Bytes payload;

  Reference(const Floats& values, const Floats& residual, float scale,
            const Matrix& matrix) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float t = residual.empty() ? values[i] : values[i] + residual[i];
      const float scaled = matrix.Scaled(scale, i);
      const bool is_sent = 2 * std::fabs(static_cast<double>(t)) > scaled;
      ternary.push_back(static_cast<int8_t>(is_sent ? (t > 0 ? 1 : -1) : 0));
      delivered.push_back(is_sent ? std::copysign(scaled, t) : 0);
      new_residual.push_back(is_sent ? t - delivered.back() : t);
    }
    payload = ReferenceZeroRun(ReferenceQuartic(ternary));
  }
};

float ReferenceMaxAbsSum(const Floats& values, const Floats& residual,
                         const Matrix& inverse) {
  float largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float t = residual.empty() ? values[i] : values[i] + residual[i];
    largest = std::max(largest, std::fabs(t * inverse.Scaled(1, i)));
  }
  return largest;
}

Magnitudes ReferenceMagnitudes(const Floats& values, const Floats& residual,
                               const Matrix& inverse) {
  const auto n = static_cast<int64_t>(values.size());
  Magnitudes all = {0, ReferenceMaxAbsSum(values, residual, inverse), n};
  for (int64_t first = 0; first < n; first += kMagnitudeBlock) {
    float lanes[kMagnitudeLanes] = {};
    for (int64_t i = first; i < std::min(first + kMagnitudeBlock, n); ++i) {
      const float t = residual.empty() ? values[i] : values[i] + residual[i];
      lanes[(i - first) % kMagnitudeLanes] +=
          std::fabs(t * inverse.Scaled(1, i));
    }
    double block = 0;
    for (const float lane : lanes) block += lane;
    all.total += block;
  }
  return all;
}

void ExpectEqual(const Magnitudes& actual, const Magnitudes& expected) {
  EXPECT_EQ(actual.total, expected.total);
  EXPECT_EQ(actual.largest, expected.largest);
  EXPECT_EQ(actual.count, expected.count);
}

TEST_P(ThreeLcUnitsTest, MagnitudesAsTheReference) {
  ForAllPieces([](const Matrix& matrix, int64_t n) {
    const Matrix inverse = matrix.Inverse();
    Floats values = RandomFloats(n, 1);
    const Floats residual = RandomFloats(n, 2);
    ExpectEqual(MagnitudesOf(values.data(), residual.data(), n, SingleThread,
                             inverse.units()),
                ReferenceMagnitudes(values, residual, inverse));
    ExpectEqual(
        MagnitudesOf(values.data(), nullptr, n, Threads(3), inverse.units()),
        ReferenceMagnitudes(values, {}, inverse));
    for (const float bad : {kNan, kInfinity}) {
      values[n / 2] = bad;
      EXPECT_FALSE(std::isfinite(
          MagnitudesOf(values.data(), nullptr, n, SingleThread).total));
    }
  });
}

TEST_P(ThreeLcUnitsTest, MagnitudesByHand) {
  const Floats values = {1, -2, 3}, residual = {1, 1, -3};
  ExpectEqual(MagnitudesOf(values.data(), residual.data(), 3, SingleThread),
              {3, 2, 3});
  ExpectEqual(MagnitudesOf(values.data(), nullptr, 3, SingleThread), {6, 3, 3});
  ExpectEqual(MagnitudesOf(values.data(), nullptr, 0, SingleThread), {0, 0, 0});
}

TEST_P(ThreeLcUnitsTest, ScaleOfTheMeanIsAtMostTheMaximum) {
  const ThreeLcScaling scaling(3, ThreeLcScaling::Of::kMean);
  Floats values(100, 0.5f);
  EXPECT_EQ(ThreeLcScale(values.data(), nullptr, scaling, 100, SingleThread),
            0.5f);
  values[7] = 10;
  EXPECT_FLOAT_EQ(
      ThreeLcScale(values.data(), nullptr, scaling, 100, SingleThread),
      3 * (99 * 0.5f + 10) / 100);
}

TEST_P(ThreeLcUnitsTest, ScaleInUnitsIsAtMostTheMaximum) {
  const float rows[2] = {1, 2}, columns[2] = {1, 4};
  const Floats values = {1, -12, 0, 16};
  const auto scale = [&](float s, const Units& units) {
    const ThreeLcScaling scaling(s, ThreeLcScaling::Of::kUnit);
    return ThreeLcScale(values.data(), nullptr, scaling, 4, SingleThread,
                        units);
  };
  EXPECT_EQ(scale(2, {rows, columns, 2, 0}), 2);
  EXPECT_EQ(scale(5, {rows, columns, 2, 0}), 3);
  // Without units, it is that of 3 times the mean.
  EXPECT_EQ(scale(2, {}), 16);
}

TEST_P(ThreeLcUnitsTest, EncodesByHand) {
  // The units of row 0 are 1, 4, 2, and of row 1 twice that. The piece begins
  // with the last of row 0.
  const float rows[2] = {0.5, 1}, columns[3] = {2, 8, 4};
  const float inverse_rows[2] = {2, 1}, inverse_columns[3] = {0.5, 0.125, 0.25};
  const Units units = {rows, columns, 3, 2};
  const float values[4] = {1, -2, -12, 1};
  EXPECT_EQ(MaxAbsSum(values, nullptr, 4, SingleThread,
                      {inverse_rows, inverse_columns, 3, 2}),
            1.5f);
  float residual[4];
  uint8_t payload[1];
  // M u = 1.5 (2, 2, 8, 4), of which only the third is less than 2 |t|, and the
  // second.
  ASSERT_EQ(ThreeLcEncode(values, nullptr, 1.5f, 4, residual, payload,
                          SingleThread, units),
            1);
  EXPECT_EQ(payload[0], 81 + 0 * 27 + 0 * 9 + 3);
  EXPECT_EQ(Floats(residual, residual + 4), (Floats{1, 1, 0, 1}));
  float decoded[4];
  ASSERT_EQ(ThreeLcDecode(payload, 1, 1.5f, 4, decoded, SingleThread, units),
            1);
  EXPECT_EQ(Floats(decoded, decoded + 4), (Floats{0, -3, -12, 0}));
}

TEST_P(ThreeLcUnitsTest, MaxAbsSumIsTheLargestInUnits) {
  ForAllPieces([](const Matrix& matrix, int64_t n) {
    const Matrix inverse = matrix.Inverse();
    Floats values = RandomFloats(n, 1), residual = RandomFloats(n, 2);
    ASSERT_EQ(MaxAbsSum(values.data(), residual.data(), n, SingleThread,
                        inverse.units()),
              ReferenceMaxAbsSum(values, residual, inverse))
        << n << " " << matrix.width();
    ASSERT_EQ(
        MaxAbsSum(values.data(), nullptr, n, SingleThread, inverse.units()),
        ReferenceMaxAbsSum(values, {}, inverse));
    values[n / 2] = -kInfinity;
    EXPECT_EQ(
        MaxAbsSum(values.data(), nullptr, n, SingleThread, inverse.units()),
        kInfinity);
    values[n - 1] = kNan;
    EXPECT_TRUE(std::isnan(
        MaxAbsSum(values.data(), nullptr, n, SingleThread, inverse.units())));
  });
}

TEST_P(ThreeLcUnitsTest, EncodesAndDecodesAsTheReference) {
  ForAllPieces([](const Matrix& matrix, int64_t n) {
    for (const float scale : {0.5f, 3.0f}) {
      const Floats values = RandomFloats(n, 1);
      for (const Floats& residual : {Floats(), RandomFloats(n, 2)}) {
        const Reference expected(values, residual, scale, matrix);
        const int64_t size = expected.payload.size();
        const float* const old = residual.empty() ? nullptr : residual.data();
        Guarded<float> in(values, n % 3), new_residual(n, n % 4);
        Guarded<uint8_t> payload(QuarticSize(n), n % 5);
        ASSERT_EQ(ThreeLcEncode(in.data(), old, scale, n, new_residual.data(),
                                payload.data(), SingleThread, matrix.units()),
                  size);
        ASSERT_EQ(payload.Values(size), expected.payload)
            << n << " " << matrix.width() << " " << matrix.first;
        ASSERT_EQ(Bits(new_residual.Values()), Bits(expected.new_residual));
        ASSERT_TRUE(new_residual.GuardsAreIntact() &&
                    payload.GuardsAreIntact());

        Guarded<int8_t> ternary(n, 1);
        TernaryQuantize(values.data(), old, scale, n, ternary.data(), in.data(),
                        matrix.units());
        ASSERT_EQ(ternary.Values(), expected.ternary);
        ASSERT_EQ(Bits(in.Values()), Bits(expected.new_residual));
        ASSERT_TRUE(ternary.GuardsAreIntact() && in.GuardsAreIntact());

        Guarded<float> decoded(n, n % 4), sum(values, n % 3);
        ASSERT_EQ(ThreeLcDecode(payload.data(), size, scale, n, decoded.data(),
                                SingleThread, matrix.units()),
                  size);
        ASSERT_EQ(Bits(decoded.Values()), Bits(expected.delivered));
        ASSERT_EQ(ThreeLcDecodeAdd(payload.data(), size, scale, n, sum.data(),
                                   SingleThread, matrix.units()),
                  size);
        Floats expected_sum = values;
        for (int64_t i = 0; i < n; ++i)
          expected_sum[i] += expected.delivered[i];
        ASSERT_EQ(sum.Values(), expected_sum);
        ASSERT_TRUE(decoded.GuardsAreIntact() && sum.GuardsAreIntact());
      }
    }
  });
}

TEST_P(ThreeLcUnitsTest, PartsDoNotMatter) {
  constexpr int64_t kSize = 100003, kWidth = 333, kFirst = 50;
  const Matrix matrix = Matrix::Random(kFirst, kSize, kWidth);
  const Matrix inverse = matrix.Inverse();
  const Floats values = RandomFloats(kSize, 1);
  const float largest = ReferenceMaxAbsSum(values, {}, inverse);
  const Reference expected(values, {}, 1, matrix);
  const int64_t size = expected.payload.size();
  for (const ParallelFor& parallel_for :
       {CutAt({1, 13, 13, 64, 1000, 20000}), Threads(3), Threads(7)}) {
    EXPECT_EQ(
        MaxAbsSum(values.data(), nullptr, kSize, parallel_for, inverse.units()),
        largest);
    Floats residual(kSize), decoded(kSize);
    Bytes payload(QuarticSize(kSize));
    ASSERT_EQ(ThreeLcEncode(values.data(), nullptr, 1, kSize, residual.data(),
                            payload.data(), parallel_for, matrix.units()),
              size);
    payload.resize(size);
    EXPECT_EQ(payload, expected.payload);
    EXPECT_EQ(Bits(residual), Bits(expected.new_residual));
    ASSERT_EQ(ThreeLcDecode(payload.data(), size, 1, kSize, decoded.data(),
                            parallel_for, matrix.units()),
              size);
    EXPECT_EQ(Bits(decoded), Bits(expected.delivered));
  }
}

TEST_P(ThreeLcUnitsTest, UnitsOf1AreNone) {
  constexpr int64_t kSize = 5003;
  const Matrix ones = {Floats(51, 1), Floats(100, 1), 7};
  const Floats values = RandomFloats(kSize, 1),
               residual = RandomFloats(kSize, 2);
  const float largest =
      MaxAbsSum(values.data(), residual.data(), kSize, SingleThread);
  EXPECT_EQ(MaxAbsSum(values.data(), residual.data(), kSize, SingleThread,
                      ones.units()),
            largest);
  for (const float multiplier : {0.3f, 1.0f, 1.75f}) {
    const float scale = multiplier * largest;
    Floats new_residuals[2];
    Bytes payloads[2];
    for (int k = 0; k < 2; ++k) {
      new_residuals[k].resize(kSize);
      payloads[k].resize(QuarticSize(kSize));
      payloads[k].resize(ThreeLcEncode(
          values.data(), residual.data(), scale, kSize, new_residuals[k].data(),
          payloads[k].data(), SingleThread, k == 0 ? Units{} : ones.units()));
    }
    EXPECT_EQ(payloads[0], payloads[1]);
    EXPECT_EQ(Bits(new_residuals[0]), Bits(new_residuals[1]));
  }
}

TEST_P(ThreeLcUnitsTest, ResidualsAreExactFromAScaleOfHalfTheLargestOn) {
  constexpr int64_t kSize = 4001;
  const Matrix matrix = Matrix::Random(11, kSize, 123);
  const Floats values = RandomFloats(kSize, 1);
  const Matrix inverse = matrix.Inverse();
  const float largest = ReferenceMaxAbsSum(values, {}, inverse);
  for (const float multiplier : {0.51f, 1.0f, 1.9f}) {
    const float scale = multiplier * largest;
    Floats residual(kSize), decoded(kSize);
    Bytes payload(QuarticSize(kSize));
    const int64_t size =
        ThreeLcEncode(values.data(), nullptr, scale, kSize, residual.data(),
                      payload.data(), SingleThread, matrix.units());
    ASSERT_EQ(ThreeLcDecode(payload.data(), size, scale, kSize, decoded.data(),
                            SingleThread, matrix.units()),
              size);
    int64_t sent = 0;
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_EQ(static_cast<double>(decoded[i]) + residual[i], values[i]);
      if (decoded[i] == 0) continue;
      ++sent;
      // What is larger than M u is cut.
      ASSERT_EQ(residual[i] * values[i] > 0,
                std::fabs(values[i]) > std::fabs(decoded[i]));
    }
    EXPECT_GT(sent, 0);
  }
}

TEST_P(ThreeLcUnitsTest, WhereTheProductOverflowsNothingIsDelivered) {
  const Matrix matrix = {{1e20f}, Floats(200, 1e30f), 0};
  const Floats values(200, kMax), zeros(200);
  Floats residual(200), decoded(200, 1);
  Bytes payload(QuarticSize(200));
  const int64_t size =
      ThreeLcEncode(values.data(), nullptr, 1, 200, residual.data(),
                    payload.data(), SingleThread, matrix.units());
  EXPECT_EQ(residual, values);
  ASSERT_EQ(ThreeLcDecode(payload.data(), size, 1, 200, decoded.data(),
                          SingleThread, matrix.units()),
            size);
  EXPECT_EQ(Bits(decoded), Bits(zeros));
}

TEST_P(ThreeLcUnitsTest, GarbageIsDecodedOrRefusedWithinBounds) {
  std::mt19937 generator(1);
  for (int i = 0; i < 1000; ++i) {
    Bytes payload(generator() % 300);
    const int below = 1 + generator() % 256;
    for (uint8_t& byte : payload) byte = 255 - generator() % below;
    payload.shrink_to_fit();
    const int64_t n = 1 + generator() % 3000, size = payload.size();
    const Matrix matrix =
        Matrix::Random(generator() % 99, n, 1 + generator() % 200);
    Guarded<float> values(n, 1), sum(n, 2);
    const int64_t used = ThreeLcValidate(payload.data(), size, n, SingleThread);
    EXPECT_EQ(ThreeLcDecode(payload.data(), size, 1, n, values.data(),
                            SingleThread, matrix.units()),
              used);
    EXPECT_EQ(ThreeLcDecodeAdd(payload.data(), size, 1, n, sum.data(),
                               SingleThread, matrix.units()),
              used);
    EXPECT_TRUE(values.GuardsAreIntact() && sum.GuardsAreIntact());
  }
}

}  // namespace
}  // namespace tf_gc::kernels
