#include "ops/cuda/bytes.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/signs.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/signs.h"

namespace tf_gc::cuda {
namespace {

using kernels::PhiloxBlock;
using kernels::PhiloxHalf;
using kernels::PhiloxKeys;
using kernels::PhiloxWords;

// ---- Packing and unpacking --------------------------------------------------

// Each lane of a warp has a word of 32 signs. Its values are read and written
// by the whole warp, one of them by each lane: full lines at any alignment.
constexpr int kLanes = 32;
constexpr int kWarpValues = kLanes * 32;

// Words whose values are under way at once.
constexpr int kLoads = 16;

// The lane's word of the warp's values, of which there are `size` if not all.
template <bool kAll>
__device__ inline uint32_t PackWord(const float* values, int lane, int size) {
  uint32_t own = 0;
#pragma unroll
  for (int first = 0; first < kLanes; first += kLoads) {
    float loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int i = 32 * (first + k) + lane;
      loaded[k] = kAll || i < size ? values[i] : -1.0f;
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const uint32_t word = __ballot_sync(~0u, loaded[k] >= 0);
      if (lane == first + k) own = word;
    }
  }
  return own;
}

__global__ void __launch_bounds__(kBlockThreads)
    PackKernel(const float* values, int64_t n, uint8_t* packed) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t word = GridThread();
  const int64_t begin = 32 * (word - lane);
  const int size = TileSize(begin, kWarpValues, n);
  if (size == 0) return;
  const uint32_t own = size == kWarpValues
                           ? PackWord<true>(values + begin, lane, size)
                           : PackWord<false>(values + begin, lane, size);
  const int bytes = TileSize(4 * word, 4, CeilDiv(n, 8));
  StoreBytes(own, bytes, packed + 4 * word);
}

template <bool kAll>
__device__ inline void UnpackWord(uint32_t own, int lane, int size,
                                  float* values) {
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    const uint32_t word = __shfl_sync(~0u, own, k);
    const int i = 32 * k + lane;
    const float value = word >> lane & 1 ? 1.0f : -1.0f;
    if (kAll || i < size) values[i] = value;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    UnpackKernel(const uint8_t* packed, int64_t n, float* values,
                 int64_t* padding) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t word = GridThread();
  const int64_t begin = 32 * (word - lane);
  const int size = TileSize(begin, kWarpValues, n);
  if (size == 0) return;
  const int bytes = TileSize(4 * word, 4, CeilDiv(n, 8));
  const uint32_t own = LoadBytes(packed + 4 * word, bytes);
  const int64_t rest = n - 32 * word;
  if (rest >= 1 && rest <= 32) *padding = rest < 32 && own >> rest != 0;
  if (size == kWarpValues) {
    UnpackWord<true>(own, lane, size, values + begin);
  } else {
    UnpackWord<false>(own, lane, size, values + begin);
  }
}

// ---- Merging ----------------------------------------------------------------

// 128 values, which have random numbers of their own: those of kGroupBlocks
// blocks, the planes first.
constexpr int kGroupBytes = 16;
constexpr int kGroupWords = 4;
constexpr int kGroupBlocks = 32;
constexpr int kPlanes = 3;
constexpr int kHalves = 8;  // Of a block.

struct Group {
  uint32_t words[kGroupWords];
};

__device__ inline Group LoadGroup(const uint8_t* bytes, int count) {
  Group group;
  if (count == kGroupBytes && AddressModulo16(bytes) == 0) {
    const auto vector =
        LoadVector<kGroupWords>(reinterpret_cast<const uint32_t*>(bytes));
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) group.words[w] = vector.values[w];
  } else {
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) {
      group.words[w] = LoadBytes(bytes + 4 * w, TileSize(4 * w, 4, count));
    }
  }
  return group;
}

__device__ inline void StoreGroup(const Group& group, int count,
                                  uint8_t* bytes) {
  if (count == kGroupBytes && AddressModulo16(bytes) == 0) {
    Vector<uint32_t, kGroupWords> vector;
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) vector.values[w] = group.words[w];
    StoreVector(vector, reinterpret_cast<uint32_t*>(bytes));
  } else {
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) {
      StoreBytes(group.words[w], TileSize(4 * w, 4, count), bytes + 4 * w);
    }
  }
}

// The random numbers of a merge.
struct Random {
  PhiloxKeys keys;
  uint64_t stream;
  uint64_t first_block;  // Of the first group.

  __device__ PhiloxWords Block(int64_t group, int block) const {
    return PhiloxBlock(keys, stream,
                       first_block + kGroupBlocks * group + block);
  }
};

// The threshold T of 19 bits, by its parts.
struct Threshold {
  uint32_t value;
  int planes;    // The upper bits that can change the result.
  uint32_t low;  // The lower 16 bits.
};

Threshold MakeThreshold(int64_t first_count, int64_t second_count) {
  const uint32_t value = kernels::SignMergeThreshold(first_count, second_count);
  int planes = kPlanes;
  while (planes > 0 && (value & ((1u << (19 - planes + 1)) - 1)) == 0) --planes;
  return {value, planes, value & 0xffff};
}

// Bit h is 1 where half h of the block is below `low`.
__device__ inline uint32_t HalvesBelow(const PhiloxWords& block, uint32_t low) {
  uint32_t below = 0;
#pragma unroll
  for (int h = kHalves - 1; h >= 0; --h) {
    // The sign of the difference comes in from below.
    below = __funnelshift_l(PhiloxHalf(block, h) - low, below, 1);
  }
  return below;
}

// A bit for each of `count` undecided values: whether its low bits are below
// those of the threshold.
__device__ inline Group DrawLowBits(const Random& random, int64_t group,
                                    int count, uint32_t low) {
  Group below = {};
#pragma unroll 1
  for (int b = (count - 1) / kHalves; b >= 0; --b) {
#pragma unroll
    for (int w = kGroupWords - 1; w > 0; --w) {
      below.words[w] =
          __funnelshift_l(below.words[w - 1], below.words[w], kHalves);
    }
    below.words[0] = below.words[0] << kHalves |
                     HalvesBelow(random.Block(group, kPlanes + b), low);
  }
  return below;
}

// Merges the group with the number `group`.
__device__ inline Group Merge(const Group& first, const Group& second,
                              const Threshold& threshold, const Random& random,
                              int64_t group) {
  // Of the values that differ: U = T as far as the planes tell; U < T.
  Group equal, less;
#pragma unroll
  for (int w = 0; w < kGroupWords; ++w) {
    equal.words[w] = first.words[w] ^ second.words[w];
    less.words[w] = threshold.value >> 19 ? equal.words[w] : 0;
  }
#pragma unroll
  for (int t = 0; t < kPlanes; ++t) {
    if (t >= threshold.planes) break;
    const uint32_t bit = 0u - (threshold.value >> (18 - t) & 1);
    const PhiloxWords plane = random.Block(group, t);
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) {
      less.words[w] |= equal.words[w] & bit & ~plane.words[w];
      equal.words[w] &= ~(plane.words[w] ^ bit);
    }
  }
  if (threshold.low != 0) {
    int undecided = 0;
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) undecided += __popc(equal.words[w]);
    Group below = undecided == 0
                      ? Group{}
                      : DrawLowBits(random, group, undecided, threshold.low);
#pragma unroll
    for (int w = 0; w < kGroupWords; ++w) {
      uint32_t bits = below.words[0];
      for (uint32_t rest = equal.words[w]; rest != 0; rest &= rest - 1) {
        if (bits & 1) less.words[w] |= rest & (0u - rest);
        bits >>= 1;
      }
      // Those of the next word. Shifts are clamped to 32; what comes in behind
      // the last word would reach the first one after four of them.
      const int used = __popc(equal.words[w]);
#pragma unroll
      for (int v = 0; v < kGroupWords - 1; ++v) {
        below.words[v] =
            __funnelshift_rc(below.words[v], below.words[v + 1], used);
      }
    }
  }
  Group merged;
#pragma unroll
  for (int w = 0; w < kGroupWords; ++w) {
    merged.words[w] = second.words[w] ^ less.words[w];
  }
  return merged;
}

__global__ void __launch_bounds__(kBlockThreads)
    MergeKernel(const uint8_t* first, const uint8_t* second, int64_t bytes,
                Threshold threshold, Random random, uint8_t* merged) {
  const int64_t group = GridThread();
  const int64_t begin = kGroupBytes * group;
  const int size = TileSize(begin, kGroupBytes, bytes);
  if (size == 0) return;
  const Group result =
      Merge(LoadGroup(first + begin, size), LoadGroup(second + begin, size),
            threshold, random, group);
  StoreGroup(result, size, merged + begin);
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_sign_pack(const float* values, int64_t n, uint8_t* packed,
                         void* stream) {
  return Launch(PackKernel, CeilDiv(n, 32 * kBlockThreads), kBlockThreads,
                stream, values, n, packed);
}

int tf_gc_cuda_sign_unpack(const uint8_t* packed, int64_t n, float* values,
                           int64_t* padding, void* stream) {
  if (n == 0) {
    return cudaMemsetAsync(padding, 0, sizeof(*padding),
                           static_cast<cudaStream_t>(stream));
  }
  return Launch(UnpackKernel, CeilDiv(n, 32 * kBlockThreads), kBlockThreads,
                stream, packed, n, values, padding);
}

int tf_gc_cuda_sign_merge(const uint8_t* first, const uint8_t* second,
                          int64_t bytes, int64_t first_count,
                          int64_t second_count, uint64_t seed_key,
                          uint64_t seed_stream, int64_t first_byte,
                          uint8_t* merged, void* stream) {
  const Random random = {
      tf_gc::kernels::MakePhiloxKeys(seed_key), seed_stream,
      static_cast<uint64_t>(first_byte) / kGroupBytes * kGroupBlocks};
  return Launch(MergeKernel, CeilDiv(bytes, kGroupBytes * kBlockThreads),
                kBlockThreads, stream, first, second, bytes,
                MakeThreshold(first_count, second_count), random, merged);
}
