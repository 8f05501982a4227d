// C names for the CPU's kernels of ternary quantisation, for
// tools/gpu_check.py.

#include "ops/kernels/ternary.h"

using namespace tf_gc::kernels;

extern "C" {

void tf_gc_cpu_nearest_ternary(const float* values, int64_t n, float scale,
                               int8_t* ternary) {
  NearestTernary(values, n, scale, ternary);
}

void tf_gc_cpu_stochastic_ternary(const float* values, int64_t n, float scale,
                                  uint64_t seed_key, uint64_t seed_stream,
                                  int64_t first, int8_t* ternary) {
  StochasticTernary(values, n, scale, Seed{seed_key, seed_stream}, first,
                    ternary);
}

}  // extern "C"
