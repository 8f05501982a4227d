#include "ops/cuda/bytes.h"
#include "ops/cuda/index_packing.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/look_back.h"
#include "ops/kernels/index_packing.h"

namespace tf_gc::cuda {
namespace {

// Where bits are: a string of places, of which those of the indices are 1, and
// in Elias-Fano form the low bits behind it.
struct Form {
  bool is_bitmap;
  int low_bits;
  int64_t bits;  // Of the first string.

  // The place of index j.
  __device__ int64_t Place(int32_t index, int64_t j) const {
    return is_bitmap ? int64_t{index} : (index >> low_bits) + j;
  }
  __host__ __device__ int64_t Bytes() const { return CeilDiv(bits, 8); }
};

// 1 <= k.
Form MakeForm(int64_t k, int64_t n) {
  const int form = kernels::PackedIndicesForm(k, n);
  if (form == kernels::kBitmap) return {true, 0, n};
  return {false, form, k + ((n - 1) >> form)};
}

// ---- Packing ----------------------------------------------------------------

struct CheckAscending {
  const int32_t* indices;
  int64_t n;
  int64_t* first;

  __device__ void operator()(int64_t j) const {
    const int32_t index = indices[j];
    const int32_t previous = j == 0 ? -1 : indices[j - 1];
    if (index <= previous || index >= n) Lower(first, j);
  }
};

// The first of k indices whose place is `place` or behind it, found by all
// threads of the block.
__device__ inline int64_t FindPlace(const int32_t* indices, int64_t k,
                                    const Form& form, int64_t place) {
  int64_t begin = 0, end = k;
  while (begin < end) {
    const int64_t step = CeilDiv(end - begin, kBlockThreads);
    const int64_t j = begin + step * threadIdx.x;
    const int before =
        __syncthreads_count(j < end && form.Place(indices[j], j) < place);
    if (before == 0) return begin;
    const int64_t next = begin + step * before;
    begin = next - step + 1;
    end = next < end ? next : end;
  }
  return begin;
}

// Bytes of the string of places that a block writes.
constexpr int kPlacesTile = 4096;

constexpr int kLoads = 4;  // Indices of a thread that are under way at once.

__global__ void __launch_bounds__(kBlockThreads)
    PackPlacesKernel(const int32_t* indices, int64_t k, Form form,
                     uint8_t* packed) {
  __shared__ __align__(16) uint32_t words[kPlacesTile / 4];
  __shared__ __align__(16) uint8_t out[StagingSize(kPlacesTile)];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = int64_t{kPlacesTile} * blockIdx.x;
  const int size = TileSize(begin, kPlacesTile, form.Bytes());
  const int64_t first_place = 8 * begin;
  for (int i = thread; i < kPlacesTile / 4; i += kBlockThreads) words[i] = 0;
  const int64_t first = FindPlace(indices, k, form, first_place);
  __syncthreads();
  bool is_behind = false;
  for (int64_t j = first + thread; j < k && !is_behind;
       j += kLoads * kBlockThreads) {
    int64_t places[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int64_t i = j + load * kBlockThreads;
      places[load] = i < k ? form.Place(indices[i], i) - first_place : -1;
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int64_t place = places[load];
      is_behind |= place >= 8 * size;
      if (place >= 0 && place < 8 * size) {
        atomicOr(&words[place / 32], 1u << (place % 32));
      }
    }
  }
  __syncthreads();
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
  uint8_t* const staged = Staging(out, packed + begin);
  for (int i = thread; i < size; i += kBlockThreads) staged[i] = bytes[i];
  __syncthreads();
  BlockCopy(staged, size, packed + begin);
}

// Indices whose low bits a block writes: whole words, whatever the low bits.
constexpr int kLowTile = 2048;
constexpr int kMaxLowBits = 31;

__global__ void __launch_bounds__(kBlockThreads)
    PackLowBitsKernel(const int32_t* indices, int64_t k, int low_bits,
                      uint8_t* packed) {
  __shared__ uint32_t lows[kLowTile];
  __shared__ __align__(16) uint8_t out[StagingSize(kLowTile / 8 * kMaxLowBits)];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = int64_t{kLowTile} * blockIdx.x;
  const int count = TileSize(begin, kLowTile, k);
  const uint32_t mask = (1u << low_bits) - 1;
  for (int i = thread; i < count; i += kBlockThreads) {
    lows[i] = static_cast<uint32_t>(indices[begin + i]) & mask;
  }
  __syncthreads();
  uint8_t* const to = packed + begin / 8 * low_bits;
  const int size = static_cast<int>(CeilDiv(int64_t{count} * low_bits, 8));
  uint8_t* const staged = Staging(out, to);
  for (int byte = 4 * thread; byte < size; byte += 4 * kBlockThreads) {
    uint32_t word = 0;
    int i = 8 * byte / low_bits;
    int place = i * low_bits - 8 * byte;  // Of the index' bits in the word.
    if (place < 0) {
      word = lows[i++] >> -place;
      place += low_bits;
    }
    for (; place < 32 && i < count; ++i, place += low_bits) {
      word |= lows[i] << place;
    }
    StoreBytes(word, TileSize(byte, 4, size), staged + byte);
  }
  __syncthreads();
  BlockCopy(staged, size, to);
}

// ---- Unpacking --------------------------------------------------------------

// What may be wrong: of many things the first is told.
enum Error : int64_t {
  kNoError = -1,
  kTooManyBits,
  kTooFewBits,
  kPlacesPadding,
  kNotAscending,
  kTooLarge,
  kLowPadding,
};

constexpr int kWarps = kBlockThreads / 32;
constexpr int kRounds = 4;  // Words of a lane in each tile.
constexpr int kWarpWords = 32 * kRounds;
constexpr int kWordsTile = kWarps * kWarpWords;

struct Unpacking {
  const uint8_t* packed;
  int64_t k;
  int64_t n;
  Form form;
  int32_t* indices;
  int64_t* error;

  // The low bits of index j.
  __device__ uint32_t LowBits(int64_t j) const {
    const int64_t size = CeilDiv(k * form.low_bits, 8);
    const int64_t bit = j * form.low_bits;
    const uint8_t* const bytes = packed + form.Bytes();
    const int shift = static_cast<int>(bit % 8);
    uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      if (bit / 8 + i < size && 8 * i < shift + form.low_bits) {
        word |= uint64_t{bytes[bit / 8 + i]} << (8 * i);
      }
    }
    return static_cast<uint32_t>(word >> shift) & ((1u << form.low_bits) - 1);
  }

  // The place of index j is `place`. is_next: that of index j - 1 is the one
  // before it.
  __device__ void Write(int64_t j, int64_t place, bool is_next) const {
    if (j >= k) return;
    if (form.is_bitmap) {
      indices[j] = static_cast<int32_t>(place);
      return;
    }
    const uint32_t low = LowBits(j);
    const int64_t index = (place - j) << form.low_bits | low;
    indices[j] = static_cast<int32_t>(index);
    if (is_next && LowBits(j - 1) >= low) Lower(error, kNotAscending);
    if (j == k - 1 && index >= n) Lower(error, kTooLarge);
  }

  // The block's tile, of which the lane has the words `first` + 32 r.
  __device__ void UnpackTile(int64_t tile, const TileSums& sums) const {
    __shared__ uint32_t warp_ones[kWarps];
    __shared__ int64_t tile_start;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t first = tile * kWordsTile + warp * kWarpWords + lane;
    uint32_t words[kRounds];
    uint32_t ones = 0;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int64_t byte = 4 * (first + 32 * r);
      words[r] = LoadBytes(packed + byte, TileSize(byte, 4, form.Bytes()));
      ones += __popc(words[r]);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      ones += __shfl_xor_sync(~0u, ones, lanes);
    }
    if (lane == 0) warp_ones[warp] = ones;
    __syncthreads();
    uint32_t before_warp = 0, all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) before_warp = all;
      all += warp_ones[w];
    }
    if (warp == 0) {
      const int64_t start = static_cast<int64_t>(sums.Before(tile, all));
      if (lane == 0) tile_start = start;
    }
    __syncthreads();
    int64_t before = tile_start + before_warp;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      before = WriteRound(words[r], 32 * (first + 32 * r - lane), lane, before);
    }
    if (threadIdx.x == 0) Check(tile, tile_start + all);
  }

  // Writes the indices of the warp's words, one for each lane, the first of
  // which begins at `place`. `before` indices are before them; returns how many
  // are before what follows.
  __device__ int64_t WriteRound(uint32_t own, int64_t place, int lane,
                                int64_t before) const {
    const unsigned occupied = __ballot_sync(~0u, own != 0);
    const unsigned lower_lanes = (1u << lane) - 1;
    // The last bit of the word before each.
    const uint32_t last = __shfl_up_sync(~0u, own, 1) >> 31;
    const uint32_t carry = lane > 0                      ? last
                           : (own & 1) != 0 && place > 0 ? BitBefore(place)
                                                         : 0;
    for (unsigned rest = occupied; rest != 0; rest &= rest - 1) {
      const int i = __ffs(static_cast<int>(rest)) - 1;
      const uint32_t word = __shfl_sync(~0u, own, i);
      const uint32_t next = word << 1 | __shfl_sync(~0u, carry, i);
      if (word >> lane & 1) {
        Write(before + __popc(word & lower_lanes), place + 32 * i + lane,
              next >> lane & 1);
      }
      before += __popc(word);
    }
    return before;
  }

  __device__ uint32_t BitBefore(int64_t place) const {
    return packed[(place - 1) / 8] >> ((place - 1) % 8) & 1;
  }

  // `ones` bits are 1 up to the end of the tile.
  __device__ void Check(int64_t tile, int64_t ones) const {
    if ((tile + 1) * kWordsTile * 4 < form.Bytes()) return;
    if (ones != k) Lower(error, ones > k ? kTooManyBits : kTooFewBits);
    if (!PaddingIsZero(packed, form.bits)) Lower(error, kPlacesPadding);
    if (!PaddingIsZero(packed + form.Bytes(), k * form.low_bits)) {
      Lower(error, kLowPadding);
    }
  }

  static __device__ bool PaddingIsZero(const uint8_t* bytes, int64_t bits) {
    return bits % 8 == 0 || bytes[bits / 8] >> (bits % 8) == 0;
  }
};

__global__ void __launch_bounds__(kBlockThreads)
    UnpackKernel(Unpacking unpacking, TileSums sums) {
  const int64_t tiles = CeilDiv(unpacking.form.Bytes(), 4 * kWordsTile);
  for (int64_t tile = sums.NextTile(); tile < tiles; tile = sums.NextTile()) {
    unpacking.UnpackTile(tile, sums);
  }
}

int64_t WordTiles(const Form& form) {
  return CeilDiv(form.Bytes(), 4 * kWordsTile);
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_find_not_ascending(const int32_t* indices, int64_t k, int64_t n,
                                  int64_t* first, void* stream) {
  TF_GC_CUDA_RETURN_IF_ERROR(StartLowering(first, stream));
  return ForEach(k, stream, CheckAscending{indices, n, first});
}

int tf_gc_cuda_pack_indices(const int32_t* indices, int64_t k, int64_t n,
                            uint8_t* packed, void* stream) {
  if (k == 0) return cudaSuccess;
  const Form form = MakeForm(k, n);
  TF_GC_CUDA_RETURN_IF_ERROR(
      Launch(PackPlacesKernel, CeilDiv(form.Bytes(), kPlacesTile),
             kBlockThreads, stream, indices, k, form, packed));
  if (form.low_bits == 0) return cudaSuccess;
  return Launch(PackLowBitsKernel, CeilDiv(k, kLowTile), kBlockThreads, stream,
                indices, k, form.low_bits, packed + form.Bytes());
}

int64_t tf_gc_cuda_unpack_indices_workspace_size(int64_t k, int64_t n) {
  if (k == 0) return 0;
  Workspace workspace(nullptr);
  TileSums::Take(WordTiles(MakeForm(k, n)), &workspace);
  return workspace.size();
}

int tf_gc_cuda_unpack_indices(const uint8_t* packed, int64_t k, int64_t n,
                              int32_t* indices, int64_t* error, void* workspace,
                              void* stream) {
  TF_GC_CUDA_RETURN_IF_ERROR(StartLowering(error, stream));
  if (k == 0) return cudaSuccess;
  const Form form = MakeForm(k, n);
  Workspace all(workspace);
  const TileSums sums = TileSums::Take(WordTiles(form), &all);
  TF_GC_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(workspace, 0, static_cast<size_t>(all.size()),
                      static_cast<cudaStream_t>(stream)));
  const Unpacking unpacking = {packed, k, n, form, indices, error};
  return Launch(UnpackKernel, TileBlocks(WordTiles(form)), kBlockThreads,
                stream, unpacking, sums);
}

const char* tf_gc_cuda_unpack_indices_message(int64_t error) {
  switch (error) {
    case kNoError:
      return nullptr;
    case kTooManyBits:
      return "has more bits that are 1 than indices";
    case kTooFewBits:
      return "has fewer bits that are 1 than indices";
    case kNotAscending:
      return "has indices that do not ascend";
    case kTooLarge:
      return "has an index that is too large";
    default:
      return "has padding that is not 0";
  }
}
