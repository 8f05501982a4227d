// The body of a dense gradient in a push. Where the codec's string has `rows`,
// the variable is seen as a matrix, and the statistics of the worker's
// gradients (ops/kernels/second_moment.h), as bfloat16, come before the values,
// in whatever codec these are. 3LC may quantise in the units that follow from
// these very numbers (`units`): a push needs nothing else to be decoded,
// whatever its age.

#ifndef TF_GC_OPS_PARAMETER_SERVER_PUSH_BODY_H_
#define TF_GC_OPS_PARAMETER_SERVER_PUSH_BODY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/parameter_server/codec.h"

namespace tf_gc::parameter_server {

// Whether n values can be seen as a matrix of so many rows; 0 stands for none.
constexpr bool HasMatrix(int64_t rows, int64_t n) {
  return rows == 0 || (n > 0 && n % rows == 0);
}

// How many statistics n values in `rows` rows have: none without rows.
constexpr int64_t StatisticsCount(int64_t rows, int64_t n) {
  return rows > 0 ? rows + n / rows : 0;
}

// The bytes that they take.
constexpr int64_t StatisticsSize(int64_t rows, int64_t n) {
  return StatisticsCount(rows, n) * static_cast<int64_t>(sizeof(uint16_t));
}

// Those of a body, which is at least as long.
std::vector<float> DecodeStatistics(const uint8_t* body, int64_t rows,
                                    int64_t n);

// The same as the functions of codec.h, with statistics if there are rows,
// which then divide n.

int64_t MaxPushSize(Codec codec, int64_t rows, int64_t n);

Encoded EncodePushBody(Codec codec, kernels::ThreeLcScaling scaling,
                       int64_t rows, bool units,
                       const std::vector<float>& statistics,
                       const float* values, const float* residual, int64_t n,
                       float* new_residual, uint8_t* body,
                       const kernels::ParallelFor& parallel_for);

absl::Status CheckPushBody(Codec codec, int64_t rows, const uint8_t* body,
                           int64_t size, int64_t n, const std::string& what,
                           const kernels::ParallelFor& parallel_for);

void DecodePushBody(Codec codec, int64_t rows, bool units, const uint8_t* body,
                    int64_t size, int64_t n, float* values,
                    const kernels::ParallelFor& parallel_for);

void DecodeAddPushBody(Codec codec, int64_t rows, bool units,
                       const uint8_t* body, int64_t size, int64_t n, float* sum,
                       const kernels::ParallelFor& parallel_for);

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_PUSH_BODY_H_
