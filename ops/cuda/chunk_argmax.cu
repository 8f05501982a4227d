#include "ops/cuda/chunk_argmax.h"
#include "ops/cuda/launch.h"

namespace tf_gc::cuda {
namespace {

// Values of a chunk that one group of lanes looks at. Longer chunks are cut
// into segments, and their results joined by atomic operations.
constexpr int64_t kSegment = 4096;

constexpr int kLoads = 4;  // Values of a lane that are under way at once.

// A value by its magnitude and then by its index: of two, the better one has
// the larger magnitude or, at equal ones, the lower index.
struct Candidate {
  uint32_t magnitude;
  uint32_t index;

  // Numbers that are ordered as the candidates are; none is 0.
  __device__ unsigned long long Pack() const {
    return uint64_t{magnitude} << 32 | ~index;
  }
  static __device__ int32_t IndexOf(unsigned long long packed) {
    return static_cast<int32_t>(~static_cast<uint32_t>(packed));
  }
};

struct Chunks {
  const float* values;
  int64_t n;
  int64_t chunk;
  int64_t segment;  // At most `chunk` values.
  int64_t segments_of_chunk;
  int64_t segments;
};

// The best of values[begin ... end - 1], of which there is one at least, by
// kLanes lanes.
template <int kLanes>
__device__ inline Candidate FindBest(const float* values, int64_t begin,
                                     int64_t end, int lane) {
  // A lane without values is behind all others.
  Candidate best = {0, static_cast<uint32_t>(begin + lane)};
  const auto join = [&best](int64_t i, float value) {
    const uint32_t magnitude = __float_as_uint(value) & 0x7fffffff;
    if (magnitude > best.magnitude) {
      best = {magnitude, static_cast<uint32_t>(i)};
    }
  };
  for (int64_t i = begin + lane; i < end; i += kLoads * kLanes) {
    float loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      loaded[k] = i + k * kLanes < end ? values[i + k * kLanes] : 0;
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) join(i + k * kLanes, loaded[k]);
  }
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    const uint32_t magnitude = __shfl_xor_sync(~0u, best.magnitude, lanes);
    const uint32_t index = __shfl_xor_sync(~0u, best.index, lanes);
    if (magnitude > best.magnitude ||
        (magnitude == best.magnitude && index < best.index)) {
      best = {magnitude, index};
    }
  }
  return best;
}

// kLanes lanes for each segment. If chunks have one segment only, it writes
// their indices, else it raises *packed of each chunk.
template <int kLanes>
__global__ void __launch_bounds__(kBlockThreads)
    ArgmaxKernel(Chunks chunks, int32_t* indices, unsigned long long* packed) {
  const int64_t segment = GridThread() / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool exists = segment < chunks.segments;
  // (A division of 64-bit numbers takes longer than all the rest.)
  const int64_t chunk =
      exists ? static_cast<uint32_t>(segment) /
                   static_cast<uint32_t>(chunks.segments_of_chunk)
             : 0;
  const int64_t begin =
      exists ? chunk * chunks.chunk +
                   (segment - chunk * chunks.segments_of_chunk) * chunks.segment
             : 0;
  const int64_t chunk_end = (chunk + 1) * chunks.chunk < chunks.n
                                ? (chunk + 1) * chunks.chunk
                                : chunks.n;
  const int size =
      exists ? TileSize(begin, static_cast<int>(chunks.segment), chunk_end) : 0;
  // All lanes of a warp meet in it.
  const Candidate best =
      FindBest<kLanes>(chunks.values, begin, begin + size, lane);
  if (lane != 0 || size == 0) return;
  if (packed == nullptr) {
    indices[chunk] = static_cast<int32_t>(best.index);
  } else {
    atomicMax(packed + chunk, best.Pack());
  }
}

struct Unpack {
  const unsigned long long* packed;
  int32_t* indices;

  __device__ void operator()(int64_t i) const {
    indices[i] = Candidate::IndexOf(packed[i]);
  }
};

Chunks MakeChunks(const float* values, int64_t n, int64_t chunk) {
  chunk = chunk < n ? chunk : n;
  Chunks chunks = {values, n, chunk, chunk < kSegment ? chunk : kSegment, 0, 0};
  if (n == 0) return chunks;
  chunks.segments_of_chunk = CeilDiv(chunk, chunks.segment);
  chunks.segments = CeilDiv(n, chunk) * chunks.segments_of_chunk;
  return chunks;
}

template <int kLanes>
int QueueArgmax(const Chunks& chunks, int32_t* indices,
                unsigned long long* packed, void* stream) {
  return Launch(ArgmaxKernel<kLanes>,
                CeilDiv(chunks.segments, kBlockThreads / kLanes), kBlockThreads,
                stream, chunks, indices, packed);
}

}  // namespace
}  // namespace tf_gc::cuda

using namespace tf_gc::cuda;

int64_t tf_gc_cuda_chunk_argmax_workspace_size(int64_t n, int64_t chunk) {
  const Chunks chunks = MakeChunks(nullptr, n, chunk);
  if (chunks.segments_of_chunk <= 1) return 0;
  return CeilDiv(n, chunks.chunk) *
         static_cast<int64_t>(sizeof(unsigned long long));
}

int tf_gc_cuda_chunk_argmax(const float* values, int64_t n, int64_t chunk,
                            int32_t* indices, void* workspace, void* stream) {
  const Chunks chunks = MakeChunks(values, n, chunk);
  if (chunks.segments_of_chunk > 1) {
    const int64_t count = CeilDiv(n, chunks.chunk);
    auto* const packed = static_cast<unsigned long long*>(workspace);
    TF_GC_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(packed, 0, static_cast<size_t>(count) * sizeof(*packed),
                        static_cast<cudaStream_t>(stream)));
    TF_GC_CUDA_RETURN_IF_ERROR(
        QueueArgmax<32>(chunks, indices, packed, stream));
    return ForEach(count, stream, Unpack{packed, indices});
  }
  // Each lane has kLoads values at least, if the chunks are long enough.
  const auto queue = chunks.chunk < 8     ? QueueArgmax<1>
                     : chunks.chunk < 32  ? QueueArgmax<4>
                     : chunks.chunk < 128 ? QueueArgmax<8>
                                          : QueueArgmax<32>;
  return queue(chunks, indices, nullptr, stream);
}
