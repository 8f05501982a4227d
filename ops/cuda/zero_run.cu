#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/scan.h"
#include "ops/cuda/zero_run.h"
#include "ops/cuda/zero_run_inl.h"

namespace tf_gc::cuda {
namespace {

// ---- Encoding ---------------------------------------------------------------

// Zeros behind a byte that decide how long its run's code is.
constexpr int kLookahead = 16;

__global__ void __launch_bounds__(kBlockThreads)
    SummarizeKernel(const uint8_t* quartic, int64_t m, Runs<int64_t>* tiles) {
  using Reduce = cub::BlockReduce<Runs<int>, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ __align__(16) uint8_t staging[StagingSize(kQuarticTile)];
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  const int size = TileSize(begin, kQuarticTile, m);
  uint8_t* const bytes = Staging(staging, quartic + begin);
  BlockCopy(quartic + begin, size, bytes);
  __syncthreads();
  const int first = kThreadBytes * static_cast<int>(threadIdx.x);
  const Runs<int> runs = Reduce(storage).Reduce(
      RunsOfBytes(bytes + first, TileSize(first, kThreadBytes, size)),
      AppendRuns());
  if (threadIdx.x == 0) {
    tiles[blockIdx.x] = {runs.leading, runs.trailing, runs.codes};
  }
}

// Encodes the block's tile, before which are the runs prefixes[blockIdx.x].
__global__ void __launch_bounds__(kBlockThreads)
    EncodeKernel(const uint8_t* quartic, int64_t m,
                 const Runs<int64_t>* prefixes, uint8_t* encoded,
                 int64_t* encoded_size) {
  using Scan = cub::BlockScan<Runs<int>, kBlockThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ __align__(16) uint8_t in[StagingSize(kQuarticTile + kLookahead)];
  __shared__ __align__(16) uint8_t out[StagingSize(kQuarticTile)];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  const int size = TileSize(begin, kQuarticTile, m);
  const int readable = TileSize(begin, kQuarticTile + kLookahead, m);
  uint8_t* const bytes = Staging(in, quartic + begin);
  BlockCopy(quartic + begin, readable, bytes);
  // Behind the last byte is no zero.
  for (int i = readable + thread; i < size + kLookahead; i += kBlockThreads) {
    bytes[i] = 0;
  }
  __syncthreads();

  const Runs<int64_t> prefix = prefixes[blockIdx.x];
  const int64_t offset = CodesOfRun(prefix.leading) + prefix.codes;
  const int64_t run_before =
      prefix.trailing < 0 ? prefix.leading : prefix.trailing;
  // A run's codes repeat: it is enough to know the rest.
  const int rest = static_cast<int>(run_before % kLongestRun);
  const Runs<int> initial = {0, rest, CodesOfRun(rest)};
  const int first = kThreadBytes * thread;
  const int count = TileSize(first, kThreadBytes, size);
  Runs<int> before, tile;
  Scan(storage).ExclusiveScan(RunsOfBytes(bytes + first, count), before,
                              initial, AppendRuns(), tile);
  const int codes = AppendRuns()(initial, tile).codes - initial.codes;

  uint8_t* const to = Staging(out, encoded + offset);
  uint8_t* next = to + before.codes - initial.codes;
  int run = before.trailing;
  for (int i = first; i < first + count; ++i) {
    if (bytes[i] != kZeroByte) {
      *next++ = bytes[i];
      run = 0;
    } else if (run++ % kLongestRun == 0) {
      int length = 1;
      while (length < kLongestRun && bytes[i + length] == kZeroByte) ++length;
      *next++ =
          static_cast<uint8_t>(length == 1 ? kZeroByte : kRunBase + length);
    }
  }
  __syncthreads();
  BlockCopy(to, codes, encoded + offset);
  if (thread == 0 && blockIdx.x + 1 == gridDim.x)
    *encoded_size = offset + codes;
}

// ---- Decoding ---------------------------------------------------------------

// Codes of a block, and of each of its threads.
constexpr int kCodeTile = 4096;
constexpr int kThreadCodes = kCodeTile / kBlockThreads;

// The codes of the block's tile, of which the calling thread's are
// [first, first + count).
struct ThreadCodes {
  const uint8_t* codes;
  int first;
  int count;

  __device__ ThreadCodes(const uint8_t* encoded, int64_t size,
                         uint8_t* staging) {
    const int64_t begin = blockIdx.x * int64_t{kCodeTile};
    const int tile = TileSize(begin, kCodeTile, size);
    uint8_t* const copy = Staging(staging, encoded + begin);
    BlockCopy(encoded + begin, tile, copy);
    __syncthreads();
    codes = copy;
    first = kThreadCodes * static_cast<int>(threadIdx.x);
    count = TileSize(first, kThreadCodes, tile);
  }

  __device__ int Length() const {
    int length = 0;
    for (int i = first; i < first + count; ++i) length += CodeLength(codes[i]);
    return length;
  }
};

// The quartic bytes of each tile of codes; if asked for, *total += them.
__global__ void __launch_bounds__(kBlockThreads)
    SumKernel(const uint8_t* encoded, int64_t size, int64_t* lengths,
              int64_t* total) {
  using Reduce = cub::BlockReduce<int, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ __align__(16) uint8_t staging[StagingSize(kCodeTile)];
  const ThreadCodes codes(encoded, size, staging);
  const int length = Reduce(storage).Sum(codes.Length());
  if (threadIdx.x != 0) return;
  if (lengths != nullptr) lengths[blockIdx.x] = length;
  if (total != nullptr) {
    atomicAdd(reinterpret_cast<unsigned long long*>(total),
              static_cast<unsigned long long>(length));
  }
}

// Writes the starts of the tiles of quartic bytes that begin in the block's
// codes, and how many codes there are where one of them is the last.
__global__ void __launch_bounds__(kBlockThreads)
    FindStartsKernel(const uint8_t* encoded, int64_t size, int64_t m,
                     ZeroRunIndex index, int64_t* used) {
  using Scan = cub::BlockScan<int, kBlockThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ __align__(16) uint8_t staging[StagingSize(kCodeTile)];
  const ThreadCodes codes(encoded, size, staging);
  int before;
  Scan(storage).ExclusiveSum(codes.Length(), before);
  int64_t position = index.positions[blockIdx.x] + before;
  for (int i = codes.first; i < codes.first + codes.count; ++i) {
    if (position >= m) return;
    const int64_t code = blockIdx.x * int64_t{kCodeTile} + i;
    const int64_t end = position + CodeLength(codes.codes[i]);
    const int64_t tile = CeilDiv(position, kQuarticTile);
    if (tile * kQuarticTile < end && tile < QuarticTiles(m)) {
      index.starts[tile] = {code, position};
    }
    if (end == m) *used = *index.codes = code + 1;
    position = end;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    DecodeKernel(const uint8_t* encoded, int64_t m, ZeroRunIndex index,
                 uint8_t* quartic) {
  __shared__ __align__(16) uint8_t tile[kQuarticTile];
  __shared__ __align__(16) uint8_t out[StagingSize(kQuarticTile)];
  if (*index.codes < 0) return;
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  const int size = TileSize(begin, kQuarticTile, m);
  ExpandTile(encoded, m, index, size, tile);
  uint8_t* const staged = Staging(out, quartic + begin);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kBlockThreads) {
    staged[i] = tile[i];
  }
  __syncthreads();
  BlockCopy(staged, size, quartic + begin);
}

}  // namespace

int EncodeTiles(const uint8_t* quartic, int64_t m, Runs<int64_t>* tiles,
                uint8_t* encoded, int64_t* size, void* stream) {
  if (m == 0) {
    return cudaMemsetAsync(size, 0, sizeof(*size),
                           static_cast<cudaStream_t>(stream));
  }
  TF_GC_CUDA_RETURN_IF_ERROR(ExclusiveScan(
      tiles, QuarticTiles(m), NoBytes<int64_t>(), AppendRuns(), stream));
  return Launch(EncodeKernel, QuarticTiles(m), kBlockThreads, stream, quartic,
                m, static_cast<const Runs<int64_t>*>(tiles), encoded, size);
}

ZeroRunIndex ZeroRunIndex::Take(int64_t size, int64_t m, Workspace* workspace) {
  ZeroRunIndex index;
  index.positions = workspace->Take<int64_t>(CeilDiv(size, kCodeTile));
  index.starts = workspace->Take<TileStart>(QuarticTiles(m));
  index.codes = workspace->Take<int64_t>(1);
  return index;
}

int FindTiles(const uint8_t* encoded, int64_t size, int64_t m,
              const ZeroRunIndex& index, int64_t* used, void* stream) {
  // No code is needed for no byte; else -1, until the last one is found.
  const int byte = m == 0 ? 0 : 0xff;
  for (int64_t* const count : {used, index.codes}) {
    TF_GC_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
        count, byte, sizeof(*count), static_cast<cudaStream_t>(stream)));
  }
  const int64_t tiles = CeilDiv(size, kCodeTile);
  TF_GC_CUDA_RETURN_IF_ERROR(Launch(SumKernel, tiles, kBlockThreads, stream,
                                    encoded, size, index.positions,
                                    static_cast<int64_t*>(nullptr)));
  TF_GC_CUDA_RETURN_IF_ERROR(
      ExclusiveScan(index.positions, tiles, int64_t{0}, Add(), stream));
  return Launch(FindStartsKernel, tiles, kBlockThreads, stream, encoded, size,
                m, index, used);
}

}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int64_t tf_gc_cuda_zero_run_encode_workspace_size(int64_t m) {
  Workspace workspace(nullptr);
  workspace.Take<Runs<int64_t>>(QuarticTiles(m));
  return workspace.size();
}

int tf_gc_cuda_zero_run_encode(const uint8_t* quartic, int64_t m,
                               uint8_t* encoded, int64_t* size, void* workspace,
                               void* stream) {
  Runs<int64_t>* const tiles =
      Workspace(workspace).Take<Runs<int64_t>>(QuarticTiles(m));
  TF_GC_CUDA_RETURN_IF_ERROR(Launch(SummarizeKernel, QuarticTiles(m),
                                    kBlockThreads, stream, quartic, m, tiles));
  return EncodeTiles(quartic, m, tiles, encoded, size, stream);
}

int tf_gc_cuda_zero_run_decoded_size(const uint8_t* encoded, int64_t size,
                                     int64_t* total, void* stream) {
  TF_GC_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
      total, 0, sizeof(*total), static_cast<cudaStream_t>(stream)));
  return Launch(SumKernel, CeilDiv(size, kCodeTile), kBlockThreads, stream,
                encoded, size, static_cast<int64_t*>(nullptr), total);
}

int64_t tf_gc_cuda_zero_run_decode_workspace_size(int64_t size, int64_t m) {
  Workspace workspace(nullptr);
  ZeroRunIndex::Take(size, m, &workspace);
  return workspace.size();
}

int tf_gc_cuda_zero_run_decode(const uint8_t* encoded, int64_t size, int64_t m,
                               uint8_t* quartic, int64_t* used, void* workspace,
                               void* stream) {
  Workspace parts(workspace);
  const ZeroRunIndex index = ZeroRunIndex::Take(size, m, &parts);
  TF_GC_CUDA_RETURN_IF_ERROR(FindTiles(encoded, size, m, index, used, stream));
  return Launch(DecodeKernel, QuarticTiles(m), kBlockThreads, stream, encoded,
                m, index, quartic);
}
