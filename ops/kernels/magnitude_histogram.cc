#include "ops/kernels/magnitude_histogram.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

namespace tf_gc::kernels {
namespace {

constexpr int kMantissaBits = 23;
constexpr int kKeyShift = kMantissaBits - kMagnitudeMantissaBits;
// Of all magnitudes, those of infinity and NaN too.
constexpr int kKeys = 256 << kMagnitudeMantissaBits;

// An entry of a table holds a count in its upper bits, and below the sum of
// squares of mantissas, 48 bits less these.
constexpr int kSquareShift = 17;
constexpr int kSumBits = 47;
constexpr uint64_t kOne = uint64_t{1} << kSumBits;
// Values that an entry has room for.
constexpr int64_t kEntryValues = 1 << 16;
// Neighbours are often alike: an entry is not added to again before it is
// written.
constexpr int kTables = 2;
constexpr int64_t kBlock = kTables * kEntryValues;
// The processor has so many additions to tables in flight that it looks ahead
// in the values by too little: from memory, they take three times as long
// without.
constexpr int64_t kPrefetchedValues = 512;

struct Histogram {
  std::vector<uint64_t> counts = std::vector<uint64_t>(kKeys);
  std::vector<uint64_t> squares = std::vector<uint64_t>(kKeys);
};

inline void Add(const float* value, uint64_t* table) {
  uint32_t bits;
  std::memcpy(&bits, value, sizeof(bits));
  bits &= 0x7fffffff;
  const uint64_t mantissa =
      (bits & ((1u << kMantissaBits) - 1)) | (1u << kMantissaBits);
  table[bits >> kKeyShift] += kOne + (mantissa * mantissa >> kSquareShift);
}

// At most kBlock values.
void AddBlock(const float* values, int64_t n, uint64_t* first,
              uint64_t* second) {
  int64_t i = 0;
  for (; i + kTables <= n; i += kTables) {
    __builtin_prefetch(values + i + kPrefetchedValues);
    Add(values + i, first);
    Add(values + i + 1, second);
  }
  if (i < n) Add(values + i, first);
}

// Moves the entries of a table to the histogram.
void Flush(uint64_t* table, Histogram* histogram) {
  for (int key = 0; key < kKeys; ++key) {
    histogram->counts[key] += table[key] >> kSumBits;
    histogram->squares[key] += table[key] & (kOne - 1);
    table[key] = 0;
  }
}

}  // namespace

void MagnitudeHistogram(const float* values, int64_t n, int64_t* counts,
                        double* squares, const ParallelFor& parallel_for) {
  Histogram total;
  std::mutex mutex;
  ParallelForUnits(
      parallel_for, n, kBlock, /*cost=*/3, [&](int64_t begin, int64_t end) {
        Histogram part;
        std::vector<uint64_t> tables(kTables * kKeys);
        uint64_t* const first = tables.data();
        uint64_t* const second = first + kKeys;
        for (int64_t i = begin; i < end; i += kBlock) {
          AddBlock(values + i, std::min(kBlock, end - i), first, second);
          Flush(first, &part);
          Flush(second, &part);
        }
        const std::lock_guard<std::mutex> lock(mutex);
        for (int key = 0; key < kKeys; ++key) {
          total.counts[key] += part.counts[key];
          total.squares[key] += part.squares[key];
        }
      });
  for (int key = 0; key < kMagnitudeBins; ++key) {
    const int exponent = key >> kMagnitudeMantissaBits;
    counts[key] = static_cast<int64_t>(total.counts[key]);
    // A mantissa m of exponent e is m 2^(e - 150).
    squares[key] = exponent == 0
                       ? 0
                       : std::ldexp(static_cast<double>(total.squares[key]),
                                    kSquareShift + 2 * (exponent - 150));
  }
}

}  // namespace tf_gc::kernels
