// Speed of ternary quantisation with a given scale.

#include <cstdint>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/ternary.h"

namespace tf_gc::kernels {
namespace {

// Half of Gaussian values are sent.
constexpr float kScale = 1.35f;

// quantize(values, n, first, ternary) on all values.
template <typename Quantize>
void Register(const std::string& name, const Quantize& quantize) {
  RegisterForAll(
      name, [=](benchmark::State& state, const ParallelFor& parallel_for) {
        const std::vector<float> values = RandomValues(kValues);
        std::vector<int8_t> ternary(kValues);
        for (auto _ : state) {
          ParallelForUnits(parallel_for, kValues, 512, 1,
                           [&](int64_t begin, int64_t end) {
                             quantize(values.data() + begin, end - begin, begin,
                                      ternary.data() + begin);
                           });
          benchmark::ClobberMemory();
        }
        SetRate(state);
      });
}

const bool kRegistered = [] {
  Register("NearestTernary",
           [](const float* values, int64_t n, int64_t, int8_t* ternary) {
             NearestTernary(values, n, kScale, ternary);
           });
  Register("StochasticTernary",
           [](const float* values, int64_t n, int64_t first, int8_t* ternary) {
             StochasticTernary(values, n, kScale, {1, 2}, first, ternary);
           });
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
