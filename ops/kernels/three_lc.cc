#include "ops/kernels/three_lc.h"

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

const ThreeLcTable& Table() { return TF_GC_ACTIVE_TABLE(kThreeLcTable); }

}  // namespace

float MaxAbsSum(const float* values, const float* residual, int64_t n) {
  return Table().max_abs_sum(values, residual, n);
}

void AddResidual(const float* values, const float* residual, int64_t n,
                 float* sum) {
  Table().add_residual(values, residual, n, sum);
}

void TernaryQuantize(const float* values, const float* residual, float scale,
                     int64_t n, int8_t* ternary, float* new_residual) {
  Table().ternary_quantize(values, residual, scale, n, ternary, new_residual);
}

int64_t ThreeLcEncode(const float* values, const float* residual, float scale,
                      int64_t n, float* new_residual, uint8_t* payload) {
  return Table().encode(values, residual, scale, n, QuarticSize(n),
                        new_residual, payload);
}

int64_t ThreeLcDecode(const uint8_t* payload, int64_t size, float scale,
                      int64_t n, float* values) {
  return Table().decode(payload, size, scale, n, QuarticSize(n), values);
}

int64_t ThreeLcDecodeAdd(const uint8_t* payload, int64_t size, float scale,
                         int64_t n, float* sum) {
  return Table().decode_add(payload, size, scale, n, QuarticSize(n), sum);
}

int64_t ThreeLcValidate(const uint8_t* payload, int64_t size, int64_t n) {
  return Table().validate(payload, size, n, QuarticSize(n));
}

}  // namespace tf_gc::kernels
