#include <cstdint>

#include "ops/kernels/compress-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

constexpr int kWordBits = 64;
constexpr int64_t kWordBytes = 8;

constexpr int64_t WholeBytes(int64_t bits) { return (bits + 7) / 8; }

// The first 8 of `size` >= 1 bytes, with zeros behind them if they are fewer.
inline uint64_t LoadWord(const uint8_t* bytes, int64_t size) {
  if (size >= kWordBytes) return Load<uint64_t>(bytes);
  uint64_t word = 0;
  __builtin_memcpy(&word, bytes, size);
  return word;
}

// ---- Packing ----------------------------------------------------------------

int64_t FindNotAscending(const int32_t* indices, int64_t k, int64_t n) {
  constexpr uint32_t kAll = (1u << kLanes) - 1;
  if (k == 0) return -1;
  if (indices[0] < 0 || indices[0] >= n) return 0;
  const Ints limit = Ints{} + static_cast<int32_t>(n);
  int64_t j = 1;
  for (; j + kLanes <= k; j += kLanes) {
    const Ints index = Load<Ints>(indices + j);
    if ((GreaterMask(index, Load<Ints>(indices + j - 1)) &
         GreaterMask(limit, index)) != kAll) {
      break;
    }
  }
  for (; j < k; ++j) {
    if (indices[j] <= indices[j - 1] || indices[j] >= n) return j;
  }
  return -1;
}

// Makes bit (indices[j] >> low_bits) + is_upper j of a string of `size` bytes 1
// for every j, and all others 0. The bits' places must ascend.
template <bool kIsUpper>
void SetBits(const int32_t* indices, int64_t k, int low_bits, int64_t size,
             uint8_t* bytes) {
  const auto place = [&](int64_t j) {
    return kIsUpper ? (indices[j] >> low_bits) + j : int64_t{indices[j]};
  };
  __builtin_memset(bytes, 0, size);
  // The word that the last bit is in is kept, without a branch, which would
  // often go wrong.
  const int64_t words = size / kWordBytes;
  uint64_t word = 0;
  int64_t last = -1;
  int64_t j = 0;
  for (; j < k; ++j) {
    const int64_t current = place(j) / kWordBits;
    if (current >= words) break;
    const uint64_t keep = -static_cast<uint64_t>(current == last);
    word = (word & keep) | uint64_t{1} << (place(j) % kWordBits);
    last = current;
    __builtin_memcpy(bytes + current * kWordBytes, &word, kWordBytes);
  }
  for (; j < k; ++j) {
    bytes[place(j) / 8] |= static_cast<uint8_t>(1 << (place(j) % 8));
  }
}

// Writes the low bits of every index, 1 ... 31 of each.
void PackLowBits(const int32_t* indices, int64_t k, int low_bits,
                 uint8_t* bytes) {
  const uint64_t mask = (uint64_t{1} << low_bits) - 1;
  uint64_t word = 0;
  int filled = 0;
  const auto append = [&](uint64_t bits, int count) {
    word |= bits << filled;
    filled += count;
    if (filled >= kWordBits) {
      __builtin_memcpy(bytes, &word, kWordBytes);
      bytes += kWordBytes;
      filled -= kWordBits;
      word = bits >> (count - filled);
    }
  };
  int64_t j = 0;
  for (; j + 2 <= k; j += 2) {
    append((indices[j] & mask) | (indices[j + 1] & mask) << low_bits,
           2 * low_bits);
  }
  if (j < k) append(indices[j] & mask, low_bits);
  __builtin_memcpy(bytes, &word, WholeBytes(filled));
}

void Pack(const int32_t* indices, int64_t k, int64_t n, int low_bits,
          uint8_t* packed) {
  if (low_bits < 0) {
    SetBits<false>(indices, k, 0, WholeBytes(n), packed);
    return;
  }
  const int64_t upper_bytes = WholeBytes(k + ((n - 1) >> low_bits));
  SetBits<true>(indices, k, low_bits, upper_bytes, packed);
  PackLowBits(indices, k, low_bits, packed + upper_bytes);
}

// ---- Unpacking --------------------------------------------------------------

// Writes the places of the bits of a word that are 1, and up to a vector more.
inline void WritePlaces(uint64_t word, int64_t first, int32_t* places) {
  UnsignedInts place = CountFrom(static_cast<uint32_t>(first));
  for (int bit = 0; bit < kWordBits; bit += kLanes) {
    const uint32_t mask = word >> bit & ((1u << kLanes) - 1);
    Store(Compress(place, mask), places);
    places += CountOnes(mask);
    place += kLanes;
  }
}

// Writes the places of the k bits that are 1 in a string of `bits` < 2^31 bits,
// or returns what is wrong with it.
const char* FindBits(const uint8_t* bytes, int64_t bits, int64_t k,
                     int32_t* places) {
  const int64_t size = WholeBytes(bits);
  int64_t found = 0;
  for (int64_t i = 0; i < size; i += kWordBytes) {
    uint64_t word = LoadWord(bytes + i, size - i);
    const int64_t ones = CountOnes(word);
    if (ones > k - found) return "has more bits that are 1 than indices";
    if (k - found >= kWordBits + kLanes) {
      WritePlaces(word, 8 * i, places + found);
      found += ones;
      continue;
    }
    for (; word != 0; word &= word - 1) {
      places[found++] = static_cast<int32_t>(8 * i + TrailingZeros(word));
    }
  }
  if (found < k) return "has fewer bits that are 1 than indices";
  return places[k - 1] < bits ? nullptr : "has padding that is not 0";
}

// Puts the low bits of k indices, 1 ... 31 of each, below the upper bits whose
// places `indices` holds.
const char* JoinLowBits(const uint8_t* bytes, int64_t k, int64_t n,
                        int low_bits, int32_t* indices) {
  const int64_t bits = k * low_bits;
  const int64_t size = WholeBytes(bits);
  const uint64_t mask = (uint64_t{1} << low_bits) - 1;
  int64_t last = -1;
  bool ascend = true;
  for (int64_t j = 0; j < k; ++j) {
    const int64_t byte = j * low_bits / 8;
    const uint64_t word = LoadWord(bytes + byte, size - byte);
    const uint64_t low = word >> (j * low_bits % 8) & mask;
    const int64_t index =
        (indices[j] - j) << low_bits | static_cast<int64_t>(low);
    ascend &= index > last;
    last = index;
    indices[j] = static_cast<int32_t>(index);
  }
  if (!ascend) return "has indices that do not ascend";
  if (last >= n) return "has an index that is too large";
  const bool is_padded = bits % 8 != 0 && bytes[size - 1] >> (bits % 8) != 0;
  return is_padded ? "has padding that is not 0" : nullptr;
}

const char* Unpack(const uint8_t* packed, int64_t k, int64_t n, int low_bits,
                   int32_t* indices) {
  if (low_bits < 0) return FindBits(packed, n, k, indices);
  const int64_t upper_bits = k + ((n - 1) >> low_bits);
  const char* const error = FindBits(packed, upper_bits, k, indices);
  if (error != nullptr) return error;
  return JoinLowBits(packed + WholeBytes(upper_bits), k, n, low_bits, indices);
}

}  // namespace

const IndexPackingTable kIndexPackingTable = {FindNotAscending, Pack, Unpack};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
