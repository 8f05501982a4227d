#include <cmath>

#include "ops/cuda/hadamard.h"
#include "ops/cuda/launch.h"
#include "ops/kernels/philox.h"

namespace tf_gc::cuda {
namespace {

using kernels::PhiloxBlock;
using kernels::PhiloxWords;
using kernels::Seed;

// A thread transforms 2^kRadixBits values, in registers.
constexpr int kRadixBits = 4;
constexpr int kRadix = 1 << kRadixBits;

// The rows' lowest levels, of which a block has all values.
constexpr int kMaxTileBits = 13;

// Higher levels: a block has 2^kColumnBits values at each of 32 columns.
constexpr int kColumnBits = 8;
constexpr int kColumnThreads = 32 << (kColumnBits - kRadixBits);

// What a pass over the values does besides its levels.
struct Pass {
  const float* values;
  int64_t n;
  float* transformed;
  Seed seed;
  bool signs_before;
  bool signs_after;
  float scale;
};

// The first `levels` of the thread's levels: value j is `j` of them away from
// value 0.
__device__ inline void Transform(float (&x)[kRadix], int levels) {
#pragma unroll
  for (int level = 0; level < kRadixBits; ++level) {
    if (level >= levels) return;
    const int h = 1 << level;
#pragma unroll
    for (int j = 0; j < kRadix; ++j) {
      if (j & h) continue;
      const float a = x[j];
      const float b = x[j + h];
      x[j] = a + b;
      x[j + h] = a - b;
    }
  }
}

__device__ inline float FlipSign(float x, uint32_t signs, int bit) {
  return __uint_as_float(__float_as_uint(x) ^ (signs >> bit << 31));
}

// The signs of the values i ... i + 31, a multiple of 32.
__device__ inline uint32_t SignWord(Seed seed, int64_t i) {
  const PhiloxWords block = PhiloxBlock(seed, i / 128);
  // An index would move the words to memory.
  const uint32_t low = i & 32 ? block.words[1] : block.words[0];
  const uint32_t high = i & 32 ? block.words[3] : block.words[2];
  return i & 64 ? high : low;
}

// The end of a pass: the thread has x[j] of the lane's place behind
// row(j), a multiple of 32 that is the same for all lanes.
template <typename Row>
__device__ inline void Finish(const Pass& pass, const Row& row,
                              float (&x)[kRadix]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  uint32_t signs = 0;
  if (pass.signs_after) signs = SignWord(pass.seed, row(lane % kRadix));
#pragma unroll
  for (int j = 0; j < kRadix; ++j) {
    const int64_t i = row(j) + lane;
    const uint32_t word = pass.signs_after ? __shfl_sync(~0u, signs, j) : 0;
    if (i < pass.n)
      pass.transformed[i] = FlipSign(x[j] * pass.scale, word, lane);
  }
}

// ---- The lowest levels ------------------------------------------------------

// Where value i of the tile is in shared memory: so that neither 16
// values side by side, read as vectors, nor those 16 apart share banks.
__host__ __device__ constexpr int Place(int i) {
  return i + i / 32 * 4 + i / 256 * 16;
}

__device__ inline void LoadRun(const Pass& pass, int64_t begin,
                               float (&x)[kRadix]) {
  if (begin + kRadix <= pass.n && AddressModulo16(pass.values) == 0) {
#pragma unroll
    for (int j = 0; j < kRadix; j += 4) {
      const Vector<float, 4> vector = LoadVector<4>(pass.values + begin + j);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[j + k] = vector.values[k];
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kRadix; ++j) {
    x[j] = begin + j < pass.n ? pass.values[begin + j] : 0;
  }
}

__device__ inline void StoreRun(const float (&x)[kRadix], float* run) {
#pragma unroll
  for (int j = 0; j < kRadix; j += 4) {
    StoreVector(Vector<float, 4>{{x[j], x[j + 1], x[j + 2], x[j + 3]}},
                run + j);
  }
}

// kStride apart.
template <int kStride>
__device__ inline void LoadShared(const float* shared, float (&x)[kRadix]) {
#pragma unroll
  for (int j = 0; j < kRadix; ++j) x[j] = shared[Place(j * kStride)];
}
template <int kStride>
__device__ inline void StoreShared(const float (&x)[kRadix], float* shared) {
#pragma unroll
  for (int j = 0; j < kRadix; ++j) shared[Place(j * kStride)] = x[j];
}

// A block transforms 2^kBits values, rows or parts of one: their levels
// 0 ... levels - 1.
template <int kBits>
__global__ void __launch_bounds__(1 << (kBits - kRadixBits),
                                  1536 >> (kBits - kRadixBits))
    TileKernel(Pass pass, int levels) {
  constexpr int kSize = 1 << kBits;
  __shared__ __align__(16) float shared[Place(kSize - 1) + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kSize;
  float x[kRadix];

  LoadRun(pass, tile + kRadix * thread, x);
  if (pass.signs_before) {
    const int64_t i = tile + kRadix * thread;
    const uint32_t signs = SignWord(pass.seed, i) >> (i % 32);
#pragma unroll
    for (int j = 0; j < kRadix; ++j) x[j] = FlipSign(x[j], signs, j);
  }
  Transform(x, levels);
  StoreRun(x, shared + Place(kRadix * thread));
  __syncthreads();

  if (levels > kRadixBits) {
    float* const own = shared + Place(thread / 16 * 256) + thread % 16;
    LoadShared<16>(own, x);
    Transform(x, levels - kRadixBits);
    StoreShared<16>(x, own);
    __syncthreads();
  }

  const int begin = thread / 256 * 4096 + thread % 256;
  float* const own = shared + Place(begin);
  LoadShared<256>(own, x);
  Transform(x, levels - 2 * kRadixBits);
  if constexpr (kBits > 3 * kRadixBits) {
    if (levels > 3 * kRadixBits) {
      StoreShared<256>(x, own);
      __syncthreads();
      const bool upper = begin >= 4096;
      float other[kRadix];
      LoadShared<256>(shared + Place(begin ^ 4096), other);
#pragma unroll
      for (int j = 0; j < kRadix; ++j) {
        x[j] = upper ? other[j] - x[j] : x[j] + other[j];
      }
    }
  }
  const int64_t row = tile + begin - thread % 32;
  Finish(pass, [=](int j) { return row + 256 * j; }, x);
}

// ---- Higher levels ----------------------------------------------------------

// A block transforms the levels first_level ... first_level + levels - 1, from
// kRadixBits to kColumnBits of them: lines of 32 values side by side, of which
// 2^levels are 2^first_level apart, and the next ones are behind the first.
__global__ void __launch_bounds__(kColumnThreads, 1536 / kColumnThreads)
    ColumnKernel(Pass pass, int first_level, int levels) {
  __shared__ float shared[1 << kColumnBits][32];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  // The block's values side by side, and the blocks that are side by side.
  const int side_bits = 5 + kColumnBits - levels;
  const int block_bits = first_level - side_bits;
  const int64_t block = blockIdx.x;
  const int64_t begin =
      (block >> block_bits << (first_level + levels)) +
      ((block & ((int64_t{1} << block_bits) - 1)) << side_bits);
  float x[kRadix];

  // Lines 16 warp ... 16 warp + 15.
  const int side = kRadix * warp >> levels;
  const int line = (kRadix * warp) - (side << levels);
  const int64_t run =
      begin + (static_cast<int64_t>(line) << first_level) + 32 * side;
  const float* from = pass.values + run + lane;
#pragma unroll
  for (int j = 0; j < kRadix; ++j) {
    x[j] = *from;
    from += int64_t{1} << first_level;
  }
  Transform(x, levels);
  if (levels == kRadixBits) {
    Finish(
        pass,
        [=](int j) { return run + (static_cast<int64_t>(j) << first_level); },
        x);
    return;
  }

  // Lines warp, warp + 16, ...
#pragma unroll
  for (int j = 0; j < kRadix; ++j) shared[kRadix * warp + j][lane] = x[j];
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kRadix; ++j) x[j] = shared[kRadix * j + warp][lane];
  const int rest = levels - kRadixBits;
  Transform(x, rest);
  const int64_t first = begin + (static_cast<int64_t>(warp) << first_level);
  Finish(
      pass,
      [=](int j) {
        const int64_t far = j & ((1 << rest) - 1);
        return first + (far << (first_level + kRadixBits)) + 32 * (j >> rest);
      },
      x);
}

// ---- On the host ------------------------------------------------------------

template <int kBits>
int RunTiles(const Pass& pass, int levels, void* stream) {
  return Launch(TileKernel<kBits>, CeilDiv(pass.n, 1 << kBits),
                1 << (kBits - kRadixBits), stream, pass, levels);
}

// H of the rows, with the signs before or after it.
int Run(const Pass& all, int64_t size, void* stream) {
  const int log2_size = __builtin_ctzll(static_cast<uint64_t>(size));
  // The levels above the tiles, in as few passes as can be, none of which has
  // much less to do than another.
  int rest = log2_size <= kMaxTileBits               ? 0
             : log2_size - kMaxTileBits < kRadixBits ? kRadixBits
                                                     : log2_size - kMaxTileBits;
  Pass pass = all;
  pass.scale = 1;
  pass.signs_after = false;
  const auto finish_if = [&](bool last) {
    if (!last) return;
    pass.scale =
        std::ldexp(log2_size % 2 ? 0.70710678f : 1.0f, -(log2_size / 2));
    pass.signs_after = all.signs_after;
  };
  finish_if(rest == 0);
  const int tile_levels = log2_size - rest;
  TF_GC_CUDA_RETURN_IF_ERROR(
      tile_levels < kMaxTileBits
          ? RunTiles<kMaxTileBits - 1>(pass, tile_levels, stream)
          : RunTiles<kMaxTileBits>(pass, tile_levels, stream));

  pass.values = pass.transformed;
  pass.signs_before = false;
  while (rest > 0) {
    const int levels =
        static_cast<int>(CeilDiv(rest, CeilDiv(rest, kColumnBits)));
    finish_if(levels == rest);
    TF_GC_CUDA_RETURN_IF_ERROR(Launch(ColumnKernel, pass.n >> (5 + kColumnBits),
                                      kColumnThreads, stream, pass,
                                      log2_size - rest, levels));
    rest -= levels;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_hadamard(const float* values, int64_t rows, int64_t size,
                        float* transformed, void* stream) {
  return Run({values, rows * size, transformed, {}, false, false, 1}, size,
             stream);
}

int tf_gc_cuda_randomized_hadamard(const float* values, int64_t rows,
                                   int64_t size, uint64_t key,
                                   uint64_t seed_stream, float* transformed,
                                   void* stream) {
  return Run(
      {values, rows * size, transformed, {key, seed_stream}, true, false, 1},
      size, stream);
}

int tf_gc_cuda_inverse_randomized_hadamard(const float* values, int64_t rows,
                                           int64_t size, uint64_t key,
                                           uint64_t seed_stream,
                                           float* transformed, void* stream) {
  return Run(
      {values, rows * size, transformed, {key, seed_stream}, false, true, 1},
      size, stream);
}
