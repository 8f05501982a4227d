#include "ops/cuda/launch.h"
#include "ops/cuda/ternary.h"
#include "ops/kernels/philox.h"

namespace tf_gc::cuda {
namespace {

using kernels::PhiloxBlock;
using kernels::PhiloxHalf;
using kernels::PhiloxWords;
using kernels::Seed;

// Values of a thread, for which one block has random numbers.
constexpr int kUnit = 8;

constexpr uint32_t kMagnitudeBits = 0x7fffffff;

// What divides the magnitudes that become 0 from the others.
struct Nearest {
  struct Unit {};
  float scale;

  __device__ Unit Start(int64_t) const { return {}; }
  __device__ bool IsNonzero(const Unit&, int, float magnitude) const {
    return magnitude + magnitude > scale;
  }
};

struct Stochastic {
  using Unit = PhiloxWords;
  float scale;
  Seed seed;
  uint64_t first_block;

  __device__ Unit Start(int64_t unit) const {
    return PhiloxBlock(seed, first_block + unit);
  }
  __device__ bool IsNonzero(const Unit& block, int k, float magnitude) const {
    // (u + 0.5) 2^-16: the bits behind the point of a number between 1 and 2.
    const float r =
        __uint_as_float(PhiloxHalf(block, k) << 7 | 0x3f800040) - 1.0f;
    return magnitude > r * scale;
  }
};

template <typename Rule>
__device__ inline int8_t Quantize(const Rule& rule,
                                  const typename Rule::Unit& unit, int k,
                                  float value) {
  const uint32_t bits = __float_as_uint(value);
  const float magnitude = __uint_as_float(bits & kMagnitudeBits);
  if (!rule.IsNonzero(unit, k, magnitude)) return 0;
  return bits > kMagnitudeBits ? -1 : 1;
}

// kAligned: values are aligned to 16 bytes, ternary ones to 8.
template <typename Rule, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads)
    QuantizeKernel(const float* values, int64_t n, Rule rule, int8_t* ternary) {
  const int64_t begin = kUnit * GridThread();
  const int size = TileSize(begin, kUnit, n);
  if (size == 0) return;
  values += begin;
  ternary += begin;
  if (kAligned && size == kUnit) {
    const auto low = LoadVector<kUnit / 2>(values);
    const auto high = LoadVector<kUnit / 2>(values + kUnit / 2);
    const typename Rule::Unit unit = rule.Start(GridThread());
    Vector<int8_t, kUnit> q;
#pragma unroll
    for (int k = 0; k < kUnit / 2; ++k) {
      q.values[k] = Quantize(rule, unit, k, low.values[k]);
      q.values[k + kUnit / 2] =
          Quantize(rule, unit, k + kUnit / 2, high.values[k]);
    }
    StoreVector(q, ternary);
    return;
  }
  float loaded[kUnit];
#pragma unroll
  for (int k = 0; k < kUnit; ++k) loaded[k] = k < size ? values[k] : 0;
  const typename Rule::Unit unit = rule.Start(GridThread());
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    if (k < size) ternary[k] = Quantize(rule, unit, k, loaded[k]);
  }
}

template <typename Rule>
int Quantize(const float* values, int64_t n, Rule rule, int8_t* ternary,
             void* stream) {
  // No value is above infinity, and all but 0 are above 0.
  if (rule.scale == 0) rule.scale = __builtin_inff();
  const bool aligned =
      AddressModulo16(values) == 0 && AddressModulo16(ternary) % kUnit == 0;
  return Launch(
      aligned ? QuantizeKernel<Rule, true> : QuantizeKernel<Rule, false>,
      CeilDiv(n, kUnit * kBlockThreads), kBlockThreads, stream, values, n, rule,
      ternary);
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_nearest_ternary(const float* values, int64_t n, float scale,
                               int8_t* ternary, void* stream) {
  return Quantize(values, n, Nearest{scale}, ternary, stream);
}

int tf_gc_cuda_stochastic_ternary(const float* values, int64_t n, float scale,
                                  uint64_t seed_key, uint64_t seed_stream,
                                  int64_t first, int8_t* ternary,
                                  void* stream) {
  const Stochastic rule = {scale, Seed{seed_key, seed_stream},
                           static_cast<uint64_t>(first) / kUnit};
  return Quantize(values, n, rule, ternary, stream);
}
