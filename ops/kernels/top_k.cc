#include "ops/kernels/top_k.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox.h"

namespace tf_gc::kernels {
namespace {

constexpr int32_t kLargestKey = 0x7fffffff;
constexpr int32_t kBelowAllKeys = -1;

// The key of a value: the bits of its magnitude.
int32_t Key(const float* value) {
  int32_t bits;
  std::memcpy(&bits, value, sizeof(bits));
  return bits & kLargestKey;
}

// Room that is not cleared.
template <typename T>
std::unique_ptr<T[]> Allocate(int64_t size) {
  return std::unique_ptr<T[]>(new T[size]);
}

// ---- The k-th largest key ---------------------------------------------------

// What divides the k largest keys from the rest: all keys above the threshold
// are among them, and so are the first `ties` of those that equal it.
struct Cut {
  int32_t threshold;
  int64_t ties;
};

constexpr int kBucketBits = 11;
constexpr int kBuckets = 1 << kBucketBits;

// counts[b] += the number of keys in [lowest + b 2^shift, lowest + (b + 1)
// 2^shift), for b < buckets.
void CountBuckets(const float* values, int64_t n, int32_t lowest, int shift,
                  uint32_t buckets, uint32_t* counts) {
  // Keys below `lowest` get a number that is too large.
  const auto bucket = [&](int64_t i) {
    return (static_cast<uint32_t>(Key(values + i)) -
            static_cast<uint32_t>(lowest)) >>
           shift;
  };
  // Runs of equal keys would wait for each other's counts.
  uint32_t odd_counts[kBuckets] = {};
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    const uint32_t even = bucket(i), odd = bucket(i + 1);
    if (even < buckets) ++counts[even];
    if (odd < buckets) ++odd_counts[odd];
  }
  if (i < n && bucket(i) < buckets) ++counts[bucket(i)];
  for (uint32_t b = 0; b < buckets; ++b) counts[b] += odd_counts[b];
}

// The cut before which k of n keys are, the k-th of which is in lowest ...
// highest. 1 <= k <= n. Each turn finds the next kBucketBits bits of the
// difference between the k-th key and `lowest`, and takes the keys in higher
// buckets off k.
Cut FindCut(const float* values, int64_t n, int64_t k, int32_t lowest,
            int32_t highest, const ParallelFor& parallel_for) {
  constexpr int64_t kCost = 3;
  int shift = highest == lowest ? 0 : 32 - __builtin_clz(highest - lowest);
  while (shift > 0) {
    const int bits = std::min(shift, kBucketBits);
    shift -= bits;
    const uint32_t buckets = uint32_t{1} << bits;
    uint32_t counts[kBuckets] = {};
    std::mutex mutex;
    parallel_for(n, kCost, [&](int64_t begin, int64_t end) {
      uint32_t part[kBuckets] = {};
      CountBuckets(values + begin, end - begin, lowest, shift, buckets, part);
      const std::lock_guard<std::mutex> lock(mutex);
      for (uint32_t b = 0; b < buckets; ++b) counts[b] += part[b];
    });
    uint32_t b = buckets - 1;
    for (; counts[b] < k; --b) k -= counts[b];
    lowest += static_cast<int32_t>(b << shift);
  }
  return {lowest, k};
}

// ---- A lower bound from a sample --------------------------------------------

// A key that, most likely, k values are at or above, and not many more; and how
// many values are expected above it.
struct Bound {
  int32_t threshold;
  int64_t expected;
};

// For n >= kSmallestSampled and k <= n / kSampledPart.
constexpr int64_t kSmallestSampled = int64_t{1} << 14;
constexpr int64_t kSampledPart = 5;

Bound EstimateBound(const float* values, int64_t n, int64_t k) {
  constexpr int kLogSmallest = 10, kLogLargest = 14;
  constexpr int kPhiloxWords = 4;
  const int log_size =
      std::clamp(63 - __builtin_clzll(static_cast<uint64_t>(n)) - 8,
                 kLogSmallest, kLogLargest);
  const int64_t size = int64_t{1} << log_size;
  // Four standard deviations of the sampled number of the k largest values, so
  // that fewer than k above the bound are rare, and as many again for small k.
  const double mean = static_cast<double>(k) * size / n;
  const auto rank = static_cast<int64_t>(mean + 4 * std::sqrt(mean) + 4);
  // One value of each of `size` equal parts, at a place that looks random: no
  // period of the values is that of the sample.
  uint32_t words[1 << kLogLargest];
  float sample[1 << kLogLargest];
  PhiloxFill(Seed{0, 0}, 0, size / kPhiloxWords, words);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t place = (words[i] * n) >> 32;
    sample[i] = values[(i * n + place) >> log_size];
  }
  return {FindCut(sample, size, rank, 0, kLargestKey, SingleThread).threshold,
          n / size * rank};
}

// ---- Candidates -------------------------------------------------------------

// Values are looked through in tiles, so that the order of the candidates does
// not depend on the threads.
constexpr int64_t kTile = 4096;

// Room for what is collected from a tile.
struct TileBuffer {
  static constexpr int64_t kSlack = 16;
  int32_t keys[kTile + kSlack];
  int32_t indices[kTile + kSlack];
};

struct Tile {
  int64_t candidates;  // The number of the first candidate.
  int64_t written;     // Where the indices go.
  int32_t above;       // The number of keys above the threshold,
  int32_t ties;        // and of those that equal it.
};

// The values above a threshold: how many there are in each tile, and, if they
// are not more than expected, which.
class Candidates {
 public:
  Candidates(const float* values, int64_t n, int32_t threshold,
             int64_t capacity, const ParallelFor& parallel_for)
      : values_(values),
        n_(n),
        threshold_(threshold),
        capacity_(capacity),
        num_tiles_(n / kTile + (n % kTile != 0)),
        keys_(Allocate<float>(capacity)),
        indices_(Allocate<int32_t>(capacity)),
        tiles_(Allocate<Tile>(num_tiles_)) {
    ForTiles(parallel_for, [&](int64_t t) { CollectTile(t); });
    for (int64_t t = 0; t < num_tiles_; ++t) ties_ += tiles_[t].ties;
  }

  int64_t above() const { return above_; }
  int64_t ties() const { return ties_; }
  bool fit() const { return above_ <= capacity_; }

  // The indices of the k <= above() largest. Needs fit().
  void WriteLargest(int64_t k, int32_t* indices) const {
    int32_t highest = 0;
    for (int64_t i = 0; i < above_; ++i) {
      highest = std::max(highest, Key(keys_.get() + i));
    }
    const Cut cut =
        FindCut(keys_.get(), above_, k, threshold_ + 1, highest, SingleThread);
    int64_t ties = cut.ties;
    int64_t written = 0;
    for (int64_t t = 0; t < num_tiles_; ++t) {
      const Tile& tile = tiles_[t];
      for (int64_t i = tile.candidates; i < tile.candidates + tile.above; ++i) {
        if (written == k) return;
        const int32_t key = Key(keys_.get() + i);
        const bool is_tie = key == cut.threshold && ties > 0;
        indices[written] = indices_[i];
        written += key > cut.threshold || is_tie;
        ties -= is_tie;
      }
    }
  }

  // The indices of all values above the threshold and of the first `ties` of
  // those that equal it, of which there are as many.
  void WriteAll(int64_t ties, int32_t* indices,
                const ParallelFor& parallel_for) {
    int64_t written = 0;
    for (int64_t t = 0; t < num_tiles_; ++t) {
      Tile& tile = tiles_[t];
      tile.ties = static_cast<int32_t>(std::min<int64_t>(tile.ties, ties));
      ties -= tile.ties;
      tile.written = written;
      written += tile.above + tile.ties;
    }
    ForTiles(parallel_for,
             [&](int64_t t) { WriteTile(t, indices + tiles_[t].written); });
  }

 private:
  template <typename Work>
  void ForTiles(const ParallelFor& parallel_for, const Work& work) {
    parallel_for(num_tiles_, kTile, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) work(t);
    });
  }

  int64_t TileSize(int64_t t) const { return std::min(kTile, n_ - t * kTile); }

  void CollectTile(int64_t t) {
    TileBuffer buffer;
    int64_t ties;
    const int64_t above =
        TF_GC_ACTIVE_TABLE(kTopKTable)
            .collect(values_ + t * kTile, TileSize(t), t * kTile, threshold_,
                     buffer.keys, buffer.indices, &ties);
    const int64_t begin = above_.fetch_add(above, std::memory_order_relaxed);
    tiles_[t] = {begin, 0, static_cast<int32_t>(above),
                 static_cast<int32_t>(ties)};
    if (begin + above > capacity_) return;
    std::memcpy(keys_.get() + begin, buffer.keys, above * sizeof(float));
    std::memcpy(indices_.get() + begin, buffer.indices,
                above * sizeof(int32_t));
  }

  void WriteTile(int64_t t, int32_t* indices) const {
    const Tile& tile = tiles_[t];
    if (tile.ties == 0 && fit()) {
      std::memcpy(indices, indices_.get() + tile.candidates,
                  tile.above * sizeof(int32_t));
      return;
    }
    const float* const values = values_ + t * kTile;
    const int64_t size = TileSize(t);
    // Up to the last tie that is wanted, ties are written.
    int64_t split = 0;
    for (int64_t left = tile.ties; left > 0; ++split) {
      left -= Key(values + split) == threshold_;
    }
    const int64_t before =
        WriteAbove(values, split, t * kTile, threshold_ - 1, indices);
    WriteAbove(values + split, size - split, t * kTile + split, threshold_,
               indices + before);
  }

  static int64_t WriteAbove(const float* values, int64_t n, int64_t first,
                            int32_t threshold, int32_t* indices) {
    TileBuffer buffer;
    int64_t ties;
    const int64_t above = TF_GC_ACTIVE_TABLE(kTopKTable)
                              .collect(values, n, first, threshold, buffer.keys,
                                       buffer.indices, &ties);
    std::memcpy(indices, buffer.indices, above * sizeof(int32_t));
    return above;
  }

  const float* values_;
  int64_t n_;
  int32_t threshold_;
  int64_t capacity_;
  int64_t num_tiles_;
  std::unique_ptr<float[]> keys_;  // Magnitudes: their bits are the keys.
  std::unique_ptr<int32_t[]> indices_;
  std::unique_ptr<Tile[]> tiles_;
  std::atomic<int64_t> above_{0};
  int64_t ties_ = 0;
};

// True, with the indices written, if the bound was one.
bool SelectAbove(const Bound& bound, const float* values, int64_t n, int64_t k,
                 int32_t* indices, const ParallelFor& parallel_for) {
  const int64_t capacity = std::min(n, 2 * bound.expected + kTile);
  Candidates candidates(values, n, bound.threshold, capacity, parallel_for);
  if (candidates.above() < k) {
    if (candidates.above() + candidates.ties() < k) return false;
    candidates.WriteAll(k - candidates.above(), indices, parallel_for);
    return true;
  }
  if (!candidates.fit()) return false;
  candidates.WriteLargest(k, indices);
  return true;
}

}  // namespace

void TopKIndices(const float* values, int64_t n, int64_t k, int32_t* indices,
                 const ParallelFor& parallel_for) {
  if (k == 0) return;
  if (k == n) {
    std::iota(indices, indices + n, 0);
    return;
  }
  const bool is_small = n < kSmallestSampled;
  if (is_small || k <= n / kSampledPart) {
    const Bound bound =
        is_small ? Bound{kBelowAllKeys, n} : EstimateBound(values, n, k);
    if (SelectAbove(bound, values, n, k, indices, parallel_for)) return;
  }
  const Cut cut = FindCut(values, n, k, 0, kLargestKey, parallel_for);
  Candidates candidates(values, n, cut.threshold, /*capacity=*/0, parallel_for);
  candidates.WriteAll(cut.ties, indices, parallel_for);
}

}  // namespace tf_gc::kernels
