#include <cmath>

#include "ops/cuda/bit_packing_inl.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/stochastic_quantize.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/philox.h"

namespace tf_gc::cuda {
namespace {

using kernels::PhiloxBlock;
using kernels::PhiloxWords;
using kernels::Seed;

// The values of a thread, which share a block of random numbers.
constexpr int kValues = 8;

template <int kSteps>
struct Levels {
  int count;
  float values[1 << kSteps];
};

// A level, and how far the next one is above it.
struct alignas(8) Gap {
  float low;
  float size;
};

struct Floats {
  float values[kValues];
};

// Loads from[begin ... begin + kValues - 1]; those from `end` on are 0.
__device__ inline Floats LoadValues(const float* from, int64_t begin,
                                    int64_t end, bool aligned) {
  Floats floats = {};
  from += begin;
  if (aligned && begin + kValues <= end) {
#pragma unroll
    for (int k = 0; k < kValues; k += 4) {
      const Vector<float, 4> vector = LoadVector<4>(from + k);
#pragma unroll
      for (int l = 0; l < 4; ++l) floats.values[k + l] = vector.values[l];
    }
    return floats;
  }
  const int count = TileSize(begin, kValues, end);
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    if (k < count) floats.values[k] = from[k];
  }
  return floats;
}

// Half k of the block, as r = (half + 1/2) 2^-16.
__device__ inline float Uniform(const PhiloxWords& block, int k) {
  // 128 + half 2^-16, byte by byte: exact, and so is the difference.
  const uint32_t bits =
      __byte_perm(block.words[k / 2], 0x4300, k % 2 ? 0x5432 : 0x5410);
  return __uint_as_float(bits) - (128 - 1.0f / (1 << 17));
}

// What a block of threads looks up.
template <int kSteps>
struct Lookup {
  static constexpr int kSize = 1 << kSteps;

  Gap gaps[kSize];
  // The lows of many gaps as a search tree: node 1 is its root, the children of
  // node i are 2 i and 2 i + 1. Nodes of one step lie side by side, in
  // different banks of the shared memory, where those of gaps[] share a few.
  static constexpr bool kHasTree = kSteps > 5;
  float tree[kHasTree ? kSize : 1];
};

// The quantiser of a block of threads: a search of kSteps steps.
template <int kSteps>
class Quantizer {
 public:
  static constexpr int kSize = 1 << kSteps;

  // All threads of the block must call it. `lookup` is shared.
  __device__ Quantizer(const Levels<kSteps>& levels, Lookup<kSteps>* lookup)
      : lookup_(lookup),
        lowest_(levels.values[0]),
        highest_(levels.values[levels.count - 1]) {
    const int z = static_cast<int>(threadIdx.x);
    if (z < kSize) {
      // The search never goes on to what is not below another level.
      const bool is_gap = z < levels.count - 1;
      const float low = is_gap ? levels.values[z] : __uint_as_float(0x7f800000);
      lookup->gaps[z] = {low, is_gap ? levels.values[z + 1] - low : 0};
      // z = step (2 k + 1) is in the middle of the node's gaps, which are 2
      // step.
      if (Lookup<kSteps>::kHasTree && z != 0) {
        const int step = z & -z;
        lookup->tree[kSize / 2 / step + z / (2 * step)] = low;
      }
    }
    __syncthreads();
    middle_ = lookup->gaps[kSize / 2].low;
  }

  // sizeof(Gap) times the index.
  __device__ uint32_t Index(float value, float uniform) const {
    // NaN becomes the lowest.
    const float v = fminf(fmaxf(value, lowest_), highest_);
    // The place of a gap or node in bytes, which spares a product in each step.
    const bool is_above = middle_ <= v;
    uint32_t place;
    if constexpr (Lookup<kSteps>::kHasTree) {
      place = sizeof(float) * (is_above ? 3 : 2);
#pragma unroll
      for (int step = 1; step < kSteps; ++step) {
        place = 2 * place + (At(lookup_->tree, place) <= v ? sizeof(float) : 0);
      }
      place = place * (sizeof(Gap) / sizeof(float)) - sizeof(Gap) * kSize;
    } else {
      place = is_above ? sizeof(Gap) * (kSize / 2) : 0;
#pragma unroll
      for (int step = kSize / 4; step > 0; step /= 2) {
        if (At(lookup_->gaps + step, place).low <= v) {
          place += sizeof(Gap) * step;
        }
      }
    }
    const Gap gap = At(lookup_->gaps, place);
    if (v - gap.low > uniform * gap.size) place += sizeof(Gap);
    return place;
  }

 private:
  template <typename T>
  static __device__ T At(const T* array, uint32_t place) {
    return *reinterpret_cast<const T*>(
        reinterpret_cast<const unsigned char*>(array) + place);
  }

  const Lookup<kSteps>* lookup_;
  float lowest_;
  float highest_;
  float middle_;
};

template <int kSteps, int kBits>
__global__ void __launch_bounds__(kBlockThreads)
    QuantizeKernel(const float* values, int64_t n, Levels<kSteps> levels,
                   Seed seed, int64_t first_block, uint8_t* packed,
                   int64_t size) {
  __shared__ Lookup<kSteps> lookup;
  __shared__ __align__(16) uint8_t shared[kBlockThreads * kBits];
  const Quantizer<kSteps> quantizer(levels, &lookup);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const bool aligned = IsAligned(values, 16);
  // All lanes of a warp take the same turns.
  for (int64_t i = GridThread(); i - i % 32 < CeilDiv(n, kValues);
       i += GridThreads()) {
    const Floats in = LoadValues(values, i * kValues, n, aligned);
    const PhiloxWords block = PhiloxBlock(seed, first_block + i);
    Bytes<kBits> out;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      static_assert(sizeof(Gap) == 1 << 3);
      Insert<kBits, 3>(quantizer.Index(in.values[k], Uniform(block, k)), k,
                       &out);
    }
    if ((i + 1) * kValues > n) {
      Truncate(kBits * TileSize(i * kValues, kValues, n), &out);
    }
    WarpStoreBytes(out, packed, (i - i % 32) * kBits, size,
                   shared + 32 * kBits * warp);
  }
}

// kBits bits of each index are packed. There are at most 2^kSteps levels.
template <int kSteps, int kBits>
int Quantize(const float* values, int64_t n, const float* levels,
             int num_levels, Seed seed, int64_t first, uint8_t* packed,
             void* stream) {
  Levels<kSteps> copy = {num_levels, {}};
  memcpy(copy.values, levels, num_levels * sizeof(float));
  return Launch(QuantizeKernel<kSteps, kBits>,
                BlocksOfTurns(CeilDiv(n, kValues)), kBlockThreads, stream,
                values, n, copy, seed, first / kValues, packed,
                kernels::PackedSize(n, kBits));
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_stochastic_quantize(const float* values, int64_t n,
                                   const float* levels, int num_levels,
                                   uint64_t key, uint64_t seed_stream,
                                   int64_t first, uint8_t* indices,
                                   void* stream) {
  const auto quantize = num_levels <= 4    ? Quantize<2, 8>
                        : num_levels <= 8  ? Quantize<3, 8>
                        : num_levels <= 16 ? Quantize<4, 8>
                        : num_levels <= 32 ? Quantize<5, 8>
                                           : Quantize<8, 8>;
  return quantize(values, n, levels, num_levels, {key, seed_stream}, first,
                  indices, stream);
}

int tf_gc_cuda_stochastic_quantize_pack(const float* values, int64_t n,
                                        const float* levels, int num_levels,
                                        uint64_t key, uint64_t seed_stream,
                                        int64_t first, int bits,
                                        uint8_t* packed, void* stream) {
  return WithBits(bits, [&](auto constant) {
    constexpr int kBits = decltype(constant)::value;
    return Quantize<kBits, kBits>(values, n, levels, num_levels,
                                  {key, seed_stream}, first, packed, stream);
  });
}
