// Philox for the *_simd.cc files: the blocks of philox.h, many at once.

#ifndef TF_GC_OPS_KERNELS_PHILOX_INL_H_
#define TF_GC_OPS_KERNELS_PHILOX_INL_H_

#include <cstdint>

#include "ops/kernels/philox.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

typedef uint64_t Longs __attribute__((vector_size(kVectorBytes)));

// 64-bit products of the lower halves of each lane.
inline Longs MultiplyLow(Longs a, Longs b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Longs>(_mm512_maskz_mul_epu32(
      0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Longs>(_mm256_mul_epu32(
      reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Longs>(_mm_mul_epu32(reinterpret_cast<__m128i>(a),
                                               reinterpret_cast<__m128i>(b)));
#endif
}

// kLanes random numbers (u + 0.5) 2^-16 of as many halves u: the bits behind
// the point of a number between 1 and 2.
inline Floats Fractions(const uint16_t* halves) {
  const Ints bits = LoadHalves(halves) << 7 | 0x3f800040;
  return reinterpret_cast<Floats>(bits) - 1.0f;
}

// Makes kBlocks consecutive blocks of a stream at a time.
class Philox {
 public:
  // As many blocks as fill two vectors.
  static constexpr int kBlocks = kVectorBytes / 8;
  static constexpr int kWords = 4 * kBlocks;

  explicit Philox(Seed seed) : stream_(seed.stream) {
    uint32_t key[2] = {static_cast<uint32_t>(seed.key),
                       static_cast<uint32_t>(seed.key >> 32)};
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (int k = 0; k < 2; ++k) {
        keys_[round][k] = Longs{} + key[k];
        key[k] += kPhiloxKeySteps[k];
      }
    }
  }

  // The words of the blocks `first`, `first` + `stride`, ..., kBlocks of them,
  // in order.
  inline void Generate(uint64_t first, uint64_t stride,
                       UnsignedInts words[2]) const {
    MakeBlocks(InLaneOrder(Count() * stride) + first, words);
  }
  inline void Generate(uint64_t first, UnsignedInts words[2]) const {
    Generate(first, 1, words);
  }

  // The words of the blocks with kBlocks given numbers, in order.
  inline void GenerateListed(const uint64_t* blocks,
                             UnsignedInts words[2]) const {
    MakeBlocks(InLaneOrder(Load<Longs>(blocks)), words);
  }

 private:
  // Each lane of 64 bits makes one block; what is above a word's 32 bits is of
  // no account.
  inline void MakeBlocks(Longs blocks, UnsignedInts words[2]) const {
    Longs x[4] = {blocks, blocks >> 32, Longs{} + stream_,
                  Longs{} + (stream_ >> 32)};
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const Longs p0 = MultiplyLow(x[0], Longs{} + kPhiloxMultipliers[0]);
      const Longs p1 = MultiplyLow(x[2], Longs{} + kPhiloxMultipliers[1]);
      x[0] = (p1 >> 32) ^ x[1] ^ keys_[round][0];
      x[1] = p1;
      x[2] = (p0 >> 32) ^ x[3] ^ keys_[round][1];
      x[3] = p0;
    }
    const Longs low = (x[0] & 0xffffffff) | x[1] << 32;
    const Longs high = (x[2] & 0xffffffff) | x[3] << 32;
    words[0] = UnpackEven(low, high);
    words[1] = UnpackOdd(low, high);
  }

  // 0, 1, 2, ...
  static inline Longs Count() {
    Longs count;
    for (int i = 0; i < kBlocks; ++i) count[i] = i;
    return count;
  }

  // Which block each lane makes: those of even lanes come first, as the two
  // halves of a block are put side by side within 16 bytes.
  static inline Longs InLaneOrder(Longs blocks) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(blocks, blocks, 0, 4, 1, 5, 2, 6, 3, 7);
#elif defined(__AVX2__)
    return __builtin_shufflevector(blocks, blocks, 0, 2, 1, 3);
#else
    return blocks;
#endif
  }

  static inline UnsignedInts UnpackEven(Longs low, Longs high) {
#if defined(__AVX512F__)
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 0, 8, 2, 10, 4, 12, 6, 14));
#elif defined(__AVX2__)
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 0, 4, 2, 6));
#else
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 0, 2));
#endif
  }

  static inline UnsignedInts UnpackOdd(Longs low, Longs high) {
#if defined(__AVX512F__)
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 1, 9, 3, 11, 5, 13, 7, 15));
#elif defined(__AVX2__)
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 1, 5, 3, 7));
#else
    return reinterpret_cast<UnsignedInts>(
        __builtin_shufflevector(low, high, 1, 3));
#endif
  }

  uint64_t stream_;
  Longs keys_[kPhiloxRounds][2];
};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_PHILOX_INL_H_
