// The second moments of a matrix's values, from those of its rows and columns.
//
// A matrix of `rows` x `columns` values v, both at least 1, row after row, has
// rows + columns statistics: the means of v^2 of each row, r, and then of each
// column, c. What they say of a single value is r_i c_j / mean(r), as in
// Adafactor (Shazeer, Stern, ICML 2018).
//
// All arithmetic is that of float32 but where it is said, and gives the same
// bits on every instruction set and number of threads. What is written may not
// overlap what is read.

#ifndef TF_GC_OPS_KERNELS_SECOND_MOMENT_H_
#define TF_GC_OPS_KERNELS_SECOND_MOMENT_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// Writes the statistics of a matrix, and reads it once. Sums are added up in
// tiles of 64 rows and 1024 columns, in a tile those of a row in 16 lanes and
// those of a column in order, and then tile after tile.
void MeanSquares(const float* values, int64_t rows, int64_t columns,
                 float* statistics, const ParallelFor& parallel_for);

// Lets the means of n statistics follow these. The weight w of what is in the
// means, which followed others `age` steps ago, is 0 at first:
//
//   w <- decay^age w + (1 - decay),
//   mean <- mean + (1 - decay) / w (statistic - mean)
//
// They are Adam's moments, corrected for their bias. All stay as they are where
// a statistic is not finite.
void UpdateSecondMoment(const float* statistics, int64_t n, float decay,
                        int64_t age, float* weight, float* means);

// Writes the rows + columns factors a and b of the units u_ij = a_i b_j in
// which the values of a matrix are compared:
//
//   a_i = sqrt(max(r_i, e mean(r)) / mean(r)),   b_j = sqrt(max(c_j, e
//   mean(c)))
//
// with e = 10^-6, in float64, rounded once; all ones if mean(r) or mean(c) is
// 0. The statistics are finite, and not negative.
void SecondMomentUnits(const float* statistics, int64_t rows, int64_t columns,
                       float* units);

// Writes rows + columns factors a and b of the second moments
// v_ij = a_i b_j = factor r_i c_j / mean(r):
//
//   a_i = factor r_i / mean(r),   b_j = c_j
//
// a in float64, rounded once; 0 if mean(r) is 0. Where a statistic is not
// finite, all are NaN.
void SecondMomentFactors(const float* statistics, int64_t rows, int64_t columns,
                         float factor, float* factors);

// product_ij <- a_i b_j, for rows + columns factors.
void OuterProduct(const float* factors, int64_t rows, int64_t columns,
                  float* product, const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_SECOND_MOMENT_H_
