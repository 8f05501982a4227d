#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"
#include "ops/kernels/ternary-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

// ---- Packing ----------------------------------------------------------------

// Bit i is 1 where values[i] >= 0, for 64 values.
inline uint64_t NonNegativeMask(const float* values) {
  uint64_t mask = 0;
#if defined(__AVX512F__)
  for (int i = 0; i < 64; i += kLanes) {
    const __mmask16 part = _mm512_cmp_ps_mask(_mm512_loadu_ps(values + i),
                                              _mm512_setzero_ps(), _CMP_GE_OQ);
    mask |= static_cast<uint64_t>(part) << i;
  }
#else
  for (int i = 0; i < 64; i += kVectorBytes) {
    Ints is_nonnegative[4];
    for (int k = 0; k < 4; ++k) {
      is_nonnegative[k] = Load<Floats>(values + i + k * kLanes) >= Floats{};
    }
    const Bytes bytes = Narrow(is_nonnegative);
#if defined(__AVX2__)
    const uint32_t part =
        _mm256_movemask_epi8(reinterpret_cast<__m256i>(bytes));
#else
    const uint32_t part = _mm_movemask_epi8(reinterpret_cast<__m128i>(bytes));
#endif
    mask |= static_cast<uint64_t>(part) << i;
  }
#endif
  return mask;
}

void Pack(const float* values, int64_t n, uint8_t* packed) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Store(NonNegativeMask(values + i), packed + i / 8);
  }
  if (i < n) {
    float rest[64] = {};
    __builtin_memcpy(rest, values + i, (n - i) * sizeof(float));
    const uint64_t padding = ~uint64_t{0} << (n - i);
    const uint64_t mask = NonNegativeMask(rest) & ~padding;
    __builtin_memcpy(packed + i / 8, &mask, (n - i + 7) / 8);
  }
}

// Writes the 16 values of two bytes.
inline void UnpackSixteen(uint32_t bits, float* values) {
  Ints lane_bits;
  for (int lane = 0; lane < kLanes; ++lane) lane_bits[lane] = 1 << lane;
  const Ints one = reinterpret_cast<Ints>(Broadcast(1));
  for (int i = 0; i < 16; i += kLanes) {
    const Ints is_negative =
        ((Ints{} + static_cast<int32_t>(bits >> i)) & lane_bits) == 0;
    Store(one | (is_negative & kSignBit), values + i);
  }
}

void Unpack(const uint8_t* packed, int64_t n, float* values) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    UnpackSixteen(Load<uint16_t>(packed + i / 8), values + i);
  }
  if (i < n) {
    uint16_t bits = 0;
    __builtin_memcpy(&bits, packed + i / 8, (n - i + 7) / 8);
    float rest[16];
    UnpackSixteen(bits, rest);
    __builtin_memcpy(values + i, rest, (n - i) * sizeof(float));
  }
}

// ---- Merging ----------------------------------------------------------------

// Bytes with random numbers of their own, and the blocks that are kept for
// each: those of the planes first.
inline constexpr int64_t kGroupBytes = 16;
inline constexpr int64_t kGroupBlocks = 32;
inline constexpr int kPlanes = 3;
inline constexpr int kHalvesInBlock = 8;
// One turn of the generator makes a plane of as many groups.
inline constexpr int64_t kTurnBytes = Philox::kBlocks * kGroupBytes;
// As many groups share the search for undecided values, so that few lanes of
// the generator are idle.
inline constexpr int64_t kBatchGroups = 64;
inline constexpr int64_t kBatchBytes = kBatchGroups * kGroupBytes;

// The bits of `bits`, from the lowest, go where those of `mask` are 1.
inline uint64_t Deposit(uint64_t bits, uint64_t mask) {
#if defined(__BMI2__)
  return _pdep_u64(bits, mask);
#else
  uint64_t deposited = 0;
  // Eight at once, without a question; more are rare.
  do {
    for (int i = 0; i < 8; ++i, bits >>= 1) {
      const uint64_t lowest = mask & -mask;
      mask ^= lowest;
      deposited |= bits & 1 ? lowest : 0;
    }
  } while (mask != 0);
  return deposited;
#endif
}

// A byte for each block: bit h is 1 where half h is less than `limit`.
inline void StoreBelow(const UnsignedInts words[2], uint16_t limit,
                       uint8_t* below) {
#if defined(__AVX512BW__)
  const __m512i limits = _mm512_set1_epi16(static_cast<int16_t>(limit));
  for (int k = 0; k < 2; ++k) {
    const uint32_t mask =
        _mm512_cmplt_epu16_mask(reinterpret_cast<__m512i>(words[k]), limits);
    Store(mask, below + 4 * k);
  }
#elif defined(__AVX2__)
  const __m256i largest = _mm256_set1_epi16(static_cast<int16_t>(limit - 1));
  __m256i is_below[2];
  for (int k = 0; k < 2; ++k) {
    const __m256i halves = reinterpret_cast<__m256i>(words[k]);
    is_below[k] = _mm256_cmpeq_epi16(_mm256_min_epu16(halves, largest), halves);
  }
  const uint32_t mask = _mm256_movemask_epi8(_mm256_permute4x64_epi64(
      _mm256_packs_epi16(is_below[0], is_below[1]), 0xd8));
  Store(mask, below);
#else
  const __m128i largest = _mm_set1_epi16(static_cast<int16_t>(limit - 1));
  __m128i is_below[2];
  for (int k = 0; k < 2; ++k) {
    const __m128i halves = reinterpret_cast<__m128i>(words[k]);
    is_below[k] = _mm_cmpeq_epi16(_mm_min_epu16(halves, largest), halves);
  }
  const uint16_t mask = static_cast<uint16_t>(
      _mm_movemask_epi8(_mm_packs_epi16(is_below[0], is_below[1])));
  Store(mask, below);
#endif
}

// Merges where the first `kDrawn` planes can change the result.
template <int kDrawn>
class SignMerger {
 public:
  SignMerger(Seed seed, uint32_t threshold)
      : philox_(seed),
        low_(static_cast<uint16_t>(threshold)),
        always_(UnsignedInts{} - (threshold >> 19)) {
    for (int t = 0; t < kPlanes; ++t) {
      is_one_[t] = UnsignedInts{} - (threshold >> (18 - t) & 1);
    }
  }

  // `block` is the first one of the first group.
  void Merge(const uint8_t* first, const uint8_t* second, int64_t bytes,
             uint64_t block, uint8_t* merged) const {
    int64_t i = 0;
    for (; i + kBatchBytes <= bytes; i += kBatchBytes) {
      MergeBatch(first + i, second + i, kBatchBytes,
                 block + i / kGroupBytes * kGroupBlocks, merged + i);
    }
    if (i < bytes) {
      // Zeros agree, and take nothing.
      uint8_t rest[2][kBatchBytes] = {};
      __builtin_memcpy(rest[0], first + i, bytes - i);
      __builtin_memcpy(rest[1], second + i, bytes - i);
      const int64_t turns = (bytes - i + kTurnBytes - 1) / kTurnBytes;
      MergeBatch(rest[0], rest[1], turns * kTurnBytes,
                 block + i / kGroupBytes * kGroupBlocks, rest[0]);
      __builtin_memcpy(merged + i, rest[0], bytes - i);
    }
  }

 private:
  // `bytes` is a multiple of kTurnBytes, at most kBatchBytes.
  inline void MergeBatch(const uint8_t* first, const uint8_t* second,
                         int64_t bytes, uint64_t block, uint8_t* merged) const {
    uint64_t undecided[kBatchBytes / 8];
    for (int64_t i = 0; i < bytes; i += kTurnBytes) {
      MergePlanes(first + i, second + i, block + i / kGroupBytes * kGroupBlocks,
                  merged + i, undecided + i / 8);
    }
    if (kDrawn == kPlanes && low_ != 0) {
      DecideRest(undecided, static_cast<int>(bytes / kGroupBytes), block,
                 merged);
    }
  }

  // Merges kTurnBytes as far as the planes decide; undecided bits are those of
  // `second`.
  inline void MergePlanes(const uint8_t* first, const uint8_t* second,
                          uint64_t block, uint8_t* merged,
                          uint64_t* undecided) const {
    UnsignedInts seconds[2], equal[2], less[2];
    for (int k = 0; k < 2; ++k) {
      seconds[k] = Load<UnsignedInts>(second + k * kVectorBytes);
      // Where U and T are equal so far, of the bits that differ, and less.
      equal[k] = seconds[k] ^ Load<UnsignedInts>(first + k * kVectorBytes);
      less[k] = equal[k] & always_;
    }
    for (int t = 0; t < kDrawn; ++t) {
      UnsignedInts plane[2];
      philox_.Generate(block + t, kGroupBlocks, plane);
      for (int k = 0; k < 2; ++k) {
        less[k] |= equal[k] & is_one_[t] & ~plane[k];
        equal[k] &= ~(plane[k] ^ is_one_[t]);
      }
    }
    for (int k = 0; k < 2; ++k) {
      Store(seconds[k] ^ less[k], merged + k * kVectorBytes);
      if (kDrawn == kPlanes) {
        Store(equal[k], undecided + k * (kVectorBytes / 8));
      }
    }
  }

  // Merges the undecided bits, which differ and are `second`'s so far, by the
  // low bits of the threshold.
  inline void DecideRest(const uint64_t* undecided, int groups, uint64_t block,
                         uint8_t* merged) const {
    constexpr int kMaxBlocks = kGroupBytes * 8 / kHalvesInBlock;
    uint64_t blocks[kBatchGroups * kMaxBlocks + Philox::kBlocks];
    int listed = 0;
    for (int g = 0; g < groups; ++g) {
      const int needed = (Count(undecided[2 * g]) +
                          Count(undecided[2 * g + 1]) + kHalvesInBlock - 1) /
                         kHalvesInBlock;
      const uint64_t group_block = block + g * kGroupBlocks + kPlanes;
      // Four at once, without a question; more are rare.
      int b = 0;
      do {
        for (int k = 0; k < 4; ++k)
          blocks[listed + b + k] = group_block + b + k;
        b += 4;
      } while (b < needed);
      listed += needed;
    }
    Store(Longs{}, blocks + listed);

    uint8_t below[kBatchGroups * kMaxBlocks + 2 * sizeof(uint64_t)];
    for (int i = 0; i < listed; i += Philox::kBlocks) {
      UnsignedInts words[2];
      philox_.GenerateListed(blocks + i, words);
      StoreBelow(words, low_, below + i);
    }
    __builtin_memset(below + listed, 0, 2 * sizeof(uint64_t));

    const uint8_t* next = below;
    for (int g = 0; g < groups; ++g) {
      const uint64_t* masks = undecided + 2 * g;
      const int counts[2] = {Count(masks[0]), Count(masks[1])};
      const auto bits = Load<unsigned __int128>(next);
      uint8_t* const out = merged + g * kGroupBytes;
      Store(
          Load<uint64_t>(out) ^ Deposit(static_cast<uint64_t>(bits), masks[0]),
          out);
      Store(Load<uint64_t>(out + 8) ^
                Deposit(static_cast<uint64_t>(bits >> counts[0]), masks[1]),
            out + 8);
      next += (counts[0] + counts[1] + kHalvesInBlock - 1) / kHalvesInBlock;
    }
  }

  static inline int Count(uint64_t bits) { return __builtin_popcountll(bits); }

  Philox philox_;
  // The bits of the threshold T: the 16 low ones; whether T is 2^19; then those
  // of the planes, as masks.
  uint16_t low_;
  UnsignedInts always_;
  UnsignedInts is_one_[kPlanes];
};

// As many planes as the threshold has bits down to its lowest 1.
int DrawnPlanes(uint32_t threshold) {
  if (threshold == 0) return 0;
  return static_cast<int>(Min(kPlanes, 19 - TrailingZeros(threshold)));
}

void Merge(const uint8_t* first, const uint8_t* second, int64_t bytes,
           uint32_t threshold, Seed seed, int64_t first_byte, uint8_t* merged) {
  const uint64_t block =
      static_cast<uint64_t>(first_byte) / kGroupBytes * kGroupBlocks;
  switch (DrawnPlanes(threshold)) {
    case 0:
      return SignMerger<0>(seed, threshold)
          .Merge(first, second, bytes, block, merged);
    case 1:
      return SignMerger<1>(seed, threshold)
          .Merge(first, second, bytes, block, merged);
    case 2:
      return SignMerger<2>(seed, threshold)
          .Merge(first, second, bytes, block, merged);
    default:
      return SignMerger<3>(seed, threshold)
          .Merge(first, second, bytes, block, merged);
  }
}

}  // namespace

const SignsTable kSignsTable = {Pack, Unpack, Merge};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
