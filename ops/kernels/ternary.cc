#include "ops/kernels/ternary.h"

#include <algorithm>

#include "ops/kernels/denormals.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const TernaryTable& Table() { return TF_GC_ACTIVE_TABLE(kTernaryTable); }

}  // namespace

void NearestTernary(const float* values, int64_t n, float scale,
                    int8_t* ternary) {
  const KeepDenormals keep_denormals;
  if (scale == 0) {
    std::fill_n(ternary, n, int8_t{0});
  } else {
    Table().nearest(values, n, scale, ternary);
  }
}

void StochasticTernary(const float* values, int64_t n, float scale, Seed seed,
                       int64_t first, int8_t* ternary) {
  const KeepDenormals keep_denormals;
  if (scale == 0) {
    std::fill_n(ternary, n, int8_t{0});
  } else {
    Table().stochastic(values, n, scale, seed, first, ternary);
  }
}

}  // namespace tf_gc::kernels
