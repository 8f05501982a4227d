#include "ops/kernels/selected_sum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/kernels/index_packing.h"

namespace tf_gc::kernels {
namespace {

// Processor cycles, about, that an index takes to be unpacked, and a value to
// be added.
constexpr int64_t kUnpackCost = 4;
constexpr int64_t kAddCost = 4;

// The sums of a unit of work stay in the second-level cache.
constexpr int64_t kUnit = 1 << 14;

}  // namespace

int64_t SelectedSize(int64_t k, int64_t n) {
  return PackedIndicesSize(k, n) + k * static_cast<int64_t>(sizeof(float));
}

SelectedError SumSelected(const uint8_t* messages, int64_t count, int64_t k,
                          int64_t n, const ParallelFor& parallel_for,
                          int32_t* indices, float* sums) {
  const int64_t size = SelectedSize(k, n);
  const int64_t packed_size = PackedIndicesSize(k, n);
  std::vector<const char*> errors(count);
  parallel_for(count, k * kUnpackCost, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      errors[m] = UnpackIndices(messages + m * size, k, n, indices + m * k);
    }
  });
  for (int64_t m = 0; m < count; ++m) {
    if (errors[m] != nullptr) return {errors[m], m};
  }
  const int64_t cost = 1 + kAddCost * count * k / std::max<int64_t>(n, 1);
  ParallelForUnits(
      parallel_for, n, kUnit, cost, [&](int64_t begin, int64_t end) {
        // Where each message goes on.
        std::vector<int64_t> next(count);
        for (int64_t m = 0; m < count; ++m) {
          const int32_t* const first = indices + m * k;
          next[m] = std::lower_bound(first, first + k, begin) - first;
        }
        for (int64_t unit = begin; unit < end; unit += kUnit) {
          const int64_t unit_end = std::min(unit + kUnit, end);
          std::fill(sums + unit, sums + unit_end, 0.0f);
          for (int64_t m = 0; m < count; ++m) {
            const int32_t* const places = indices + m * k;
            const uint8_t* const values = messages + m * size + packed_size;
            int64_t j = next[m];
            for (; j < k && places[j] < unit_end; ++j) {
              float value;
              std::memcpy(&value, values + j * sizeof(float), sizeof(float));
              sums[places[j]] += value;
            }
            next[m] = j;
          }
        }
      });
  return {};
}

}  // namespace tf_gc::kernels
