// C names for the CPU's kernels of 3LC, for tools/gpu_check.py.

#include "ops/kernels/three_lc.h"

#include "ops/kernels/three_lc_tensor.h"

using namespace tf_gc::kernels;

extern "C" {

int64_t tf_gc_cpu_find_non_ternary(const int8_t* ternary, int64_t n) {
  return FindNonTernary(ternary, n, SingleThread);
}

void tf_gc_cpu_quartic_encode(const int8_t* ternary, int64_t n,
                              uint8_t* quartic) {
  QuarticEncode(ternary, n, quartic, SingleThread);
}

int64_t tf_gc_cpu_find_non_quartic(const uint8_t* quartic, int64_t n) {
  return FindNonQuartic(quartic, n, SingleThread);
}

// `encoded` has room for m bytes.
int64_t tf_gc_cpu_zero_run_encode(const uint8_t* quartic, int64_t m,
                                  uint8_t* encoded) {
  return ZeroRunEncode(quartic, m, encoded, SingleThread);
}

int64_t tf_gc_cpu_zero_run_decode(const uint8_t* encoded, int64_t size,
                                  int64_t m, uint8_t* quartic) {
  return ZeroRunDecode(encoded, size, m, quartic, SingleThread);
}

void tf_gc_cpu_max_abs_sum(const float* values, const float* residual,
                           int64_t n, float* result) {
  *result = MaxAbsSum(values, residual, n, SingleThread);
}

// `encoded` has room for ceil(n / 5) + 4 bytes.
int64_t tf_gc_cpu_three_lc_encode_tensor(const float* values,
                                         const float* residual,
                                         float sparsity_multiplier, int64_t n,
                                         float* new_residual,
                                         uint8_t* encoded) {
  return ThreeLcEncodeTensor(values, residual, sparsity_multiplier, n,
                             new_residual, encoded, SingleThread);
}

int64_t tf_gc_cpu_three_lc_decode(const uint8_t* payload, int64_t size,
                                  float scale, int64_t n, float* values) {
  return ThreeLcDecode(payload, size, scale, n, values, SingleThread);
}

int64_t tf_gc_cpu_three_lc_decode_add(const uint8_t* payload, int64_t size,
                                      float scale, int64_t n, float* sum) {
  return ThreeLcDecodeAdd(payload, size, scale, n, sum, SingleThread);
}

}  // extern "C"
