// Philox4x32-10, a random number generator that computes any part of its
// stream directly (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011).
//
// A stream is a sequence of blocks of four 32-bit words. It has the same words
// as TensorFlow's Philox with the key `seed.key` and the counter (block,
// seed.stream), and is the same on every processor, CPU or GPU.

#ifndef TF_GC_OPS_KERNELS_PHILOX_H_
#define TF_GC_OPS_KERNELS_PHILOX_H_

#include <cstdint>

#ifdef __CUDACC__
#define TF_GC_HOST_DEVICE __host__ __device__
#else
#define TF_GC_HOST_DEVICE
#endif

namespace tf_gc::kernels {

// Which stream: streams of different seeds are independent.
struct Seed {
  uint64_t key = 0;
  uint64_t stream = 0;
};

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultipliers[2] = {0xd2511f53, 0xcd9e8d57};
inline constexpr uint32_t kPhiloxKeySteps[2] = {0x9e3779b9, 0xbb67ae85};

struct PhiloxWords {
  uint32_t words[4];
};

// The high and the low word of a product. (Static, as what follows, so that the
// files that are compiled for an instruction set of their own may use it.)
TF_GC_HOST_DEVICE static inline void PhiloxMultiply(uint32_t a, uint32_t b,
                                                    uint32_t* high,
                                                    uint32_t* low) {
#ifdef __CUDA_ARCH__
  // One instruction; nvcc makes two of a product of 64 bits.
  *high = __umulhi(a, b);
  *low = a * b;
#else
  const uint64_t product = uint64_t{a} * b;
  *high = static_cast<uint32_t>(product >> 32);
  *low = static_cast<uint32_t>(product);
#endif
}

// The keys of all rounds, where many blocks share them.
struct PhiloxKeys {
  uint32_t words[kPhiloxRounds][2];
};

TF_GC_HOST_DEVICE static inline PhiloxKeys MakePhiloxKeys(uint64_t key) {
  // nvcc takes constants of the host, but not their arrays.
  constexpr uint32_t kStep0 = kPhiloxKeySteps[0];
  constexpr uint32_t kStep1 = kPhiloxKeySteps[1];
  PhiloxKeys keys;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.words[round][0] = static_cast<uint32_t>(key) + round * kStep0;
    keys.words[round][1] = static_cast<uint32_t>(key >> 32) + round * kStep1;
  }
  return keys;
}

// The block with the number `block` of the seed with these keys and `stream`.
TF_GC_HOST_DEVICE static inline PhiloxWords PhiloxBlock(const PhiloxKeys& keys,
                                                        uint64_t stream,
                                                        uint64_t block) {
  uint32_t x[4] = {
      static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
      static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  constexpr uint32_t kMultiplier0 = kPhiloxMultipliers[0];
  constexpr uint32_t kMultiplier1 = kPhiloxMultipliers[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    uint32_t high0, low0, high1, low1;
    PhiloxMultiply(kMultiplier0, x[0], &high0, &low0);
    PhiloxMultiply(kMultiplier1, x[2], &high1, &low1);
    x[0] = high1 ^ x[1] ^ keys.words[round][0];
    x[1] = low1;
    x[2] = high0 ^ x[3] ^ keys.words[round][1];
    x[3] = low0;
  }
  return {{x[0], x[1], x[2], x[3]}};
}

TF_GC_HOST_DEVICE static inline PhiloxWords PhiloxBlock(Seed seed,
                                                        uint64_t block) {
  return PhiloxBlock(MakePhiloxKeys(seed.key), seed.stream, block);
}

// Sixteen random bits of a block, 0 <= half < 8.
TF_GC_HOST_DEVICE static inline uint32_t PhiloxHalf(const PhiloxWords& block,
                                                    int half) {
  return block.words[half / 2] >> (16 * (half % 2)) & 0xffff;
}

// Writes the words of `blocks` blocks, from the block `first` on.
void PhiloxFill(Seed seed, uint64_t first, int64_t blocks, uint32_t* words);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_PHILOX_H_
