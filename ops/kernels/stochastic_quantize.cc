#include "ops/kernels/stochastic_quantize.h"

#include <cmath>

#include "ops/kernels/denormals.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const StochasticQuantizeTable& Table() {
  return TF_GC_ACTIVE_TABLE(kStochasticQuantizeTable);
}

}  // namespace

int FindBadLevel(const float* levels, int num_levels) {
  const KeepDenormals keep_denormals;
  for (int i = 0; i < num_levels; ++i) {
    if (!std::isfinite(levels[i])) return i;
    if (i > 0 && levels[i] < levels[i - 1]) return i;
  }
  return -1;
}

void StochasticQuantize(const float* values, int64_t n, const float* levels,
                        int num_levels, Seed seed, int64_t first,
                        uint8_t* indices) {
  const KeepDenormals keep_denormals;
  Table().quantize(values, n, levels, num_levels, seed, first, indices);
}

void StochasticQuantizePack(const float* values, float divisor, int64_t n,
                            const float* levels, int num_levels, Seed seed,
                            int64_t first, int bits, uint8_t* packed) {
  const KeepDenormals keep_denormals;
  Table().quantize_pack(values, divisor, n, levels, num_levels, seed, first,
                        bits, packed);
}

void NearestQuantizePack(const float* values, float divisor, int64_t n,
                         const float* levels, int num_levels, int bits,
                         uint8_t* packed) {
  const KeepDenormals keep_denormals;
  Table().nearest_quantize_pack(values, divisor, n, levels, num_levels, bits,
                                packed);
}

}  // namespace tf_gc::kernels
