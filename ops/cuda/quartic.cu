#include "ops/cuda/bit_packing_inl.h"
#include "ops/cuda/find.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/quartic.h"
#include "ops/cuda/quartic_inl.h"

namespace tf_gc::cuda {
namespace {

// The quartic bytes of a thread, side by side in a warp.
constexpr int kBytes = 16;

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

__global__ void __launch_bounds__(kBlockThreads)
    EncodeKernel(const int8_t* ternary, int64_t n, int64_t partition,
                 uint8_t* quartic) {
  __shared__ __align__(16) uint8_t shared[kBlockThreads * kBytes];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = kBytes * GridThread();
  const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(ternary);
  Bytes<kBytes> in[5];
#pragma unroll
  for (int j = 0; j < 5; ++j) {
    const int64_t first = j * partition + begin;
    in[j] =
        LoadBytes<kBytes>(bytes, first, n, IsAligned(bytes + first, kBytes));
    // Padding has the digit 0, as -1 has.
    if (first + kBytes > n) SetFrom(TileSize(first, kBytes, n), &in[j]);
  }
  Bytes<kBytes> out;
#pragma unroll
  for (int j = 0; j < 5; ++j) {
#pragma unroll
    for (int word = 0; word < kBytes / 4; ++word) {
      // Four bytes at once: no digit, and no sum up to 242, carries into the
      // next.
      const uint32_t digits = (in[j].words[word] & 0x03030303u) + 0x01010101u;
      out.words[word] = 3 * out.words[word] + (digits & 0x03030303u);
    }
  }
  WarpStoreBytes(out, quartic, begin - kBytes * (thread % 32), partition,
                 shared + kBytes * (thread - thread % 32));
}

// ---- Decoding ---------------------------------------------------------------

// Divides two bytes, bits 0 to 7 and 16 to 23, by 3; returns what is left.
__device__ inline uint32_t DivideBy3(uint32_t* pair) {
  const uint32_t third = *pair * 171 >> 9 & 0x007f007fu;
  const uint32_t rest = *pair - 3 * third;
  *pair = third;
  return rest;
}

__global__ void __launch_bounds__(kBlockThreads)
    DecodeKernel(const uint8_t* quartic, int64_t n, int64_t partition,
                 int8_t* ternary) {
  __shared__ __align__(16) uint8_t shared[kBlockThreads * kBytes];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = kBytes * GridThread();
  const Bytes<kBytes> in =
      LoadBytes<kBytes>(quartic, begin, partition, IsAligned(quartic, kBytes));
  uint32_t pairs[kBytes / 4][2];
#pragma unroll
  for (int word = 0; word < kBytes / 4; ++word) {
    pairs[word][0] = in.words[word] & 0x00ff00ffu;
    pairs[word][1] = in.words[word] >> 8 & 0x00ff00ffu;
  }
#pragma unroll
  for (int j = 4; j >= 0; --j) {
    Bytes<kBytes> out;
#pragma unroll
    for (int word = 0; word < kBytes / 4; ++word) {
      const uint32_t digits =
          DivideBy3(&pairs[word][0]) | DivideBy3(&pairs[word][1]) << 8;
      // Each byte less 1.
      out.words[word] = ((digits | 0x80808080u) - 0x01010101u) ^ 0x80808080u;
    }
    const int64_t first = j * partition;
    WarpStoreBytes(out, reinterpret_cast<uint8_t*>(ternary) + first,
                   begin - kBytes * (thread % 32),
                   partition < n - first ? partition : n - first,
                   shared + kBytes * (thread - thread % 32));
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
  return Launch(EncodeKernel, CeilDiv(partition, kBytes * kBlockThreads),
                kBlockThreads, stream, ternary, n, partition, quartic);
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
  return Launch(DecodeKernel, CeilDiv(partition, kBytes * kBlockThreads),
                kBlockThreads, stream, quartic, n, partition, ternary);
}
