// What the CUDA kernels share: launches, indices, workspace, and 16-byte
// accesses to memory of any alignment.
//
// The kernels use a small part of CUDA: that of tests/cuda/emulator, which runs
// them on the CPU. Its tests compare their outputs with those of ops/kernels.

#ifndef TF_GC_OPS_CUDA_LAUNCH_H_
#define TF_GC_OPS_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace tf_gc::cuda {

// ---- On the host ------------------------------------------------------------

// Threads of a block, unless a kernel says otherwise.
inline constexpr int kBlockThreads = 256;

// Blocks of kernels whose threads take many turns: enough to fill any GPU.
inline constexpr int64_t kMaxTurningBlocks = 2048;

__host__ __device__ constexpr int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks for `units` of work, one for each thread of a turn.
constexpr int64_t TurningBlocks(int64_t units) {
  const int64_t blocks = CeilDiv(units, kBlockThreads);
  return blocks < kMaxTurningBlocks ? blocks : kMaxTurningBlocks;
}

// Runs `kernel` on `blocks` x `threads` threads, with `dynamic_shared` bytes of
// shared memory besides what it declares (above 48 KiB the kernel must allow
// them by cudaFuncSetAttribute). No blocks are no launch. Returns a
// cudaError_t.
template <typename... Parameters, typename... Arguments>
int LaunchShared(void (*kernel)(Parameters...), int64_t blocks, int threads,
                 int64_t dynamic_shared, void* stream,
                 const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(dynamic_shared);
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <typename... Parameters, typename... Arguments>
int Launch(void (*kernel)(Parameters...), int64_t blocks, int threads,
           void* stream, const Arguments&... arguments) {
  return LaunchShared(kernel, blocks, threads, 0, stream, arguments...);
}

// Cuts arrays from a workspace, each aligned to 256 bytes. On a null workspace
// it only counts, so that one function says both how large the workspace is and
// where its parts are.
class Workspace {
 public:
  explicit Workspace(void* begin) : begin_(static_cast<char*>(begin)) {}

  template <typename T>
  T* Take(int64_t count) {
    char* const array = begin_ == nullptr ? nullptr : begin_ + size_;
    size_ += CeilDiv(count * static_cast<int64_t>(sizeof(T)), 256) * 256;
    return reinterpret_cast<T*>(array);
  }

  int64_t size() const { return size_; }

 private:
  char* begin_;
  int64_t size_ = 0;
};

#define TF_GC_CUDA_RETURN_IF_ERROR(expression)     \
  do {                                             \
    const int tf_gc_cuda_error = (expression);     \
    if (tf_gc_cuda_error) return tf_gc_cuda_error; \
  } while (false)

// ---- In kernels -------------------------------------------------------------

// The thread's index in the grid, and the number of the grid's threads.
__device__ inline int64_t GridThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GridThreads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// How many of the `tile` elements from `begin` on come before `end`.
__device__ inline int TileSize(int64_t begin, int tile, int64_t end) {
  const int64_t rest = end - begin;
  return rest <= 0 ? 0 : rest < tile ? static_cast<int>(rest) : tile;
}

// The shared memory that LaunchShared asked for, aligned to 16 bytes.
__device__ inline unsigned char* DynamicShared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char tf_gc_dynamic_shared[];
  return tf_gc_dynamic_shared;
#else
  return emulator::DynamicShared();
#endif
}

// kCount values that one instruction loads or stores: at most 16 bytes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];
};

// Precondition: `values` is aligned to the size of the vector.
template <int kCount, typename T>
__device__ inline Vector<T, kCount> LoadVector(const T* values) {
  return *reinterpret_cast<const Vector<T, kCount>*>(values);
}
template <int kCount, typename T>
__device__ inline void StoreVector(const Vector<T, kCount>& vector, T* values) {
  *reinterpret_cast<Vector<T, kCount>*>(values) = vector;
}

__host__ __device__ inline int AddressModulo16(const void* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) % 16);
}

// Bytes of shared memory, aligned to 16 bytes, that hold a copy of `count`
// bytes with the alignment of the original.
__host__ __device__ constexpr int StagingSize(int count) {
  return (count + 15 + 15) / 16 * 16;
}

// Where the copy of the bytes at `global` begins in shared memory that is
// aligned to 16 bytes: as far behind an aligned address as they are.
__device__ inline uint8_t* Staging(uint8_t* shared, const void* global) {
  return shared + AddressModulo16(global);
}

// Copies `count` bytes with all threads of the block, 16 at once. `from` and
// `to` are the same modulo 16: Staging makes them so. The caller synchronises.
__device__ inline void BlockCopy(const uint8_t* from, int count, uint8_t* to) {
  const unsigned size = static_cast<unsigned>(count);
  const unsigned to_aligned = (16 - AddressModulo16(from)) % 16;
  const unsigned head = to_aligned < size ? to_aligned : size;
  const unsigned vectors = (size - head) / 16;
  const unsigned tail = head + 16 * vectors;
  const unsigned threads = blockDim.x;
  for (unsigned i = threadIdx.x; i < vectors; i += threads) {
    StoreVector(LoadVector<16>(from + head + 16 * i), to + head + 16 * i);
  }
  for (unsigned i = threadIdx.x; i < head; i += threads) to[i] = from[i];
  for (unsigned i = tail + threadIdx.x; i < size; i += threads) to[i] = from[i];
}

// Lowers *first, as an unsigned number, to i.
__device__ inline void Lower(int64_t* first, int64_t i) {
  atomicMin(reinterpret_cast<unsigned long long*>(first),
            static_cast<unsigned long long>(i));
}

// Makes *first -1, which is above all others there.
inline int StartLowering(int64_t* first, void* stream) {
  return cudaMemsetAsync(first, 0xff, sizeof(*first),
                         static_cast<cudaStream_t>(stream));
}

// Calls body(i) for all i in 0 ... n - 1, in any order.
template <typename Body>
__global__ void __launch_bounds__(kBlockThreads)
    ForEachKernel(int64_t n, Body body) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) body(i);
}

template <typename Body>
int ForEach(int64_t n, void* stream, const Body& body) {
  return Launch(ForEachKernel<Body>, TurningBlocks(n), kBlockThreads, stream, n,
                body);
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_LAUNCH_H_
