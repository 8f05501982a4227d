// Packed indices in kernels: what a thread loads, has in its registers as a
// little-endian string of bits, and stores.
//
// Arrays are unrolled everywhere, so that they are registers.

#ifndef TF_GC_OPS_CUDA_BIT_PACKING_INL_H_
#define TF_GC_OPS_CUDA_BIT_PACKING_INL_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cuda/launch.h"

namespace tf_gc::cuda {

// ---- On the host ------------------------------------------------------------

// Blocks for `units` of work, one for each thread of a turn, that take about
// kTurns turns each: enough to be worth what a block does first, and few enough
// that all processors end together.
inline constexpr int kTurns = 4;
constexpr int64_t BlocksOfTurns(int64_t units) {
  return CeilDiv(units, kTurns * kBlockThreads);
}

// Calls function(std::integral_constant<int, bits>) and returns its error.
template <typename Function>
int WithBits(int bits, const Function& function) {
  switch (bits) {
    case 2:
      return function(std::integral_constant<int, 2>());
    case 3:
      return function(std::integral_constant<int, 3>());
    case 4:
      return function(std::integral_constant<int, 4>());
    case 5:
      return function(std::integral_constant<int, 5>());
    case 8:
      return function(std::integral_constant<int, 8>());
  }
  return cudaErrorInvalidValue;
}

// ---- Bytes of a thread ------------------------------------------------------

// kBytes bytes, the last word's others are 0.
template <int kBytes>
struct Bytes {
  static constexpr int kWords = (kBytes + 3) / 4;
  // What one instruction loads or stores where the first of such bytes, which
  // lie one behind the other, are aligned to it.
  static constexpr int kAccess = kBytes % 16 == 0 ? 16 : kBytes & -kBytes;

  uint32_t words[kWords] = {};
};

__device__ inline bool IsAligned(const void* address, int alignment) {
  return AddressModulo16(address) % alignment == 0;
}

// Makes all bits from `bits` on 0.
template <int kBytes>
__device__ inline void Truncate(int bits, Bytes<kBytes>* string) {
#pragma unroll
  for (int word = 0; word < Bytes<kBytes>::kWords; ++word) {
    const int rest = bits - 32 * word;
    if (rest <= 0) {
      string->words[word] = 0;
    } else if (rest < 32) {
      string->words[word] &= (1u << rest) - 1;
    }
  }
}

// Makes all bytes from byte `begin` on 0xff.
template <int kBytes>
__device__ inline void SetFrom(int begin, Bytes<kBytes>* bytes) {
#pragma unroll
  for (int word = 0; word < Bytes<kBytes>::kWords; ++word) {
    const int rest = begin - 4 * word;
    if (rest < 4) bytes->words[word] |= ~0u << (rest > 0 ? 8 * rest : 0);
  }
}

// The word at an address that is aligned to it.
__device__ inline uint32_t LoadWord(const uint8_t* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

// Loads from[begin ... begin + kBytes - 1]; those from `end` on are 0.
// `aligned` says that the first of them is so to kAccess.
template <int kBytes>
__device__ inline Bytes<kBytes> LoadBytes(const uint8_t* from, int64_t begin,
                                          int64_t end, bool aligned) {
  constexpr int kAccess = Bytes<kBytes>::kAccess;
  Bytes<kBytes> bytes;
  from += begin;
  if (kAccess > 1 && aligned && begin + kBytes <= end) {
    from = static_cast<const uint8_t*>(__builtin_assume_aligned(from, kAccess));
    if constexpr (kAccess >= 4) {
      memcpy(bytes.words, from, kBytes);
    } else {
#pragma unroll
      for (int b = 0; b < kBytes; b += 2) {
        uint16_t part;
        memcpy(&part, from + b, 2);
        bytes.words[b / 4] |= static_cast<uint32_t>(part) << (b % 4 * 8);
      }
    }
    return bytes;
  }
  if (begin >= 3 && begin + kBytes + 7 <= end) {
    // The aligned words that have them.
    const int shift = AddressModulo16(from) % 4;
    from -= shift;
    uint32_t low = LoadWord(from);
#pragma unroll
    for (int word = 0; word < Bytes<kBytes>::kWords; ++word) {
      const uint32_t high = LoadWord(from + 4 * word + 4);
      bytes.words[word] = __funnelshift_r(low, high, 8 * shift);
      low = high;
    }
    Truncate(8 * kBytes, &bytes);
    return bytes;
  }
  const int count = TileSize(begin, kBytes, end);
#pragma unroll
  for (int b = 0; b < kBytes; ++b) {
    if (b < count) {
      bytes.words[b / 4] |= static_cast<uint32_t>(from[b]) << (b % 4 * 8);
    }
  }
  return bytes;
}

// Stores to[begin ... begin + kBytes - 1], but for those from `end` on.
template <int kBytes>
__device__ inline void StoreBytes(const Bytes<kBytes>& bytes, bool aligned,
                                  uint8_t* to, int64_t begin, int64_t end) {
  constexpr int kAccess = Bytes<kBytes>::kAccess;
  to += begin;
  if (kAccess > 1 && aligned && begin + kBytes <= end) {
    to = static_cast<uint8_t*>(__builtin_assume_aligned(to, kAccess));
    if constexpr (kAccess >= 4) {
      memcpy(to, bytes.words, kBytes);
    } else {
#pragma unroll
      for (int b = 0; b < kBytes; b += 2) {
        const uint16_t part =
            static_cast<uint16_t>(bytes.words[b / 4] >> (b % 4 * 8));
        memcpy(to + b, &part, 2);
      }
    }
    return;
  }
  const int count = TileSize(begin, kBytes, end);
#pragma unroll
  for (int b = 0; b < kBytes; ++b) {
    if (b < count)
      to[b] = static_cast<uint8_t>(bytes.words[b / 4] >> (b % 4 * 8));
  }
}

// ---- Bits -------------------------------------------------------------------

// Value k of a string of kBits bits each, and what is above them.
template <int kBits, int kBytes>
__device__ inline uint32_t Extract(const Bytes<kBytes>& string, int k) {
  const int bit = kBits * k;
  const int word = bit / 32;
  const uint32_t low = string.words[word] >> (bit % 32);
  return bit % 32 + kBits > 32 ? low | string.words[word + 1] << (32 - bit % 32)
                               : low;
}

// Adds value k, less than 2^kBits, to a string that has none there. `value` is
// 2^kScale times as much.
template <int kBits, int kScale = 0, int kBytes>
__device__ inline void Insert(uint32_t value, int k, Bytes<kBytes>* string) {
  const int word = kBits * k / 32;
  const int shift = kBits * k % 32 - kScale;
  string->words[word] += shift >= 0 ? value << shift : value >> -shift;
  if (shift + kScale + kBits > 32) {
    string->words[word + 1] += value >> (32 - shift);
  }
}

// ---- Bytes of a warp --------------------------------------------------------

// Stores kBytes bytes of every lane, from to[begin] on, one lane's behind those
// of the lane before, but for those from `end` on. All lanes must call it, with
// the same `to`, `begin`, `end` and `shared`: 32 kBytes of the warp's, aligned
// to 16 bytes.
template <int kBytes>
__device__ inline void WarpStoreBytes(const Bytes<kBytes>& bytes, uint8_t* to,
                                      int64_t begin, int64_t end,
                                      uint8_t* shared) {
  constexpr int kAccess = Bytes<kBytes>::kAccess;
  constexpr int kSize = 32 * kBytes;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (kAccess == kBytes && IsAligned(to, kAccess)) {
    // Nothing is gained by sharing.
    StoreBytes(bytes, true, to, begin + kBytes * lane, end);
    return;
  }
  StoreBytes(bytes, true, shared, kBytes * lane, kSize);
  __syncwarp();
  to += begin;
  if (begin + kSize <= end) {
    // Words where `to` is aligned to them, and up to 4 bytes around them.
    const int head = (4 - AddressModulo16(to) % 4) % 4;
#pragma unroll
    for (int b = 0; b < kSize; b += 128) {
      const int i = b + 4 * lane;
      if (i + head + 4 <= kSize) {
        uint32_t word = LoadWord(shared + i);
        if (head != 0) {
          word = __funnelshift_r(word, LoadWord(shared + i + 4), 8 * head);
        }
        memcpy(__builtin_assume_aligned(to + i + head, 4), &word, 4);
      }
    }
    if (head != 0 && lane < 4) {
      const int i = lane < head ? lane : kSize - 4 + lane;
      to[i] = shared[i];
    }
  } else {
    const int count = TileSize(begin, kSize, end);
    for (int i = lane; i < count; i += 32) to[i] = shared[i];
  }
  // Before the next call writes there.
  __syncwarp();
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_OPS_CUDA_BIT_PACKING_INL_H_
