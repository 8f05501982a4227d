// Runs CUDA kernels on the CPU, to test them where there is no GPU.
//
// The emulator is a cuda_runtime.h and a CUB that g++ finds in place of the
// real ones when it compiles .cu files as C++. A launch runs the kernel at
// once. The blocks run one after the other, the last one first; the threads of
// a block are fibers that take turns at barriers: __syncthreads and everything
// that joins a warp. Device memory is host memory, so that AddressSanitizer
// finds what a kernel reads or writes outside its arrays. Threads that wait for
// each other at different barriers are found too: the process aborts.
//
// It has only what the kernels of this project use, and does not show:
// - races: a missing __syncthreads or __syncwarp may go unnoticed, as threads
//   switch at barriers only and atomic operations are plain ones;
// - the memory model, and the order in which blocks and streams run at once;
// - shared memory that is read before it is written: it keeps what the last
//   block left there;
// - limits of registers, shared memory and launches, and speed.

#ifndef TF_GC_TESTS_CUDA_EMULATOR_EMULATOR_H_
#define TF_GC_TESTS_CUDA_EMULATOR_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 : uint3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
      : uint3{x, y, z} {}
};

// Of the thread that runs.
inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace emulator {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;

// Where threads meet and give each other values. There are two sets of values:
// a thread may give its next one while others still read the last ones.
template <int kThreads>
struct Meeting {
  int arrived = 0;
  int64_t round = 0;
  alignas(16) unsigned char values[2][kThreads][64];
};

// Runs `thread` for all threads of all blocks.
void Run(dim3 grid, dim3 block, size_t dynamic_shared,
         const std::function<void()>& thread);

unsigned char* DynamicShared();

// The calling thread's rank in its block, and the block's threads.
int Rank();
int Threads();
inline int Lane() { return Rank() % kWarpSize; }

// All threads of the block meet here, but for those that have ended.
Meeting<kMaxThreads>* BlockMeeting();
void WaitForBlock();

// The lanes of `mask` of the calling thread's warp meet here.
Meeting<kWarpSize>* WarpMeeting(unsigned mask);
void WaitForWarp(unsigned mask);

// Gives a value to the other lanes of `mask`, all of which must do so too, and
// then reads theirs.
template <typename T>
class WarpExchange {
 public:
  WarpExchange(unsigned mask, const T& value) {
    static_assert(sizeof(T) <= 64);
    Meeting<kWarpSize>* const meeting = WarpMeeting(mask);
    values_ = meeting->values[meeting->round % 2];
    std::memcpy(values_[Lane()], &value, sizeof(T));
    WaitForWarp(mask);
  }

  T operator[](int lane) const {
    T value;
    std::memcpy(&value, values_[lane], sizeof(T));
    return value;
  }

 private:
  unsigned char (*values_)[64];
};

// The same for all threads of the block.
template <typename T>
class BlockExchange {
 public:
  explicit BlockExchange(const T& value) {
    static_assert(sizeof(T) <= 64);
    Meeting<kMaxThreads>* const meeting = BlockMeeting();
    values_ = meeting->values[meeting->round % 2];
    std::memcpy(values_[Rank()], &value, sizeof(T));
    WaitForBlock();
  }

  T operator[](int rank) const {
    T value;
    std::memcpy(&value, values_[rank], sizeof(T));
    return value;
  }

 private:
  unsigned char (*values_)[64];
};

}  // namespace emulator

#endif  // TF_GC_TESTS_CUDA_EMULATOR_EMULATOR_H_
