// The steps of zero-run encoding and decoding, for 3LC's fused kernels.

#ifndef TF_GC_OPS_CUDA_ZERO_RUN_INL_H_
#define TF_GC_OPS_CUDA_ZERO_RUN_INL_H_

#include <cub/block/block_scan.cuh>

#include "ops/cuda/launch.h"
#include "ops/cuda/quartic_inl.h"

namespace tf_gc::cuda {

inline constexpr int kLongestRun = 14;

// The codes of runs: run k has the code kRunBase + k, from 2 on.
inline constexpr int kRunBase = 241;

// Quartic bytes of a block, and of each of its threads.
inline constexpr int kQuarticTile = 2048;
inline constexpr int kThreadBytes = kQuarticTile / kBlockThreads;

__host__ __device__ constexpr int64_t QuarticTiles(int64_t m) {
  return CeilDiv(m, kQuarticTile);
}

// ---- Encoding ---------------------------------------------------------------

// What encoding must know of a part of the quartic bytes. Zeros are bytes 121;
// their codes depend on where their run begins, perhaps before the part.
template <typename Int>
struct Runs {
  Int leading;   // Zeros before the first other byte; all if there is none.
  Int trailing;  // Zeros behind the last other byte, -1 if there is none.
  Int codes;     // Codes of the bytes from the first other one on.
};

template <typename Int>
__host__ __device__ inline Runs<Int> NoBytes() {
  return {0, -1, 0};
}

template <typename Int>
__device__ inline Int CodesOfRun(Int length) {
  return (length + kLongestRun - 1) / kLongestRun;
}

// The runs of two parts, one behind the other.
struct AppendRuns {
  template <typename Int>
  __device__ Runs<Int> operator()(const Runs<Int>& a,
                                  const Runs<Int>& b) const {
    if (a.trailing < 0) return {a.leading + b.leading, b.trailing, b.codes};
    const Int run = a.trailing + b.leading;
    return {a.leading, b.trailing < 0 ? run : b.trailing,
            a.codes + CodesOfRun(run) - CodesOfRun(a.trailing) + b.codes};
  }
};

// The runs of `count` <= kThreadBytes bytes.
__device__ inline Runs<int> RunsOfBytes(const uint8_t* bytes, int count) {
  Runs<int> runs = NoBytes<int>();
  for (int i = 0; i < count; ++i) {
    const bool is_zero = bytes[i] == kZeroByte;
    if (is_zero && runs.trailing < 0) {
      ++runs.leading;
    } else {
      // A run this short has one code.
      runs.codes += !is_zero || runs.trailing == 0;
      runs.trailing = is_zero ? runs.trailing + 1 : 0;
    }
  }
  return runs;
}

// Encodes m quartic bytes, given the runs of their tiles, which are lost.
// *size is the encoding's size.
int EncodeTiles(const uint8_t* quartic, int64_t m, Runs<int64_t>* tiles,
                uint8_t* encoded, int64_t* size, void* stream);

// ---- Decoding ---------------------------------------------------------------

// Quartic bytes that a code stands for.
__device__ inline int CodeLength(uint8_t code) {
  return code > kLargestQuartic ? code - kRunBase : 1;
}

// The code of which a tile's first quartic byte comes, and where that code's
// first one is.
struct TileStart {
  int64_t code;
  int64_t position;
};

// Where in an encoding all tiles of m quartic bytes begin.
struct ZeroRunIndex {
  int64_t* positions;  // Of the first codes of the encoding's own tiles.
  TileStart* starts;
  int64_t* codes;  // How many codes give the m bytes; -1 if no number does.

  static ZeroRunIndex Take(int64_t size, int64_t m, Workspace* workspace);
};

// Finds the index of `size` codes. *used = *index.codes.
int FindTiles(const uint8_t* encoded, int64_t size, int64_t m,
              const ZeroRunIndex& index, int64_t* used, void* stream);

// Expands the quartic bytes of the block's tile into `quartic`, with all
// kBlockThreads threads. Precondition: *index.codes >= 0.
__device__ inline void ExpandTile(const uint8_t* encoded, int64_t m,
                                  const ZeroRunIndex& index, int size,
                                  uint8_t* quartic) {
  using Scan = cub::BlockScan<int, kBlockThreads>;
  // The last code may begin in the next tile.
  constexpr int kMaxCodes = kQuarticTile + 1;
  __shared__ typename Scan::TempStorage storage;
  __shared__ __align__(16) uint8_t staging[StagingSize(kMaxCodes)];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t tile = blockIdx.x;
  const TileStart start = index.starts[tile];
  const int64_t end = tile + 1 < QuarticTiles(m)
                          ? index.starts[tile + 1].code + 1
                          : *index.codes;
  const int count = static_cast<int>(end - start.code);
  uint8_t* const codes = Staging(staging, encoded + start.code);
  BlockCopy(encoded + start.code, count, codes);
  for (int i = thread; i < kQuarticTile / 16; i += kBlockThreads) {
    Vector<uint8_t, 16> zeros;
    for (int k = 0; k < 16; ++k) zeros.values[k] = kZeroByte;
    StoreVector(zeros, quartic + 16 * i);
  }
  __syncthreads();
  const int share = (count + kBlockThreads - 1) / kBlockThreads;
  const int first = thread * share < count ? thread * share : count;
  const int last = first + share < count ? first + share : count;
  int length = 0;
  for (int i = first; i < last; ++i) length += CodeLength(codes[i]);
  int position;
  Scan(storage).ExclusiveSum(length, position);
  position += static_cast<int>(start.position - tile * int64_t{kQuarticTile});
  for (int i = first; i < last; ++i) {
    const uint8_t code = codes[i];
    if (code <= kLargestQuartic && position >= 0 && position < size) {
      quartic[position] = code;
    }
    position += CodeLength(code);
  }
  __syncthreads();
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_ZERO_RUN_INL_H_
