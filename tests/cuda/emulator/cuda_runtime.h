// The part of CUDA that the kernels use, for emulator.h.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_CUDA_RUNTIME_H_
#define TF_GC_TESTS_CUDA_EMULATOR_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/cuda/emulator/emulator.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(size) __attribute__((aligned(size)))
// One block runs at a time.
#define __shared__ static

// ---- Host functions ---------------------------------------------------------

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

using cudaStream_t = struct CUstream_st*;

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  // A launch copies the arguments.
  const auto run = [&](Parameters... parameters) {
    emulator::Run(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                  [&] { kernel(parameters...); });
  };
  run(std::forward<Arguments>(arguments)...);
  return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "invalid argument";
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

inline cudaError_t cudaMemsetAsync(void* to, int byte, size_t size,
                                   cudaStream_t) {
  if (size > 0) std::memset(to, byte, size);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                                   cudaMemcpyKind, cudaStream_t) {
  if (size > 0) std::memmove(to, from, size);
  return cudaSuccess;
}

// ---- Barriers and warps -----------------------------------------------------

inline void __syncthreads() { emulator::WaitForBlock(); }

inline int __syncthreads_count(int predicate) {
  const emulator::BlockExchange<int> predicates(predicate);
  int count = 0;
  for (int i = 0; i < emulator::Threads(); ++i) count += predicates[i] != 0;
  return count;
}
inline int __syncthreads_or(int predicate) {
  return __syncthreads_count(predicate) != 0;
}
inline int __syncthreads_and(int predicate) {
  return __syncthreads_count(predicate) == emulator::Threads();
}

inline void __syncwarp(unsigned mask = ~0u) { emulator::WaitForWarp(mask); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int begin = emulator::Lane() / width * width;
  return emulator::WarpExchange<T>(mask, value)[begin + lane % width];
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::Lane();
  const int from = lane - static_cast<int>(delta);
  const emulator::WarpExchange<T> values(mask, value);
  return from >= lane / width * width ? values[from] : value;
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::Lane();
  const int from = lane + static_cast<int>(delta);
  const emulator::WarpExchange<T> values(mask, value);
  return from < lane / width * width + width ? values[from] : value;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int lane = emulator::Lane();
  const int from = lane ^ lanes;
  const emulator::WarpExchange<T> values(mask, value);
  return from < lane / width * width + width ? values[from] : value;
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const emulator::WarpExchange<int> predicates(mask, predicate);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1 && predicates[lane]) ballot |= 1u << lane;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}

inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- Atomic operations, which return the old value --------------------------

template <typename T>
T atomicAdd(T* address, T value) {
  return std::exchange(*address, static_cast<T>(*address + value));
}
template <typename T>
T atomicMin(T* address, T value) {
  return std::exchange(*address, value < *address ? value : *address);
}
template <typename T>
T atomicMax(T* address, T value) {
  return std::exchange(*address, value > *address ? value : *address);
}
template <typename T>
T atomicOr(T* address, T value) {
  return std::exchange(*address, *address | value);
}
template <typename T>
T atomicAnd(T* address, T value) {
  return std::exchange(*address, *address & value);
}
template <typename T>
T atomicXor(T* address, T value) {
  return std::exchange(*address, *address ^ value);
}
template <typename T>
T atomicExch(T* address, T value) {
  return std::exchange(*address, value);
}
template <typename T>
T atomicCAS(T* address, T expected, T value) {
  return std::exchange(*address, *address == expected ? value : *address);
}

// ---- Arithmetic -------------------------------------------------------------

template <typename To, typename From>
To tf_gc_emulator_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof(To));
  return bits;
}
inline int __float_as_int(float x) { return tf_gc_emulator_bits<int>(x); }
inline unsigned __float_as_uint(float x) {
  return tf_gc_emulator_bits<unsigned>(x);
}
inline float __int_as_float(int x) { return tf_gc_emulator_bits<float>(x); }
inline float __uint_as_float(unsigned x) {
  return tf_gc_emulator_bits<float>(x);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) << (shift & 31) >>
                               32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
// Shifts are clamped to 32.
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >>
                               (shift < 32 ? shift : 32));
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}

#endif  // TF_GC_TESTS_CUDA_EMULATOR_CUDA_RUNTIME_H_
