#include "ops/cuda/bit_packing_inl.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/table_sum.h"
#include "ops/kernels/bit_packing.h"

namespace tf_gc::cuda {
namespace {

// Of 16 bits for sums of 8, too: nvcc copies bytes to local memory.
template <int kBits>
struct Table {
  uint16_t values[1 << kBits];
};

// The sums of the words' lanes, each modulo its own size.
template <typename T>
__device__ inline uint32_t AddLanes(uint32_t a, uint32_t b) {
  constexpr uint32_t kTops = sizeof(T) == 1 ? 0x80808080 : 0x80008000;
  return ((a & ~kTops) + (b & ~kTops)) ^ ((a ^ b) & kTops);
}

// Threads take 16 bytes of sums each.
template <typename T, int kBits>
__global__ void __launch_bounds__(kBlockThreads)
    SumKernel(const uint8_t* packed, int64_t size, int64_t n,
              Table<kBits> table, const T* accumulator, T* sums) {
  constexpr int kLanes = 16 / sizeof(T);
  constexpr int kBytes = kLanes * kBits / 8;
  __shared__ uint16_t terms_of[1 << kBits];
  __shared__ __align__(16) uint8_t shared[kBlockThreads * 16];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 1 << kBits) terms_of[thread] = table.values[thread];
  __syncthreads();

  const uint8_t* const accumulator_bytes =
      reinterpret_cast<const uint8_t*>(accumulator);
  uint8_t* const sum_bytes = reinterpret_cast<uint8_t*>(sums);
  const int64_t total_bytes = n * static_cast<int64_t>(sizeof(T));
  const bool packed_aligned = IsAligned(packed, Bytes<kBytes>::kAccess);
  const bool accumulator_aligned = IsAligned(accumulator, 16);
  // All lanes of a warp take the same turns.
  for (int64_t i = GridThread(); i - i % 32 < CeilDiv(n, kLanes);
       i += GridThreads()) {
    const Bytes<kBytes> in =
        LoadBytes<kBytes>(packed, i * kBytes, size, packed_aligned);
    Bytes<16> out = LoadBytes<16>(accumulator_bytes, i * 16, total_bytes,
                                  accumulator_aligned);
    Bytes<16> terms;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const uint32_t index = Extract<kBits>(in, k) & ((1u << kBits) - 1);
      Insert<8 * static_cast<int>(sizeof(T))>(terms_of[index], k, &terms);
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      out.words[word] = AddLanes<T>(out.words[word], terms.words[word]);
    }
    WarpStoreBytes(out, sum_bytes, (i - i % 32) * 16, total_bytes,
                   shared + 16 * (thread - thread % 32));
  }
}

template <typename T>
int Sum(const uint8_t* packed, int64_t n, const T* table, int bits,
        const T* accumulator, T* sums, void* stream) {
  return WithBits(bits, [&](auto constant) {
    constexpr int kBits = decltype(constant)::value;
    Table<kBits> copy;
    for (int z = 0; z < 1 << kBits; ++z) copy.values[z] = table[z];
    const int64_t threads = CeilDiv(n * static_cast<int64_t>(sizeof(T)), 16);
    return Launch(SumKernel<T, kBits>, BlocksOfTurns(threads), kBlockThreads,
                  stream, packed, kernels::PackedSize(n, kBits), n, copy,
                  accumulator, sums);
  });
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int tf_gc_cuda_table_sum_uint8(const uint8_t* packed, int64_t n,
                               const uint8_t* table, int bits,
                               const uint8_t* accumulator, uint8_t* sums,
                               void* stream) {
  return Sum(packed, n, table, bits, accumulator, sums, stream);
}

int tf_gc_cuda_table_sum_uint16(const uint8_t* packed, int64_t n,
                                const uint16_t* table, int bits,
                                const uint16_t* accumulator, uint16_t* sums,
                                void* stream) {
  return Sum(packed, n, table, bits, accumulator, sums, stream);
}
