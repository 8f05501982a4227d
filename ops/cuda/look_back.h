// Sums over all tiles before a tile, in the one pass that looks at the tiles
// (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
// look-back", NVIDIA 2016).

#ifndef TF_GC_OPS_CUDA_LOOK_BACK_H_
#define TF_GC_OPS_CUDA_LOOK_BACK_H_

#include "ops/cuda/launch.h"

namespace tf_gc::cuda {

// What a kernel knows of its tiles, in device memory that is 0 at first. Blocks
// take the tiles in order (NextTile), so that whoever waits for a tile's sum
// waits for a block that runs.
struct TileSums {
  unsigned* next;             // The tile that is taken next.
  unsigned long long* tiles;  // A sum, and in the upper two bits of what.

  static TileSums Take(int64_t count, Workspace* workspace) {
    TileSums sums;
    sums.next = workspace->Take<unsigned>(1);
    sums.tiles = workspace->Take<unsigned long long>(count);
    return sums;
  }

  // The same for all threads of the block, all of which call it. What they read
  // of shared memory before, they may write behind it.
  __device__ int64_t NextTile() const {
    __shared__ unsigned taken;
    __syncthreads();
    if (threadIdx.x == 0) taken = atomicAdd(next, 1u);
    __syncthreads();
    return taken;
  }

  // The sum of all tiles before `tile`, of which `sum` < 2^62 is the sum. All
  // lanes of one warp of the tile's block call it.
  __device__ uint64_t Before(int64_t tile, uint64_t sum) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) Publish(tile, tile == 0 ? kUpToTile : kOfTile, sum);
    uint64_t before = 0;
    for (int64_t last = tile - 1; last >= 0; last -= 32) {
      const uint64_t entry = last >= lane ? WaitFor(last - lane) : kUpToTile;
      const unsigned complete = __ballot_sync(~0u, entry >= kUpToTile);
      // Lanes behind the first complete sum have nothing to add.
      const int end = complete == 0 ? 32 : __ffs(static_cast<int>(complete));
      uint64_t part = lane < end ? entry & (kOfTile - 1) : 0;
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        part += __shfl_xor_sync(~0u, part, lanes);
      }
      before += part;
      if (complete != 0) break;
    }
    if (lane == 0 && tile > 0) Publish(tile, kUpToTile, before + sum);
    return before;
  }

 private:
  static constexpr uint64_t kOfTile = uint64_t{1} << 62;
  static constexpr uint64_t kUpToTile = uint64_t{2} << 62;

  // Both parts are one access: no fence is needed.
  __device__ void Publish(int64_t tile, uint64_t kind, uint64_t sum) const {
    *const_cast<volatile unsigned long long*>(tiles + tile) = kind | sum;
  }
  __device__ uint64_t WaitFor(int64_t tile) const {
    uint64_t entry;
    do {
      entry = *const_cast<const volatile unsigned long long*>(tiles + tile);
    } while (entry == 0);
    return entry;
  }
};

// Blocks for `tiles` tiles, of which each takes many.
constexpr int64_t TileBlocks(int64_t tiles) {
  return tiles < kMaxTurningBlocks ? tiles : kMaxTurningBlocks;
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_LOOK_BACK_H_
