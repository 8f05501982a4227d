#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/scan.h"
#include "ops/cuda/zero_run.h"
#include "ops/cuda/zero_run_inl.h"

namespace tf_gc::cuda {
namespace {

// ---- Encoding ---------------------------------------------------------------

__global__ void __launch_bounds__(kBlockThreads)
    SummarizeKernel(const uint8_t* quartic, int64_t m, Runs<int64_t>* tiles) {
  using Reduce = cub::BlockReduce<Runs<int>, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int64_t begin = kThreadBytes * GridThread();
  const Bytes<kThreadBytes> bytes = LoadBytes<kThreadBytes>(
      quartic, begin, m, IsAligned(quartic, kThreadBytes));
  const Runs<int> runs = Reduce(storage).Reduce(
      RunsOfBytes(bytes, TileSize(begin, kThreadBytes, m)), AppendRuns());
  if (threadIdx.x == 0) {
    tiles[blockIdx.x] = {runs.leading, runs.trailing, runs.codes};
  }
}

struct Max {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

// Encodes the block's tile, before which are the runs prefixes[blockIdx.x].
__global__ void __launch_bounds__(kBlockThreads)
    EncodeKernel(const uint8_t* quartic, int64_t m,
                 const Runs<int64_t>* prefixes, uint8_t* encoded,
                 int64_t* encoded_size) {
  using Scan = cub::BlockScan<int, kBlockThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage last_storage, code_storage;
  __shared__ __align__(16) uint8_t out[StagingSize(kQuarticTile)];
  const int thread = static_cast<int>(threadIdx.x);
  const int first = kThreadBytes * thread;  // Of the tile's bytes.
  const int64_t begin = kThreadBytes * GridThread();
  const bool aligned = IsAligned(quartic, kThreadBytes);
  const auto bytes = LoadBytes<kThreadBytes>(quartic, begin, m, aligned);
  const uint32_t zeros = ZeroMask(bytes);
  const int count = TileSize(begin, kThreadBytes, m);
  const uint32_t others = ~zeros & ((1u << count) - 1);
  // Those of the bytes behind decide how long the last run's code is.
  uint32_t behind = __shfl_down_sync(~0u, zeros, 1);
  if (thread % 32 == 31) {
    behind = ZeroMask(
        LoadBytes<kThreadBytes>(quartic, begin + kThreadBytes, m, aligned));
  }

  const Runs<int64_t> prefix = prefixes[blockIdx.x];
  const int64_t offset = CodesOfRun(prefix.leading) + prefix.codes;
  const int64_t run_before =
      prefix.trailing < 0 ? prefix.leading : prefix.trailing;
  // A run's codes repeat: it is enough to know the rest.
  const int before_tile = -1 - static_cast<int>(run_before % kLongestRun);
  // The last byte that is not a zero.
  const int last =
      others == 0 ? before_tile : first + 31 - __clz(static_cast<int>(others));
  int last_before, codes_before, codes;
  Scan(last_storage).ExclusiveScan(last, last_before, before_tile, Max());
  const int run = (first - 1 - last_before) % kLongestRun;
  const uint32_t starts = others | CodeStarts(zeros, run);
  Scan(code_storage).ExclusiveSum(__popc(starts), codes_before, codes);

  uint8_t* const to = Staging(out, encoded + offset);
  uint8_t* next = to + codes_before;
  const uint32_t ahead = zeros | behind << kThreadBytes;
#pragma unroll
  for (int i = 0; i < kThreadBytes; ++i) {
    if ((starts >> i & 1) == 0) continue;
    uint32_t code = bytes.words[i / 4] >> (i % 4 * 8);
    const int length =
        __ffs(static_cast<int>(~(ahead >> i) | 1u << kLongestRun)) - 1;
    if (length > 1) code = static_cast<uint32_t>(kRunBase + length);
    *next++ = static_cast<uint8_t>(code);
  }
  __syncthreads();
  BlockCopy(to, codes, encoded + offset);
  if (thread == 0 && blockIdx.x + 1 == gridDim.x)
    *encoded_size = offset + codes;
}

// ---- Decoding ---------------------------------------------------------------

// Codes of a block.
constexpr int kCodeTile = ThreadCodes::kCount * kBlockThreads;

// The quartic bytes of each tile of codes; if asked for, *total += them.
__global__ void __launch_bounds__(kBlockThreads)
    SumKernel(const uint8_t* encoded, int64_t size, int64_t* lengths,
              int64_t* total) {
  using Reduce = cub::BlockReduce<int, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const ThreadCodes codes(encoded, blockIdx.x * int64_t{kCodeTile}, size);
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
  using Scan = cub::BlockScan<int, kBlockThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  const int64_t begin = blockIdx.x * int64_t{kCodeTile};
  const ThreadCodes codes(encoded, begin, size);
  const int length = codes.Length();
  int before;
  Scan(storage).ExclusiveSum(length, before);
  int64_t position = index.positions[blockIdx.x] + before;
  const int64_t behind = position + length;
  // Most threads' codes are in the midst of a tile.
  if (behind < m && CeilDiv(position, kQuarticTile) * kQuarticTile >= behind) {
    return;
  }
  const int64_t first = begin + ThreadCodes::kCount * int64_t{threadIdx.x};
#pragma unroll
  for (int i = 0; i < ThreadCodes::kCount; ++i) {
    if (i >= codes.count || position >= m) return;
    const int64_t end = position + CodeLength(codes[i]);
    const int64_t tile = CeilDiv(position, kQuarticTile);
    if (tile * kQuarticTile < end && tile < QuarticTiles(m)) {
      index.starts[tile] = {first + i, position};
    }
    if (end == m) *used = *index.codes = first + i + 1;
    position = end;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    DecodeKernel(const uint8_t* encoded, int64_t m, ZeroRunIndex index,
                 uint8_t* quartic) {
  __shared__ __align__(16) uint8_t tile[kQuarticTile];
  if (*index.codes < 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = blockIdx.x * int64_t{kQuarticTile};
  ExpandTile(encoded, m, index, TileSize(begin, kQuarticTile, m), tile);
  const auto bytes =
      LoadBytes<kThreadBytes>(tile, kThreadBytes * thread, kQuarticTile, true);
  const int warp_begin = kThreadBytes * (thread - thread % 32);
  WarpStoreBytes(bytes, quartic, begin + warp_begin, m, tile + warp_begin);
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
