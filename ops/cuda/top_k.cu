#include <cub/block/block_scan.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/look_back.h"
#include "ops/cuda/top_k.h"

namespace tf_gc::cuda {
namespace {

// The key of a value: the bits of its magnitude, 31 of them. The k-th largest
// key is found by its upper bits first, kPassBits in each pass.
constexpr int kPasses = 3;
constexpr int kMaxBuckets = 1 << 11;
__host__ __device__ constexpr int PassBits(int pass) {
  return pass < 2 ? 11 : 9;
}
__host__ __device__ constexpr int PassShift(int pass) {
  return pass == 0 ? 20 : pass == 1 ? 9 : 0;
}

__device__ inline uint32_t Key(float value) {
  return __float_as_uint(value) & 0x7fffffff;
}

// What the kernels tell each other, 0 at first.
struct State {
  uint32_t histograms[kPasses][kMaxBuckets];
  unsigned finished_blocks[kPasses];
  uint32_t prefix;     // The upper bits of the k-th key that are known.
  uint32_t rank;       // Of the k-th key among those with these, from 1 on.
  uint32_t survivors;  // Keys at or above the first pass' bucket.
};

// The task, and its memory.
struct TopK {
  const float* values;
  uint32_t n;
  uint32_t k;
  State* state;
  TileSums survivor_sums;
  TileSums result_sums;
  int64_t zeroed_size;  // Of what is above, from `state` on.
  // What survived the first pass, if there is room.
  uint32_t capacity;
  float* survivors;
  int32_t* survivor_indices;
  int32_t* indices;

  __device__ bool SurvivorsFit() const { return state->survivors <= capacity; }
};

// ---- Histograms -------------------------------------------------------------

constexpr int kHistogramThreads = 512;
constexpr int64_t kMaxHistogramBlocks = 1024;
constexpr int kLoads = 8;  // Values of a thread that are under way at once.

// Of all buckets but bucket 0 the block's threads count the keys with the
// prefix. (Zeros are many in some tensors, and would wait for each other.)
template <int kPass>
__device__ inline void CountKeys(const float* values, int64_t count,
                                 uint32_t prefix, uint32_t* counts) {
  constexpr int kBits = PassBits(kPass);
  constexpr int kShift = PassShift(kPass);
  const auto join = [=](float value) {
    const uint32_t key = Key(value);
    const uint32_t bucket = key >> kShift & ((1u << kBits) - 1);
    if (bucket != 0 && (kPass == 0 || key >> (kShift + kBits) == prefix)) {
      atomicAdd(&counts[bucket], 1u);
    }
  };
  const int64_t step = GridThreads();
  int64_t i = GridThread();
  for (; i + (kLoads - 1) * step < count; i += kLoads * step) {
    float loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) loaded[k] = values[i + k * step];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) join(loaded[k]);
  }
  for (; i < count; i += step) join(values[i]);
}

// Finds the bucket of the key of the given rank, with all threads of a block.
template <int kPass>
__device__ inline void FindBucket(const volatile uint32_t* histogram,
                                  uint32_t n, uint32_t prefix, uint32_t rank,
                                  State* state) {
  using Scan = cub::BlockScan<uint32_t, kHistogramThreads>;
  __shared__ typename Scan::TempStorage storage;
  constexpr int kBits = PassBits(kPass);
  constexpr int kOwn = (1 << kBits) / kHistogramThreads;
  // The largest keys first.
  const int first = (1 << kBits) - 1 - kOwn * static_cast<int>(threadIdx.x);
  uint32_t own[kOwn], sum = 0;
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    own[j] = histogram[first - j];
    sum += own[j];
  }
  uint32_t before;
  Scan(storage).ExclusiveSum(sum, before);
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    const uint32_t bucket = static_cast<uint32_t>(first - j);
    const bool is_last = bucket == 0;  // It has all that is left.
    if (before < rank && (is_last || rank <= before + own[j])) {
      state->prefix = prefix << kBits | bucket;
      state->rank = rank - before;
      if (kPass == 0) state->survivors = is_last ? n : before + own[j];
    }
    before += own[j];
  }
}

// Finds the next bits of the k-th key.
template <int kPass>
__global__ void __launch_bounds__(kHistogramThreads)
    HistogramKernel(TopK task) {
  __shared__ uint32_t counts[1 << PassBits(kPass)];
  __shared__ bool is_last;
  constexpr int kBuckets = 1 << PassBits(kPass);
  State* const state = task.state;
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t prefix = kPass == 0 ? 0 : state->prefix;
  const uint32_t rank = kPass == 0 ? task.k : state->rank;
  for (int b = thread; b < kBuckets; b += kHistogramThreads) counts[b] = 0;
  __syncthreads();
  if (kPass > 0 && task.SurvivorsFit()) {
    CountKeys<kPass>(task.survivors, state->survivors, prefix, counts);
  } else {
    CountKeys<kPass>(task.values, task.n, prefix, counts);
  }
  __syncthreads();
  uint32_t* const histogram = state->histograms[kPass];
  for (int b = thread; b < kBuckets; b += kHistogramThreads) {
    if (counts[b] != 0) atomicAdd(&histogram[b], counts[b]);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    is_last = atomicAdd(&state->finished_blocks[kPass], 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  FindBucket<kPass>(histogram, task.n, prefix, rank, state);
}

// ---- Selection --------------------------------------------------------------

constexpr int kWarps = kBlockThreads / 32;
constexpr int kRounds = 16;  // Values of a thread in each tile.
constexpr int kWarpValues = 32 * kRounds;
constexpr int kTile = kWarps * kWarpValues;

// A number of keys above a threshold, and one of those that equal it; both are
// below 2^31.
struct Counts {
  uint32_t above;
  uint32_t ties;

  __device__ uint64_t Pack() const { return uint64_t{above} << 31 | ties; }
  static __device__ Counts Unpack(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> 31),
            static_cast<uint32_t>(packed & 0x7fffffff)};
  }
};

// Selects, in their order, the values whose keys are above the threshold, and
// the first `ties` of those whose keys equal it.
template <bool kFinal>
struct Selection {
  const float* values;
  const int32_t* places;  // Their indices, or null: their positions.
  int64_t count;
  int32_t threshold;
  uint32_t ties;
  float* to_values;  // Null if they are not wanted.
  int32_t* to_places;

  __device__ int32_t Place(int64_t i) const {
    return kFinal && places != nullptr ? places[i] : static_cast<int32_t>(i);
  }

  // The block's tile.
  __device__ void SelectTile(int64_t tile, const TileSums& sums) const {
    __shared__ Counts warp_counts[kWarps];
    __shared__ Counts tile_start;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t first = tile * kTile + warp * kWarpValues + lane;
    // What is not there is below every threshold.
    constexpr int32_t kNone = -2;
    int32_t keys[kRounds];
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int64_t i = first + 32 * r;
      keys[r] = i < count ? static_cast<int32_t>(Key(values[i])) : kNone;
    }
    uint32_t own = 0;  // Ties in the upper half.
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      own += keys[r] > threshold;
      if (kFinal) own += uint32_t{keys[r] == threshold} << 16;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      own += __shfl_xor_sync(~0u, own, lanes);
    }
    if (lane == 0) warp_counts[warp] = {own & 0xffff, own >> 16};
    __syncthreads();
    Counts before_warp = {0, 0}, all = {0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) before_warp = all;
      all.above += warp_counts[w].above;
      all.ties += warp_counts[w].ties;
    }
    if (warp == 0) {
      const Counts start = Counts::Unpack(sums.Before(tile, all.Pack()));
      if (lane == 0) tile_start = start;
    }
    __syncthreads();
    Counts before = {tile_start.above + before_warp.above,
                     tile_start.ties + before_warp.ties};
    if (own == 0) return;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      before = Write(first + 32 * r, keys[r], lane, before);
    }
  }

  // Writes those of the warp's 32 values, and returns the counts behind them.
  __device__ Counts Write(int64_t i, int32_t key, int lane,
                          Counts before) const {
    const unsigned above = __ballot_sync(~0u, key > threshold);
    const unsigned equal = kFinal ? __ballot_sync(~0u, key == threshold) : 0;
    if ((above | equal) == 0) return before;
    const unsigned lower_lanes = (1u << lane) - 1;
    const uint32_t ties_before = before.ties + __popc(equal & lower_lanes);
    const bool is_tie = kFinal && key == threshold && ties_before < ties;
    if (key > threshold || is_tie) {
      const uint32_t to = before.above + __popc(above & lower_lanes) +
                          (ties_before < ties ? ties_before : ties);
      to_places[to] = Place(i);
      // Magnitudes are all that is asked of them.
      if (!kFinal) to_values[to] = __int_as_float(key);
    }
    return {before.above + __popc(above), before.ties + __popc(equal)};
  }
};

template <bool kFinal>
__device__ inline Selection<kFinal> MakeSelection(const TopK& task) {
  const State& state = *task.state;
  if (!kFinal) {
    const uint32_t lowest = state.prefix << PassShift(0);
    return {task.values,
            nullptr,
            task.n,
            static_cast<int32_t>(lowest) - 1,
            0,
            task.survivors,
            task.survivor_indices};
  }
  const bool fit = task.SurvivorsFit();
  return {fit ? task.survivors : task.values,
          fit ? task.survivor_indices : nullptr,
          fit ? state.survivors : task.n,
          static_cast<int32_t>(state.prefix),
          state.rank,
          nullptr,
          task.indices};
}

// Writes what survives the first pass or, kFinal, the result.
template <bool kFinal>
__global__ void __launch_bounds__(kBlockThreads) SelectKernel(TopK task) {
  if (!kFinal && !task.SurvivorsFit()) return;
  const TileSums& sums = kFinal ? task.result_sums : task.survivor_sums;
  const Selection<kFinal> selection = MakeSelection<kFinal>(task);
  const int64_t tiles = CeilDiv(selection.count, kTile);
  for (int64_t tile = sums.NextTile(); tile < tiles; tile = sums.NextTile()) {
    selection.SelectTile(tile, sums);
  }
}

// ---- All --------------------------------------------------------------------

TopK TakeMemory(int64_t n, Workspace* workspace) {
  TopK task = {};
  task.capacity = static_cast<uint32_t>(CeilDiv(n, 4));
  task.state = workspace->Take<State>(1);
  task.survivor_sums = TileSums::Take(CeilDiv(n, kTile), workspace);
  task.result_sums = TileSums::Take(CeilDiv(n, kTile), workspace);
  task.zeroed_size = workspace->size();
  task.survivors = workspace->Take<float>(task.capacity);
  task.survivor_indices = workspace->Take<int32_t>(task.capacity);
  return task;
}

template <int kPass>
int QueueHistogram(const TopK& task, void* stream) {
  const int64_t blocks = CeilDiv(task.n, kHistogramThreads * kLoads);
  return Launch(HistogramKernel<kPass>,
                blocks < kMaxHistogramBlocks ? blocks : kMaxHistogramBlocks,
                kHistogramThreads, stream, task);
}

template <bool kFinal>
int QueueSelection(const TopK& task, void* stream) {
  return Launch(SelectKernel<kFinal>, TileBlocks(CeilDiv(task.n, kTile)),
                kBlockThreads, stream, task);
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int64_t tf_gc_cuda_top_k_indices_workspace_size(int64_t n) {
  Workspace workspace(nullptr);
  TakeMemory(n, &workspace);
  return workspace.size();
}

int tf_gc_cuda_top_k_indices(const float* values, int64_t n, int64_t k,
                             int32_t* indices, void* workspace, void* stream) {
  if (k == 0) return cudaSuccess;
  Workspace all(workspace);
  TopK task = TakeMemory(n, &all);
  task.values = values;
  task.n = static_cast<uint32_t>(n);
  task.k = static_cast<uint32_t>(k);
  task.indices = indices;
  TF_GC_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(task.state, 0, static_cast<size_t>(task.zeroed_size),
                      static_cast<cudaStream_t>(stream)));
  TF_GC_CUDA_RETURN_IF_ERROR(QueueHistogram<0>(task, stream));
  TF_GC_CUDA_RETURN_IF_ERROR(QueueSelection<false>(task, stream));
  TF_GC_CUDA_RETURN_IF_ERROR(QueueHistogram<1>(task, stream));
  TF_GC_CUDA_RETURN_IF_ERROR(QueueHistogram<2>(task, stream));
  return QueueSelection<true>(task, stream);
}
