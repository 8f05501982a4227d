#include <cub/block/block_reduce.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/quartic_inl.h"
#include "ops/cuda/three_lc.h"
#include "ops/cuda/zero_run_inl.h"

namespace tf_gc::cuda {
namespace {

constexpr int kMagnitudeBits = 0x7fffffff;
constexpr int kInfinityBits = 0x7f800000;
constexpr int kNanBits = 0x7fc00000;
constexpr int64_t kScaleSize = 4;

// Kernels of arrays whose parts are all aligned to 16 bytes take kVector values
// at once, other arrays' one. Those are still read and written in full lines:
// neighbouring threads take neighbouring values.
constexpr int kVector = 4;

bool IsAligned(const void* address) { return AddressModulo16(address) == 0; }

// values + residual, of which there may be none (as a template's argument, so
// that a thread does not wait between its loads).
template <bool kHasResidual, int kCount>
__device__ inline Vector<float, kCount> LoadSum(const float* values,
                                                const float* residual) {
  Vector<float, kCount> sum = LoadVector<kCount>(values);
  if constexpr (kHasResidual) {
    const Vector<float, kCount> rest = LoadVector<kCount>(residual);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum.values[k] += rest.values[k];
  }
  return sum;
}

// ---- Scale ------------------------------------------------------------------

// Vectors that a thread loads at once.
constexpr int kLoads = 4;

// *largest, at first 0, becomes the largest bits of |values + residual|. As
// integers, the bits of |x| are ordered as |x| is, and NaN comes last.
template <bool kHasResidual, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    MaxAbsSumKernel(const float* values, const float* residual, int64_t n,
                    int* largest) {
  using Reduce = cub::BlockReduce<int, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int64_t vectors = n / kCount;
  const int64_t step = GridThreads();
  int own = 0;
  const auto join = [&own](float sum) {
    const int magnitude = __float_as_int(sum) & kMagnitudeBits;
    own = magnitude > own ? magnitude : own;
  };
  int64_t i = GridThread();
  for (; i + (kLoads - 1) * step < vectors; i += kLoads * step) {
    Vector<float, kCount> sums[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int64_t first = kCount * (i + load * step);
      sums[load] =
          LoadSum<kHasResidual, kCount>(values + first, residual + first);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) join(sums[load].values[k]);
    }
  }
  for (; i < vectors; i += step) {
    const auto sum = LoadSum<kHasResidual, kCount>(values + kCount * i,
                                                   residual + kCount * i);
    for (int k = 0; k < kCount; ++k) join(sum.values[k]);
  }
  i = kCount * vectors + GridThread();
  if (i < n) join(LoadSum<kHasResidual, 1>(values + i, residual + i).values[0]);
  const int block =
      Reduce(storage).Reduce(own, [](int a, int b) { return a > b ? a : b; });
  if (threadIdx.x == 0) atomicMax(largest, block);
}

// *scale = sparsity_multiplier * *scale, or NaN if that is not finite.
__global__ void ScaleKernel(float sparsity_multiplier, float* scale) {
  const float product = sparsity_multiplier * *scale;
  const int magnitude = __float_as_int(product) & kMagnitudeBits;
  *scale = magnitude < kInfinityBits ? product : __int_as_float(kNanBits);
}

// ---- Encoding ---------------------------------------------------------------

// Values to be quantised, and where their residual goes. Without a residual the
// pointer is one that may be added to.
struct Tensor {
  const float* values;
  const float* residual;
  int64_t n;
  int64_t partition;
  float* new_residual;
};

// Quantises the sum t: returns q and makes *t the new residual.
__device__ inline int Quantize(float scale, float* t) {
  const int bits = __float_as_int(*t);
  const float magnitude = __int_as_float(bits & kMagnitudeBits);
  if (!(magnitude + magnitude > scale)) return 0;
  const int delivered = (bits & ~kMagnitudeBits) | __float_as_int(scale);
  *t -= __int_as_float(delivered);
  return bits < 0 ? -1 : 1;
}

// The quartic bytes of kCount positions from i on, one value of each partition.
// Writes the values' new residual.
template <bool kHasResidual, int kCount>
__device__ inline Vector<uint8_t, kCount> EncodeVector(const Tensor& tensor,
                                                       float scale, int64_t i) {
  // All loads come first, so that they are under way at once.
  Vector<float, kCount> t[5];
#pragma unroll
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * tensor.partition + i;
    if (first + kCount <= tensor.n) {
      t[j] = LoadSum<kHasResidual, kCount>(tensor.values + first,
                                           tensor.residual + first);
    }
  }
  int sums[kCount] = {};
#pragma unroll
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * tensor.partition + i;
    if (first + kCount <= tensor.n) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        sums[k] = 3 * sums[k] + Quantize(scale, &t[j].values[k]);
      }
      StoreVector(t[j], tensor.new_residual + first);
    } else {
      // The end of the tensor. Padding has the digit 0, as -1 has.
      for (int k = 0; k < kCount; ++k) {
        int q = -1;
        if (first + k < tensor.n) {
          Vector<float, 1> one = LoadSum<kHasResidual, 1>(
              tensor.values + first + k, tensor.residual + first + k);
          q = Quantize(scale, &one.values[0]);
          StoreVector(one, tensor.new_residual + first + k);
        }
        sums[k] = 3 * sums[k] + q;
      }
    }
  }
  Vector<uint8_t, kCount> quartic;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    quartic.values[k] = static_cast<uint8_t>(sums[k] + kZeroByte);
  }
  return quartic;
}

// With the scale NaN, the new residual is the old one and every q is 0.
template <bool kHasResidual>
__device__ void KeepResidual(const Tensor& tensor, int64_t begin, int size,
                             uint8_t* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kBlockThreads) {
    tile[i] = kZeroByte;
    for (int j = 0; j < 5; ++j) {
      const int64_t k = j * tensor.partition + begin + i;
      if (k >= tensor.n) break;
      tensor.new_residual[k] = kHasResidual ? tensor.residual[k] : 0.0f;
    }
  }
}

// Quantises the block's tile; writes the quartic bytes, which are aligned to 16
// bytes, and their runs.
// (Enough blocks at once to have many loads under way.)
template <bool kHasResidual, int kCount>
__global__ void __launch_bounds__(kBlockThreads, kCount == 1 ? 3 : 2)
    EncodeKernel(Tensor tensor, const float* scale, uint8_t* quartic,
                 Runs<int64_t>* tiles) {
  using Reduce = cub::BlockReduce<Runs<int>, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ __align__(16) uint8_t tile[kQuarticTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  const int size = TileSize(begin, kQuarticTile, tensor.partition);
  const float m = *scale;
  if (m != m) {
    KeepResidual<kHasResidual>(tensor, begin, size, tile);
  } else {
    // More positions at once would not fit in the registers.
#pragma unroll 1
    for (int i = kCount * thread; i < size; i += kCount * kBlockThreads) {
      StoreVector(EncodeVector<kHasResidual, kCount>(tensor, m, begin + i),
                  tile + i);
    }
  }
  __syncthreads();
  BlockCopy(tile, size, quartic + begin);
  const int first = kThreadBytes * thread;
  const auto bytes = LoadBytes<kThreadBytes>(tile, first, kQuarticTile, true);
  const Runs<int> runs = Reduce(storage).Reduce(
      RunsOfBytes(bytes, TileSize(first, kThreadBytes, size)), AppendRuns());
  if (thread == 0) {
    tiles[blockIdx.x] = {runs.leading, runs.trailing, runs.codes};
  }
}

// Puts the scale in front of a payload of *size bytes, of which there are none
// if the scale is NaN.
__global__ void FinishKernel(const float* scale, uint8_t* encoded,
                             int64_t* size) {
  const int bits = __float_as_int(*scale);
  for (int i = 0; i < kScaleSize; ++i) {
    encoded[i] = static_cast<uint8_t>(bits >> (8 * i));
  }
  *size = kScaleSize + (bits == kNanBits ? 0 : *size);
}

// ---- Decoding ---------------------------------------------------------------

// values[i] = scale * q[i].
struct Assign {
  static constexpr bool kReads = false;
  static __device__ float Of(float, float scale, int q) {
    // Converting q would take longer than all the rest.
    return q == 0 ? scale * 0.0f : q > 0 ? scale : -scale;
  }
};

// values[i] += scale * q[i] where q[i] is not 0.
struct AddTo {
  static constexpr bool kReads = true;
  static __device__ float Of(float old, float scale, int q) {
    return q == 0 ? old : q > 0 ? old + scale : old - scale;
  }
};

// Decodes kCount positions from i on, one value of each partition. If kWhole,
// all partitions have those positions.
template <typename Sink, int kCount, bool kWhole>
__device__ inline void DecodeVector(const Vector<uint8_t, kCount>& quartic,
                                    float scale, int64_t i, int64_t n,
                                    int64_t partition, float* values) {
  bool all_zero = true;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    all_zero &= quartic.values[k] == kZeroByte;
  }
  if (Sink::kReads && all_zero) return;
  int q[kCount][5];
#pragma unroll
  for (int k = 0; k < kCount; ++k) QuarticValues(quartic.values[k], q[k]);
  Vector<float, kCount> result[5] = {};
  if constexpr (Sink::kReads) {
#pragma unroll
    for (int j = 0; j < 5; ++j) {
      const int64_t first = j * partition + i;
      if (kWhole || first + kCount <= n) {
        result[j] = LoadVector<kCount>(values + first);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * partition + i;
    if (kWhole || first + kCount <= n) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        result[j].values[k] = Sink::Of(result[j].values[k], scale, q[k][j]);
      }
      StoreVector(result[j], values + first);
    } else {
      for (int k = 0; k < kCount && first + k < n; ++k) {
        values[first + k] = Sink::Of(values[first + k], scale, q[k][j]);
      }
    }
  }
}

// Decodes the positions of a block's tile.
template <typename Sink, int kCount, bool kWhole>
__device__ void DecodeTile(const uint8_t* tile, int64_t begin, int size,
                           float scale, int64_t n, int64_t partition,
                           float* values) {
  for (int i = kCount * static_cast<int>(threadIdx.x); i < size;
       i += kCount * kBlockThreads) {
    DecodeVector<Sink, kCount, kWhole>(LoadVector<kCount>(tile + i), scale,
                                       begin + i, n, partition, values);
  }
}

// Of a payload that ends where it should, decodes the block's tile. *used
// becomes -1 if padding is not 0. Without a sink it decodes nothing.
template <typename Sink, int kCount>
__global__ void __launch_bounds__(kBlockThreads)
    DecodeKernel(const uint8_t* payload, float scale, int64_t n,
                 int64_t partition, ZeroRunIndex index, float* values,
                 int64_t* used) {
  __shared__ __align__(16) uint8_t tile[kQuarticTile];
  if (*index.codes < 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  const int size = TileSize(begin, kQuarticTile, partition);
  ExpandTile(payload, partition, index, size, tile);
  if (n + thread < 5 * partition) {
    const int64_t j = (n + thread) / partition;
    const int64_t i = n + thread - j * partition - begin;
    if (i >= 0 && i < size && QuarticDigit(tile[i], static_cast<int>(j)) != 0) {
      *used = -1;
    }
  }
  if constexpr (kCount > 0) {
    if (begin + size <= n - 4 * partition) {
      DecodeTile<Sink, kCount, true>(tile, begin, size, scale, n, partition,
                                     values);
    } else {
      DecodeTile<Sink, kCount, false>(tile, begin, size, scale, n, partition,
                                      values);
    }
  }
}

template <typename Sink>
int Decode(const uint8_t* payload, int64_t size, float scale, int64_t n,
           float* values, int64_t* used, void* workspace, void* stream) {
  const int64_t partition = QuarticSize(n);
  Workspace parts(workspace);
  const ZeroRunIndex index = ZeroRunIndex::Take(size, partition, &parts);
  TF_GC_CUDA_RETURN_IF_ERROR(
      FindTiles(payload, size, partition, index, used, stream));
  auto kernel = DecodeKernel<Sink, 1>;
  if (values == nullptr) {
    kernel = DecodeKernel<Sink, 0>;
  } else if (Sink::kReads && IsAligned(values) && partition % kVector == 0) {
    // (Where nothing is read, single values are faster.)
    kernel = DecodeKernel<Sink, kVector>;
  }
  return Launch(kernel, QuarticTiles(partition), kBlockThreads, stream, payload,
                scale, n, partition, index, values, used);
}

// What encoding keeps between its kernels.
struct EncodeWorkspace {
  float* scale;
  uint8_t* quartic;
  Runs<int64_t>* tiles;

  static EncodeWorkspace Take(int64_t n, Workspace* workspace) {
    EncodeWorkspace parts;
    parts.scale = workspace->Take<float>(1);
    parts.quartic = workspace->Take<uint8_t>(QuarticSize(n));
    parts.tiles = workspace->Take<Runs<int64_t>>(QuarticTiles(QuarticSize(n)));
    return parts;
  }
};

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_max_abs_sum(const float* values, const float* residual,
                           int64_t n, float* result, void* stream) {
  TF_GC_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
      result, 0, sizeof(*result), static_cast<cudaStream_t>(stream)));
  int* const largest = reinterpret_cast<int*>(result);
  const bool aligned = IsAligned(values) && IsAligned(residual);
  auto kernel =
      aligned ? MaxAbsSumKernel<true, kVector> : MaxAbsSumKernel<true, 1>;
  if (residual == nullptr) {
    kernel =
        aligned ? MaxAbsSumKernel<false, kVector> : MaxAbsSumKernel<false, 1>;
    residual = values;
  }
  return Launch(kernel, TurningBlocks(n), kBlockThreads, stream, values,
                residual, n, largest);
}

int64_t tf_gc_cuda_three_lc_encode_workspace_size(int64_t n) {
  Workspace workspace(nullptr);
  EncodeWorkspace::Take(n, &workspace);
  return workspace.size();
}

int tf_gc_cuda_three_lc_encode(const float* values, const float* residual,
                               const float* scale, int64_t n,
                               float* new_residual, uint8_t* payload,
                               int64_t* size, void* workspace, void* stream) {
  Workspace all(workspace);
  const EncodeWorkspace parts = EncodeWorkspace::Take(n, &all);
  const int64_t partition = QuarticSize(n);
  const bool has_residual = residual != nullptr;
  const bool aligned = IsAligned(values) && IsAligned(residual) &&
                       IsAligned(new_residual) && partition % kVector == 0;
  auto kernel = aligned ? EncodeKernel<true, kVector> : EncodeKernel<true, 1>;
  if (!has_residual) {
    kernel = aligned ? EncodeKernel<false, kVector> : EncodeKernel<false, 1>;
    residual = values;
  }
  const Tensor tensor = {values, residual, n, partition, new_residual};
  const int64_t tiles = QuarticTiles(partition);
  TF_GC_CUDA_RETURN_IF_ERROR(Launch(kernel, tiles, kBlockThreads, stream,
                                    tensor, scale, parts.quartic, parts.tiles));
  return EncodeTiles(parts.quartic, partition, parts.tiles, payload, size,
                     stream);
}

int tf_gc_cuda_three_lc_encode_tensor(const float* values,
                                      const float* residual,
                                      float sparsity_multiplier, int64_t n,
                                      float* new_residual, uint8_t* encoded,
                                      int64_t* size, void* workspace,
                                      void* stream) {
  Workspace all(workspace);
  float* const scale = EncodeWorkspace::Take(n, &all).scale;
  TF_GC_CUDA_RETURN_IF_ERROR(
      tf_gc_cuda_max_abs_sum(values, residual, n, scale, stream));
  TF_GC_CUDA_RETURN_IF_ERROR(
      Launch(ScaleKernel, 1, 1, stream, sparsity_multiplier, scale));
  TF_GC_CUDA_RETURN_IF_ERROR(tf_gc_cuda_three_lc_encode(
      values, residual, scale, n, new_residual, encoded + kScaleSize, size,
      workspace, stream));
  return Launch(FinishKernel, 1, 1, stream, static_cast<const float*>(scale),
                encoded, size);
}

int64_t tf_gc_cuda_three_lc_decode_workspace_size(int64_t size, int64_t n) {
  Workspace workspace(nullptr);
  ZeroRunIndex::Take(size, QuarticSize(n), &workspace);
  return workspace.size();
}

int tf_gc_cuda_three_lc_decode(const uint8_t* payload, int64_t size,
                               float scale, int64_t n, float* values,
                               int64_t* used, void* workspace, void* stream) {
  return Decode<Assign>(payload, size, scale, n, values, used, workspace,
                        stream);
}

int tf_gc_cuda_three_lc_decode_add(const uint8_t* payload, int64_t size,
                                   float scale, int64_t n, float* sum,
                                   int64_t* used, void* workspace,
                                   void* stream) {
  return Decode<AddTo>(payload, size, scale, n, sum, used, workspace, stream);
}

int tf_gc_cuda_three_lc_validate(const uint8_t* payload, int64_t size,
                                 int64_t n, int64_t* used, void* workspace,
                                 void* stream) {
  return Decode<Assign>(payload, size, 0, n, nullptr, used, workspace, stream);
}
