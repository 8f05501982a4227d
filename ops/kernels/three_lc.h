// 3LC: ternary quantisation with error feedback, fused with quartic and
// zero-run encoding (3LC, section 3).
//
//   t = values + residual
//   M = s max |t|                               the scale, 1 <= s < 2
//   q = sgn(t) where 2 |t| > M, else 0          = round-half-even(t / M)
//   residual <- t - M q                         exact in float32
//   payload = ZeroRun(Quartic(q))
//
// The hot path is two passes over memory: MaxAbsSum, from which the caller
// makes the scale, then ThreeLcEncode.
//
// Pointers need no alignment. n = 0 gives an empty payload. All arithmetic is
// float32 under the thread's rounding and denormal modes; under the same modes
// every instruction set and every number of threads give the same bits. +0 and
// -0 are alike.

#ifndef TF_GC_OPS_KERNELS_THREE_LC_H_
#define TF_GC_OPS_KERNELS_THREE_LC_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/parallel.h"
#include "ops/kernels/quartic.h"
#include "ops/kernels/zero_run.h"

namespace tf_gc::kernels {

// max |values[i] + residual[i]|, 0 for n = 0. If any sum is NaN or infinite so
// is the result. A null residual counts as zeros.
float MaxAbsSum(const float* values, const float* residual, int64_t n,
                const ParallelFor& parallel_for);

// Whether all of n values are finite.
inline bool AllFinite(const float* values, int64_t n,
                      const ParallelFor& parallel_for) {
  return std::isfinite(MaxAbsSum(values, nullptr, n, parallel_for));
}

// sum[i] = values[i] + residual[i] for all i. `sum` may be `values` or
// `residual` (the same address), and must not overlap them otherwise.
void AddResidual(const float* values, const float* residual, int64_t n,
                 float* sum);

// The ternary values alone, for tests and offline tools.
void TernaryQuantize(const float* values, const float* residual, float scale,
                     int64_t n, int8_t* ternary, float* new_residual);

// Quantises n values, writes the new residual and the payload, and returns the
// payload's size. `scale` is M: finite, and at least the MaxAbsSum of these
// values (it may be that of a larger tensor that they are part of). With
// scale = 0 every q is 0. A null residual counts as zeros. `new_residual` may
// be `values` or `residual`, and must not overlap them otherwise. `payload` has
// room for QuarticSize(n) bytes; those behind the payload may be overwritten,
// as parts are encoded there.
int64_t ThreeLcEncode(const float* values, const float* residual, float scale,
                      int64_t n, float* new_residual, uint8_t* payload,
                      const ParallelFor& parallel_for);

// values[i] = scale * q[i] for the n values of a payload of which `size` bytes
// are there. Returns how many bytes they took, or -1, with `values` undefined,
// if no payload of n values starts here (it ends early, a run is too long, or
// the padding is not 0). Trusts nothing: reads only payload[0 ... size-1],
// writes only values[0 ... n-1].
int64_t ThreeLcDecode(const uint8_t* payload, int64_t size, float scale,
                      int64_t n, float* values,
                      const ParallelFor& parallel_for);

// The same, but sum[i] += scale * q[i] where q[i] is not 0; the others keep
// their bits.
int64_t ThreeLcDecodeAdd(const uint8_t* payload, int64_t size, float scale,
                         int64_t n, float* sum,
                         const ParallelFor& parallel_for);

// What ThreeLcDecode would return, without decoding.
int64_t ThreeLcValidate(const uint8_t* payload, int64_t size, int64_t n,
                        const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_THREE_LC_H_
