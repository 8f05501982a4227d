#include "ops/kernels/second_moment.h"

#include <cmath>
#include <limits>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class SecondMomentTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(SecondMomentTest);

using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

Floats RandomFloats(int64_t n) {
  std::mt19937 generator(n);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

Floats Statistics(const Floats& values, int64_t rows,
                  const ParallelFor& parallel_for = SingleThread,
                  int misalignment = 0) {
  const int64_t columns = values.size() / rows;
  Guarded<float> in(values, misalignment);
  Guarded<float> out(rows + columns, misalignment);
  MeanSquares(in.data(), rows, columns, out.data(), parallel_for);
  EXPECT_TRUE(out.GuardsAreIntact());
  return out.Values();
}

TEST_P(SecondMomentTest, StatisticsAreMeansOfSquares) {
  EXPECT_EQ(Statistics({1, 2, 3, 4, 5, 6}, 2),
            (Floats{14 / 3.f, 77 / 3.f, 17 / 2.f, 29 / 2.f, 45 / 2.f}));
}

TEST_P(SecondMomentTest, PartsAndAlignmentChangeNoBit) {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {7, 19}, {65, 1030}, {200, 3}, {2, 5000}}) {
    const Floats values = RandomFloats(rows * columns);
    const Floats expected = Statistics(values, rows);
    EXPECT_EQ(Statistics(values, rows, Threads(3), 4), expected);
    SetInstructionSet(InstructionSet::kBaseline);
    EXPECT_EQ(Statistics(values, rows), expected) << rows << " x " << columns;
    SetInstructionSet(GetParam());
  }
}

TEST_P(SecondMomentTest, OuterProductsAreThoseOfRowsAndColumns) {
  for (const int64_t columns : {1, 15, 16, 37}) {
    constexpr int64_t kRows = 5;
    const Floats factors = RandomFloats(kRows + columns);
    for (const auto& parallel_for : {ParallelFor(SingleThread), Threads(3)}) {
      Guarded<float> in(factors, 4), product(kRows * columns, 4);
      OuterProduct(in.data(), kRows, columns, product.data(), parallel_for);
      EXPECT_TRUE(product.GuardsAreIntact());
      const Floats values = product.Values();
      for (int64_t i = 0; i < kRows * columns; ++i) {
        EXPECT_EQ(values[i],
                  factors[i / columns] * factors[kRows + i % columns]);
      }
    }
  }
}

TEST_P(SecondMomentTest, TheSmallestRowsAndColumnsHaveUnits) {
  const Floats statistics = {0, kDenormal, 1, 0, kDenormal};
  Floats units(5);
  SecondMomentUnits(statistics.data(), 3, 2, units.data());
  for (const float unit : units) EXPECT_GT(unit, 0);
  EXPECT_FLOAT_EQ(units[0], 1e-3);
  EXPECT_FLOAT_EQ(units[2], std::sqrt(3.f));
}

TEST_P(SecondMomentTest, WithoutStatisticsUnitsAreOnes) {
  for (const Floats& statistics : {Floats{0, 0, 0}, Floats{1, 0, 0}}) {
    Floats units(3);
    SecondMomentUnits(statistics.data(), 1, 2, units.data());
    EXPECT_EQ(units, (Floats{1, 1, 1}));
  }
}

TEST_P(SecondMomentTest, FactorsOfABadStatisticAreNan) {
  Floats factors(4);
  const Floats bad = {1, 1, 1, kNan};
  SecondMomentFactors(bad.data(), 2, 2, 1, factors.data());
  for (const float factor : factors) EXPECT_TRUE(std::isnan(factor));
  const Floats zeros(4);
  SecondMomentFactors(zeros.data(), 2, 2, 1, factors.data());
  EXPECT_EQ(factors, zeros);
  const Floats good = {1, 3, 4, 5};
  SecondMomentFactors(good.data(), 2, 2, 3, factors.data());
  EXPECT_EQ(factors, (Floats{1.5, 4.5, 4, 5}));
}

TEST_P(SecondMomentTest, MeansFollowFiniteStatistics) {
  Floats means(2);
  float weight = 0;
  const Floats first = {4, 8}, second = {0, 16}, bad = {1, kNan};
  UpdateSecondMoment(first.data(), 2, 0.5, 1, &weight, means.data());
  EXPECT_EQ(means, first);
  // There is half as much of the first as of the second.
  for (const Floats& statistics : {second, bad}) {
    UpdateSecondMoment(statistics.data(), 2, 0.5, 1, &weight, means.data());
    EXPECT_FLOAT_EQ(means[0], 4.0f / 3);
    EXPECT_FLOAT_EQ(means[1], 40.0f / 3);
    EXPECT_EQ(weight, 0.75);
  }
}

TEST_P(SecondMomentTest, OldMeansCountForAsLittleAsThoughZeroHadFollowedThem) {
  const Floats first = {4, 8}, second = {0, 16};
  Floats means = first;
  float weight = 1;
  UpdateSecondMoment(second.data(), 2, 0.5, 3, &weight, means.data());
  EXPECT_EQ(weight, 0.125f + 0.5f);
  EXPECT_FLOAT_EQ(means[0], 0.8f);   // (4 / 8 + 0 / 2) / weight
  EXPECT_FLOAT_EQ(means[1], 14.4f);  // (8 / 8 + 16 / 2) / weight
  UpdateSecondMoment(first.data(), 2, 0.5, 1000, &weight, means.data());
  EXPECT_EQ(means, first);
}

}  // namespace
}  // namespace tf_gc::kernels
