// Counts and sums of squares of values, by magnitude: from them follows what
// any share of the largest values has of all squares, without selecting it.
//
// A bin is a range of magnitudes: those whose float32 has the same exponent and
// the same kMagnitudeMantissaBits upper bits of the mantissa. A bin's upper end
// is 1/32 to 1/63 above its lower one; of the denormal numbers, which are 0
// here, bins are wider. Bins ascend, and bin 0 has the zeros.
//
// Values that are not finite are in no bin. Squares are added up as integers,
// so that neither order nor number of threads changes a bit; each is rounded
// down by at most 2^-29 of itself. Squares of denormal numbers count as 0.

#ifndef TF_GC_OPS_KERNELS_MAGNITUDE_HISTOGRAM_H_
#define TF_GC_OPS_KERNELS_MAGNITUDE_HISTOGRAM_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

inline constexpr int kMagnitudeMantissaBits = 5;
// Exponents of finite values times upper bits of their mantissas.
inline constexpr int kMagnitudeBins = 255 << kMagnitudeMantissaBits;

// Writes for each of kMagnitudeBins bins how many of the n values it has, and
// the sum of their squares. 0 <= n <= 2^31 - 1. Reads the values once. What is
// written may not overlap what is read.
void MagnitudeHistogram(const float* values, int64_t n, int64_t* counts,
                        double* squares, const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_MAGNITUDE_HISTOGRAM_H_
