#include "tests/cuda/emulator/emulator.h"

#include <cuda_runtime.h>

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <vector>

#include "gtest/gtest.h"

namespace {

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t dynamic_shared, Arguments... arguments) {
  const cudaLaunchConfig_t config = {grid, block, dynamic_shared, nullptr};
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
}

__global__ void CountThreads(int* counts) {
  const int block =
      (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread =
      (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(&counts[block * 24 + thread], 1);
}

TEST(EmulatorTest, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> counts(6 * 24, 0);
  Launch(CountThreads, dim3(1, 2, 3), dim3(2, 3, 4), 0, counts.data());
  EXPECT_EQ(counts, std::vector<int>(6 * 24, 1));
}

// Each thread gives its value to the next one, `turns` times.
__global__ void Rotate(int turns, int* values) {
  int* const shared = reinterpret_cast<int*>(emulator::DynamicShared());
  const int next = (threadIdx.x + 1) % blockDim.x;
  shared[threadIdx.x] = values[threadIdx.x];
  for (int turn = 0; turn < turns; ++turn) {
    __syncthreads();
    const int value = shared[threadIdx.x];
    __syncthreads();
    shared[next] = value;
  }
  __syncthreads();
  values[threadIdx.x] = shared[threadIdx.x];
}

TEST(EmulatorTest, ThreadsMeetAtBarriers) {
  std::vector<int> values(100), expected(100);
  for (int i = 0; i < 100; ++i) {
    values[i] = i;
    expected[(i + 7) % 100] = i;
  }
  Launch(Rotate, 1, 100, 100 * sizeof(int), 7, values.data());
  EXPECT_EQ(values, expected);
}

__global__ void UseWarps(int* sums, unsigned* ballots) {
  int sum = threadIdx.x;
  for (int delta = 16; delta > 0; delta /= 2) {
    sum += __shfl_xor_sync(~0u, sum, delta);
  }
  sums[threadIdx.x] = sum;
  // Lanes of the two halves go separate ways.
  const unsigned half = threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u;
  if (half == 0xffffu) {
    ballots[threadIdx.x] = __ballot_sync(half, threadIdx.x % 2);
  } else {
    const int first = __shfl_sync(half, static_cast<int>(threadIdx.x), 16);
    ballots[threadIdx.x] = __ballot_sync(half, (threadIdx.x - first) % 4 == 0);
  }
}

TEST(EmulatorTest, LanesOfAWarpExchangeValues) {
  std::vector<int> sums(64);
  std::vector<unsigned> ballots(64);
  Launch(UseWarps, 1, 64, 0, sums.data(), ballots.data());
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[i], i < 32 ? 496 : 496 + 1024) << i;
    EXPECT_EQ(ballots[i], i % 32 < 16 ? 0xaaaau : 0x11110000u) << i;
  }
}

__global__ void ShiftLanes(int* up, int* down) {
  const int i = threadIdx.x;
  up[i] = __shfl_up_sync(~0u, i, 3);
  down[i] = __shfl_down_sync(~0u, i, 3);
}

TEST(EmulatorTest, ShiftsKeepTheOwnValueAtTheEnd) {
  std::vector<int> up(32), down(32);
  Launch(ShiftLanes, 1, 32, 0, up.data(), down.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(up[i], i < 3 ? i : i - 3);
    EXPECT_EQ(down[i], i > 28 ? i : i + 3);
  }
}

// Affine maps x -> a x + b: their composition is not commutative.
struct Map {
  unsigned a, b;
};

struct Compose {
  __device__ Map operator()(Map first, Map second) const {
    return {second.a * first.a, second.a * first.b + second.b};
  }
};

__global__ void ScanMaps(Map* prefixes, Map* totals) {
  using Scan = cub::BlockScan<Map, 96>;
  using Reduce = cub::BlockReduce<Map, 96>;
  __shared__ Scan::TempStorage scan;
  __shared__ Reduce::TempStorage reduce;
  const Map map = {threadIdx.x + 2, threadIdx.x};
  Scan(scan).ExclusiveScan(map, prefixes[threadIdx.x], Map{1, 0}, Compose(),
                           totals[0]);
  const Map total = Reduce(reduce).Reduce(map, Compose());
  if (threadIdx.x == 0) totals[1] = total;
}

TEST(EmulatorTest, ScansAndReductionsKeepTheOrder) {
  std::vector<Map> prefixes(96), totals(2);
  Launch(ScanMaps, 1, 96, 0, prefixes.data(), totals.data());
  Map expected = {1, 0};
  for (unsigned i = 0; i < 96; ++i) {
    EXPECT_EQ(prefixes[i].a, expected.a);
    EXPECT_EQ(prefixes[i].b, expected.b);
    expected = Compose()(expected, {i + 2, i});
  }
  for (const Map& total : totals) {
    EXPECT_EQ(total.a, expected.a);
    EXPECT_EQ(total.b, expected.b);
  }
}

__global__ void EndEarly(int* value) {
  if (threadIdx.x >= 10) return;
  __syncthreads();
  atomicAdd(value, 1);
}

TEST(EmulatorTest, BarriersDoNotWaitForThreadsThatHaveEnded) {
  int value = 0;
  Launch(EndEarly, 1, 32, 0, &value);
  EXPECT_EQ(value, 10);
}

__global__ void MeetAtDifferentBarriers() {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

TEST(EmulatorDeathTest, ThreadsThatWaitForEverAreFound) {
  EXPECT_DEATH(Launch(MeetAtDifferentBarriers, 1, 32, 0), "wait for others");
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void WriteBehind(int* values) { values[threadIdx.x + 1] = 0; }

TEST(EmulatorDeathTest, AddressSanitizerFindsWhatIsWrittenOutside) {
  std::vector<int> values(32);
  EXPECT_DEATH(Launch(WriteBehind, 1, 32, 0, values.data()), "heap-buffer");
}
#endif

}  // namespace
