#include <cstdint>

#include "ops/kernels/compress-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

inline Ints LoadKeys(const float* values) {
  return Load<Ints>(values) & kMagnitudeBits;
}

inline Ints Larger(Ints a, Ints b) { return a > b ? a : b; }

inline Ints PermuteInts(Ints lanes, UnsignedInts from) {
  return reinterpret_cast<Ints>(
      Permute(reinterpret_cast<UnsignedInts>(lanes), from));
}

// The place of the largest key among 1 or more values.
int64_t Argmax(const float* values, int64_t n) {
  int64_t best = 0;
  int32_t largest = -1;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t key = Load<int32_t>(values + i) & kMagnitudeBits;
    if (key > largest) {
      largest = key;
      best = i;
    }
  }
  return best;
}

// ---- Chunks of a vector or less ---------------------------------------------

// Finds the maxima of all chunks that are whole in a vector at once.
class WholeChunks {
 public:
  explicit WholeChunks(int chunk) : chunk_(chunk), chunks_(kLanes / chunk) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int begin = lane / chunk * chunk;
      const bool is_whole = lane < chunks_ * chunk;
      const int last = begin + chunk - 1;
      begin_[lane] = is_whole ? begin : lane;
      for (int turn = 0; turn < kTurns; ++turn) {
        const int next = lane + (1 << turn);
        next_[turn][lane] = !is_whole ? lane : next < last ? next : last;
      }
      if (is_whole && lane == begin) begins_ |= 1u << lane;
    }
    all_ = (1u << (chunks_ * chunk)) - 1;
    while (1 << turns_ < chunk) ++turns_;
  }

  // The values that a vector has of whole chunks.
  int values() const { return chunk_ * chunks_; }
  int chunks() const { return chunks_; }

  // Writes a vector of indices, of which chunks() are results.
  template <int kUsedTurns>
  inline void Write(const float* values, UnsignedInts position,
                    int32_t* indices) const {
    const Ints keys = LoadKeys(values);
    // Each lane gets the maximum of 2, 4, 8, ... lanes from it on, as far as
    // its chunk goes; the first one, so, that of its chunk.
    Ints largest = keys;
    for (int turn = 0; turn < kUsedTurns; ++turn) {
      largest = Larger(largest, PermuteInts(largest, next_[turn]));
    }
    const uint32_t equal =
        EqualLanes(keys, PermuteInts(largest, begin_)) & all_;
    // Every chunk has a 1, so that subtracting one from each borrows nothing
    // from the next, and clears the lowest of them.
    const uint32_t first = equal & ~(equal - begins_);
    Store(Compress(position, first), indices);
  }

  int turns() const { return turns_; }

 private:
  static constexpr int kTurns = 4;

  int chunk_;
  int chunks_;
  UnsignedInts begin_;         // The first lane of a lane's chunk,
  UnsignedInts next_[kTurns];  // and 1, 2, 4, 8 lanes on in it.
  uint32_t begins_ = 0;
  uint32_t all_;
  int turns_ = 0;
};

// Those of as many chunks from the first on as full vectors can be read and
// written for; returns how many.
template <int kTurns>
int64_t ArgmaxOfSmallChunks(const float* values, int64_t n, int64_t first,
                            const WholeChunks& whole, int64_t num_chunks,
                            int32_t* indices) {
  UnsignedInts position = CountFrom(static_cast<uint32_t>(first));
  int64_t c = 0;
  for (int64_t i = 0; i + kLanes <= n && c + kLanes <= num_chunks;
       i += whole.values(), c += whole.chunks()) {
    whole.Write<kTurns>(values + i, position, indices + c);
    position += static_cast<uint32_t>(whole.values());
  }
  return c;
}

// ---- Chunks of a vector or more ---------------------------------------------

// In every lane choose(a, b) over all lanes.
template <typename Choose>
inline Ints Reduce(Ints lanes, Choose choose) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    lanes = choose(lanes, PermuteInts(lanes, CountFrom(0) ^ distance));
  }
  return lanes;
}

// The place of the largest key of n values, kLanes <= n < 2^31.
inline int32_t ArgmaxOfLargeChunk(const float* values, int64_t n) {
  Ints largest = LoadKeys(values);
  Ints position = reinterpret_cast<Ints>(CountFrom(0));
  Ints best = position;
  const auto add = [&](const float* from) {
    const Ints keys = LoadKeys(from);
    best = keys > largest ? position : best;
    largest = Larger(keys, largest);
  };
  int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
    position += kLanes;
    add(values + i);
  }
  if (i < n) {
    // Values that are seen twice change nothing.
    i = n - kLanes;
    position = reinterpret_cast<Ints>(CountFrom(static_cast<uint32_t>(i)));
    add(values + i);
  }
  const Ints is_largest = largest == Reduce(largest, Larger);
  best = is_largest ? best : Ints{} + 0x7fffffff;
  return Reduce(best, [](Ints a, Ints b) { return a < b ? a : b; })[0];
}

void ChunkArgmax(const float* values, int64_t n, int64_t chunk, int64_t first,
                 int32_t* indices) {
  const int64_t num_chunks = n / chunk + (n % chunk != 0);
  int64_t c = 0;
  if (chunk <= kLanes) {
    const WholeChunks whole(static_cast<int>(chunk));
    const auto run = [&](auto* function) {
      return function(values, n, first, whole, num_chunks, indices);
    };
    switch (whole.turns()) {
      case 0:
        c = run(ArgmaxOfSmallChunks<0>);
        break;
      case 1:
        c = run(ArgmaxOfSmallChunks<1>);
        break;
      case 2:
        c = run(ArgmaxOfSmallChunks<2>);
        break;
      case 3:
        c = run(ArgmaxOfSmallChunks<3>);
        break;
      default:
        c = run(ArgmaxOfSmallChunks<4>);
    }
  }
  for (; c < num_chunks; ++c) {
    const int64_t begin = c * chunk;
    const int64_t size = Min(chunk, n - begin);
    const int64_t place = size < kLanes
                              ? Argmax(values + begin, size)
                              : ArgmaxOfLargeChunk(values + begin, size);
    indices[c] = static_cast<int32_t>(first + begin + place);
  }
}

}  // namespace

const ChunkArgmaxTable kChunkArgmaxTable = {ChunkArgmax};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
