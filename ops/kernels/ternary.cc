#include "ops/kernels/ternary.h"

#include <limits>

#include "ops/kernels/denormals.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const TernaryTable& Table() { return TF_GC_ACTIVE_TABLE(kTernaryTable); }

// No value is above infinity, and all but 0 are above 0.
float NothingAboveZero(float scale) {
  return scale == 0 ? std::numeric_limits<float>::infinity() : scale;
}

}  // namespace

void NearestTernary(const float* values, int64_t n, float scale,
                    int8_t* ternary) {
  const KeepDenormals keep_denormals;
  Table().nearest(values, n, NothingAboveZero(scale), ternary);
}

void StochasticTernary(const float* values, int64_t n, float scale, Seed seed,
                       int64_t first, int8_t* ternary) {
  const KeepDenormals keep_denormals;
  Table().stochastic(values, n, NothingAboveZero(scale), seed, first, ternary);
}

}  // namespace tf_gc::kernels
