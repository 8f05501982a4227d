#include "ops/cuda/find.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/quartic.h"
#include "ops/cuda/quartic_inl.h"

namespace tf_gc::cuda {
namespace {

// The quartic bytes of a block. The five partitions have any alignment, so
// tiles go through shared memory to be read and written 16 bytes at once.
constexpr int kTile = 2048;

// ---- Validation -------------------------------------------------------------

// Padding value k of the last partitions.
struct CheckPadding {
  const uint8_t* quartic;
  int64_t n;
  int64_t partition;
  int64_t* first;

  __device__ void operator()(int64_t k) const {
    const int64_t j = (n + k) / partition;
    const int64_t i = n + k - j * partition;
    // Of a byte above 242 the index is known already.
    if (QuarticDigit(quartic[i], static_cast<int>(j)) != 0) Lower(first, i);
  }
};

// ---- Encoding ---------------------------------------------------------------

// Four bytes of shared memory at any address, of which the eight from the last
// aligned one on can be read.
__device__ inline uint32_t LoadWord(const uint8_t* shared) {
  const int shift = AddressModulo16(shared) % 4;
  const uint8_t* const aligned = shared - shift;
  uint32_t low, high;
  __builtin_memcpy(&low, __builtin_assume_aligned(aligned, 4), 4);
  __builtin_memcpy(&high, __builtin_assume_aligned(aligned + 4, 4), 4);
  return __funnelshift_r(low, high, 8 * shift);
}

__global__ void __launch_bounds__(kBlockThreads)
    EncodeKernel(const int8_t* ternary, int64_t n, int64_t partition,
                 uint8_t* quartic) {
  // LoadWord reads up to 7 bytes more.
  __shared__ __align__(16) uint8_t in[5][StagingSize(kTile + 7)];
  __shared__ __align__(16) uint8_t out[StagingSize(kTile)];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
  const int size = TileSize(begin, kTile, partition);
  const uint8_t* staged[5];
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * partition + begin;
    const int count = TileSize(first, size, n);
    const uint8_t* const from =
        reinterpret_cast<const uint8_t*>(ternary) + first;
    uint8_t* const to = Staging(in[j], from);
    BlockCopy(from, count, to);
    // Padding has the digit 0, as -1 has.
    for (int i = count + static_cast<int>(threadIdx.x); i < size;
         i += kBlockThreads) {
      to[i] = 0xff;
    }
    staged[j] = to;
  }
  __syncthreads();
  uint8_t* const to = Staging(out, quartic + begin);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < size;
       i += 4 * kBlockThreads) {
    // Four bytes at once: no digit, and no sum up to 242, carries into the
    // next.
    uint32_t sums = 0;
    for (int j = 0; j < 5; ++j) {
      const uint32_t digits =
          (LoadWord(staged[j] + i) & 0x03030303u) + 0x01010101u;
      sums = 3 * sums + (digits & 0x03030303u);
    }
    for (int k = 0; k < 4 && i + k < size; ++k) {
      to[i + k] = static_cast<uint8_t>(sums >> (8 * k));
    }
  }
  __syncthreads();
  BlockCopy(to, size, quartic + begin);
}

// ---- Decoding ---------------------------------------------------------------

__global__ void __launch_bounds__(kBlockThreads)
    DecodeKernel(const uint8_t* quartic, int64_t n, int64_t partition,
                 int8_t* ternary) {
  __shared__ __align__(16) uint8_t in[StagingSize(kTile)];
  __shared__ __align__(16) uint8_t out[5][StagingSize(kTile)];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
  const int size = TileSize(begin, kTile, partition);
  uint8_t* const staged = Staging(in, quartic + begin);
  BlockCopy(quartic + begin, size, staged);
  __syncthreads();
  uint8_t* to[5];
  for (int j = 0; j < 5; ++j) {
    to[j] = Staging(out[j], ternary + j * partition + begin);
  }
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kBlockThreads) {
    int values[5];
    QuarticValues(staged[i], values);
    for (int j = 0; j < 5; ++j) to[j][i] = static_cast<uint8_t>(values[j]);
  }
  __syncthreads();
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * partition + begin;
    BlockCopy(to[j], TileSize(first, size, n),
              reinterpret_cast<uint8_t*>(ternary) + first);
  }
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_find_non_ternary(const int8_t* ternary, int64_t n,
                                int64_t* first, void* stream) {
  return Find(reinterpret_cast<const uint8_t*>(ternary), n, {1, 2}, first,
              stream);
}

int tf_gc_cuda_quartic_encode(const int8_t* ternary, int64_t n,
                              uint8_t* quartic, void* stream) {
  const int64_t partition = QuarticSize(n);
  return Launch(EncodeKernel, CeilDiv(partition, kTile), kBlockThreads, stream,
                ternary, n, partition, quartic);
}

int tf_gc_cuda_find_non_quartic(const uint8_t* quartic, int64_t n,
                                int64_t* first, void* stream) {
  const int64_t partition = QuarticSize(n);
  TF_GC_CUDA_RETURN_IF_ERROR(
      Find(quartic, partition, {0, kLargestQuartic}, first, stream));
  return ForEach(5 * partition - n, stream,
                 CheckPadding{quartic, n, partition, first});
}

int tf_gc_cuda_quartic_decode(const uint8_t* quartic, int64_t n,
                              int8_t* ternary, void* stream) {
  const int64_t partition = QuarticSize(n);
  return Launch(DecodeKernel, CeilDiv(partition, kTile), kBlockThreads, stream,
                quartic, n, partition, ternary);
}
