// The steps of zero-run encoding and decoding, for 3LC's fused kernels.

#ifndef TF_GC_OPS_CUDA_ZERO_RUN_INL_H_
#define TF_GC_OPS_CUDA_ZERO_RUN_INL_H_

#include <cub/block/block_scan.cuh>

#include "ops/cuda/bit_packing_inl.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/quartic_inl.h"

namespace tf_gc::cuda {

inline constexpr int kLongestRun = 14;

// The codes of runs: run k has the code kRunBase + k, from 2 on.
inline constexpr int kRunBase = 241;

// Quartic bytes of a block, and of each of its threads.
inline constexpr int kThreadBytes = 16;
inline constexpr int kQuarticTile = kThreadBytes * kBlockThreads;

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

// Bit i is 1 where byte i is a zero.
__device__ inline uint32_t ZeroMask(const Bytes<kThreadBytes>& bytes) {
  uint32_t mask = 0;
#pragma unroll
  for (int word = 0; word < kThreadBytes / 4; ++word) {
    const uint32_t other = bytes.words[word] ^ 0x01010101u * kZeroByte;
    // The top bit of each byte is 0 where all its bits are.
    const uint32_t tops = ((other & 0x7f7f7f7fu) + 0x7f7f7f7fu) | other;
    // The product has the four bits side by side.
    const uint32_t four = (~tops >> 7 & 0x01010101u) * 0x01020408u >> 24;
    mask |= (four & 0xf) << (4 * word);
  }
  return mask;
}

// The zeros at which a code begins. The last code before the first byte has
// `run` zeros so far, less than kLongestRun; 0 if it is complete.
__device__ inline uint32_t CodeStarts(uint32_t zeros, int run) {
  uint32_t starts = zeros & ~(zeros << 1);
  if (run != 0 && (zeros & 1) != 0) {
    const int first = kLongestRun - run;
    const uint32_t leading = zeros & ~(zeros + 1);
    starts = (starts & ~1u) | (leading & 1u << first);
  }
  // Where 15 zeros end, the next code begins if the one before is as long.
  uint32_t ends = zeros & zeros << 1;
  ends &= ends << 2;
  ends &= ends << 4;
  ends &= ends << 7;
  static_assert(kLongestRun == 14 && kThreadBytes < 2 * kLongestRun);
  return starts | (starts << kLongestRun & ends);
}

// The runs of the first `count` bytes.
__device__ inline Runs<int> RunsOfBytes(const Bytes<kThreadBytes>& bytes,
                                        int count) {
  const uint32_t zeros = ZeroMask(bytes);
  const uint32_t others = ~zeros & ((1u << count) - 1);
  if (others == 0) return {count, -1, 0};
  const int leading = __ffs(static_cast<int>(others)) - 1;
  const int trailing = count - 32 + __clz(static_cast<int>(others));
  const uint32_t behind = zeros & ((1u << count) - (1u << leading));
  return {leading, trailing, __popc(others) + __popc(CodeStarts(behind, 0))};
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

// A thread's codes of those from `begin` on: kCount, as long as they come
// before `end`.
struct ThreadCodes {
  static constexpr int kCount = 16;

  Bytes<kCount> codes;
  int count;

  __device__ ThreadCodes(const uint8_t* encoded, int64_t begin, int64_t end) {
    begin += kCount * static_cast<int>(threadIdx.x);
    count = TileSize(begin, kCount, end);
    codes = LoadBytes<kCount>(encoded, begin, end,
                              IsAligned(encoded + begin, kCount));
  }

  __device__ uint8_t operator[](int i) const {
    return static_cast<uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
  }

  // The quartic bytes that they stand for.
  __device__ int Length() const {
    // Those that are not there are 0, for one byte.
    int length = count - kCount;
#pragma unroll
    for (int i = 0; i < kCount; ++i) length += CodeLength((*this)[i]);
    return length;
  }
};

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
  using Scan = cub::BlockScan<int, kBlockThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage storage;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t tile = blockIdx.x;
  const TileStart start = index.starts[tile];
  // The last code may begin in the next tile. Of more codes than the tile has
  // bytes, it does.
  const int64_t end = tile + 1 < QuarticTiles(m)
                          ? index.starts[tile + 1].code + 1
                          : *index.codes;
  const ThreadCodes codes(encoded, start.code, end);
  Bytes<kThreadBytes> zeros;
  for (uint32_t& word : zeros.words) word = 0x01010101u * kZeroByte;
  StoreBytes(zeros, true, quartic, kThreadBytes * thread, kQuarticTile);
  int position;
  Scan(storage).ExclusiveSum(codes.Length(), position);
  __syncthreads();
  position += static_cast<int>(start.position - tile * int64_t{kQuarticTile});
#pragma unroll
  for (int i = 0; i < ThreadCodes::kCount; ++i) {
    const uint8_t code = codes[i];
    if (i < codes.count && code <= kLargestQuartic && position >= 0 &&
        position < size) {
      quartic[position] = code;
    }
    position += CodeLength(code);
  }
  __syncthreads();
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_ZERO_RUN_INL_H_
