#include "ops/kernels/second_moment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/kernels/denormals.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kTileRows = 64;
constexpr int64_t kTileColumns = 1024;
constexpr double kSmallestUnit = 1e-6;

int64_t CeilOfRatio(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// means[i] <- the sum of `parts` rows of n sums each, at i, over `count`.
void Mean(const std::vector<float>& sums, int64_t n, int64_t parts,
          int64_t count, float* means) {
  std::copy_n(sums.data(), n, means);
  for (int64_t part = 1; part < parts; ++part) {
    const float* const more = sums.data() + part * n;
    for (int64_t i = 0; i < n; ++i) means[i] += more[i];
  }
  for (int64_t i = 0; i < n; ++i) means[i] /= static_cast<float>(count);
}

double MeanOf(const float* values, int64_t n) {
  return std::accumulate(values, values + n, 0.0) / n;
}

bool AreFinite(const float* values, int64_t n) {
  return std::all_of(values, values + n,
                     [](float value) { return std::isfinite(value); });
}

// By multiplication alone, which has the same bits with every C library.
double Power(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) power *= base;
  }
  return power;
}

}  // namespace

void MeanSquares(const float* values, int64_t rows, int64_t columns,
                 float* statistics, const ParallelFor& parallel_for) {
  const KeepDenormals keep_denormals;
  const int64_t row_tiles = CeilOfRatio(rows, kTileRows);
  const int64_t column_tiles = CeilOfRatio(columns, kTileColumns);
  // Of each row in every tile, and of each column.
  std::vector<float> of_rows(column_tiles * rows);
  std::vector<float> of_columns(row_tiles * columns);
  parallel_for(row_tiles * column_tiles, /*cost=*/kTileRows * kTileColumns / 4,
               [&](int64_t begin, int64_t end) {
                 const KeepDenormals keep_denormals;
                 for (int64_t tile = begin; tile < end; ++tile) {
                   const int64_t row_tile = tile / column_tiles;
                   const int64_t column_tile = tile % column_tiles;
                   const int64_t row = row_tile * kTileRows;
                   const int64_t column = column_tile * kTileColumns;
                   TF_GC_ACTIVE_TABLE(kSecondMomentTable)
                       .sum_squares(
                           values + row * columns + column,
                           std::min(kTileRows, rows - row),
                           std::min(kTileColumns, columns - column), columns,
                           of_rows.data() + column_tile * rows + row,
                           of_columns.data() + row_tile * columns + column);
                 }
               });
  Mean(of_rows, rows, column_tiles, columns, statistics);
  Mean(of_columns, columns, row_tiles, rows, statistics + rows);
}

void UpdateSecondMoment(const float* statistics, int64_t n, float decay,
                        int64_t age, float* weight, float* means) {
  if (!AreFinite(statistics, n)) return;
  const KeepDenormals keep_denormals;
  *weight *= static_cast<float>(Power(decay, age - 1));
  *weight += (1 - decay) * (1 - *weight);
  const float share = *weight > 0 ? (1 - decay) / *weight : 0;
  for (int64_t i = 0; i < n; ++i) {
    means[i] += share * (statistics[i] - means[i]);
  }
}

void SecondMomentUnits(const float* statistics, int64_t rows, int64_t columns,
                       float* units) {
  const KeepDenormals keep_denormals;
  const float* const of_columns = statistics + rows;
  const double row_mean = MeanOf(statistics, rows);
  const double column_mean = MeanOf(of_columns, columns);
  if (row_mean == 0 || column_mean == 0) {
    std::fill_n(units, rows + columns, 1.0f);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    units[i] = static_cast<float>(
        std::sqrt(std::max(statistics[i] / row_mean, kSmallestUnit)));
  }
  for (int64_t j = 0; j < columns; ++j) {
    units[rows + j] = static_cast<float>(std::sqrt(
        std::max<double>(of_columns[j], kSmallestUnit * column_mean)));
  }
}

void SecondMomentFactors(const float* statistics, int64_t rows, int64_t columns,
                         float factor, float* factors) {
  const int64_t n = rows + columns;
  if (!AreFinite(statistics, n)) {
    std::fill_n(factors, n, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const KeepDenormals keep_denormals;
  const double mean = MeanOf(statistics, rows);
  for (int64_t i = 0; i < rows; ++i) {
    factors[i] =
        mean == 0 ? 0 : static_cast<float>(factor * (statistics[i] / mean));
  }
  std::copy_n(statistics + rows, columns, factors + rows);
}

void OuterProduct(const float* factors, int64_t rows, int64_t columns,
                  float* product, const ParallelFor& parallel_for) {
  parallel_for(rows, /*cost=*/columns, [&](int64_t begin, int64_t end) {
    const KeepDenormals keep_denormals;
    TF_GC_ACTIVE_TABLE(kSecondMomentTable)
        .outer_product(factors + begin, end - begin, factors + rows, columns,
                       product + begin * columns);
  });
}

}  // namespace tf_gc::kernels
