#include "ops/cuda/bit_packing.h"
#include "ops/cuda/bit_packing_inl.h"
#include "ops/cuda/find.h"
#include "ops/cuda/launch.h"
#include "ops/kernels/bit_packing.h"

namespace tf_gc::cuda {
namespace {

using kernels::PackedSize;

// The indices of a thread. Of them, four are a quad: in a word's bytes, or in
// its lowest bits.
constexpr int kIndices = 16;

template <int kBits>
constexpr uint32_t kMask = (1u << kBits) - 1;

// The quad of four bytes, each less than 2^kBits.
template <int kBits>
__device__ inline uint32_t PackQuad(uint32_t bytes) {
  constexpr uint32_t kLow = kMask<kBits> * 0x10001;
  const uint32_t pairs =
      (bytes & kLow) | (bytes >> (8 - kBits) & kLow << kBits);
  return (pairs & 0xffff) | pairs >> 16 << (2 * kBits);
}

// The four bytes of a quad; bits above it do not matter.
template <int kBits>
__device__ inline uint32_t UnpackQuad(uint32_t quad) {
  constexpr uint32_t kLow = kMask<kBits> * 0x10001;
  const uint32_t pairs = (quad & kMask<2 * kBits>) |
                         (quad >> (2 * kBits) & kMask<2 * kBits>) << 16;
  return (pairs & kLow) | (pairs & kLow << kBits) << (8 - kBits);
}

// Threads take kIndices indices each, side by side in a warp.
template <int kBits>
__global__ void __launch_bounds__(kBlockThreads)
    PackKernel(const uint8_t* indices, int64_t n, uint8_t* packed,
               int64_t size) {
  constexpr int kBytes = kIndices * kBits / 8;
  __shared__ __align__(16) uint8_t shared[kBlockThreads * kBytes];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const bool aligned = IsAligned(indices, kIndices);
  // All lanes of a warp take the same turns.
  for (int64_t i = GridThread(); i - i % 32 < CeilDiv(n, kIndices);
       i += GridThreads()) {
    const Bytes<kIndices> in =
        LoadBytes<kIndices>(indices, i * kIndices, n, aligned);
    Bytes<kBytes> out;
#pragma unroll
    for (int k = 0; k < kIndices / 4; ++k) {
      Insert<4 * kBits>(PackQuad<kBits>(in.words[k]), k, &out);
    }
    WarpStoreBytes(out, packed, (i - i % 32) * kBytes, size,
                   shared + 32 * kBytes * warp);
  }
}

template <int kBits>
__global__ void __launch_bounds__(kBlockThreads)
    UnpackKernel(const uint8_t* packed, int64_t size, int64_t n,
                 uint8_t* indices) {
  constexpr int kBytes = kIndices * kBits / 8;
  __shared__ __align__(16) uint8_t shared[kBlockThreads * kIndices];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const bool aligned = IsAligned(packed, Bytes<kBytes>::kAccess);
  // All lanes of a warp take the same turns.
  for (int64_t i = GridThread(); i - i % 32 < CeilDiv(n, kIndices);
       i += GridThreads()) {
    const Bytes<kBytes> in =
        LoadBytes<kBytes>(packed, i * kBytes, size, aligned);
    Bytes<kIndices> out;
#pragma unroll
    for (int k = 0; k < kIndices / 4; ++k) {
      out.words[k] = UnpackQuad<kBits>(Extract<4 * kBits>(in, k));
    }
    WarpStoreBytes(out, indices, (i - i % 32) * kIndices, n,
                   shared + 32 * kIndices * warp);
  }
}

// *is_zero = whether the bits of *byte from `used` on are 0.
__global__ void PaddingKernel(const uint8_t* byte, int used, int64_t* is_zero) {
  *is_zero = used == 0 || *byte >> used == 0;
}

int Copy(const uint8_t* from, int64_t n, uint8_t* to, void* stream) {
  return cudaMemcpyAsync(to, from, static_cast<size_t>(n),
                         cudaMemcpyDeviceToDevice,
                         static_cast<cudaStream_t>(stream));
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_find_unpackable(const uint8_t* indices, int64_t n, int bits,
                               int64_t* first, void* stream) {
  return Find(indices, n, {0, static_cast<uint8_t>((1 << bits) - 1)}, first,
              stream);
}

int tf_gc_cuda_pack_bits(const uint8_t* indices, int64_t n, int bits,
                         uint8_t* packed, void* stream) {
  return WithBits(bits, [&](auto constant) -> int {
    constexpr int kBits = decltype(constant)::value;
    if constexpr (kBits == 8) {
      return Copy(indices, n, packed, stream);
    } else {
      return Launch(PackKernel<kBits>, BlocksOfTurns(CeilDiv(n, kIndices)),
                    kBlockThreads, stream, indices, n, packed,
                    PackedSize(n, kBits));
    }
  });
}

int tf_gc_cuda_padding_is_zero(const uint8_t* packed, int64_t n, int bits,
                               int64_t* is_zero, void* stream) {
  return Launch(PaddingKernel, 1, 1, stream, packed + PackedSize(n, bits) - 1,
                static_cast<int>(n % 8 * bits % 8), is_zero);
}

int tf_gc_cuda_unpack_bits(const uint8_t* packed, int64_t n, int bits,
                           uint8_t* indices, void* stream) {
  return WithBits(bits, [&](auto constant) -> int {
    constexpr int kBits = decltype(constant)::value;
    if constexpr (kBits == 8) {
      return Copy(packed, n, indices, stream);
    } else {
      return Launch(UnpackKernel<kBits>, BlocksOfTurns(CeilDiv(n, kIndices)),
                    kBlockThreads, stream, packed, PackedSize(n, kBits), n,
                    indices);
    }
  });
}
