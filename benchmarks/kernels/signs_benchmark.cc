// Speed of packing, unpacking and merging signs. The rates of merging are of
// the signs as float32, too; what it is compared with is drawing one random
// byte per value:
//
//   RandomByteMerge      a plain loop over scalar Philox blocks
//   RandomByteMergeFill  PhiloxFill, then a loop that the compiler vectorises

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/signs.h"

namespace tf_gc::kernels {
namespace {

constexpr int64_t kBytes = kValues / 8;
constexpr Seed kSeed = {1, 2};

std::vector<uint8_t> RandomBytes(uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(kBytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

void Pack(benchmark::State& state, const ParallelFor& parallel_for) {
  const std::vector<float> values = RandomValues(kValues);
  std::vector<uint8_t> packed(kBytes);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, 512, 1,
                     [&](int64_t begin, int64_t end) {
                       SignPack(values.data() + begin, end - begin,
                                packed.data() + begin / 8);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

void Unpack(benchmark::State& state, const ParallelFor& parallel_for) {
  const std::vector<uint8_t> packed = RandomBytes(1);
  std::vector<float> values(kValues);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kValues, 512, 1,
                     [&](int64_t begin, int64_t end) {
                       SignUnpack(packed.data() + begin / 8, end - begin,
                                  values.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

// merge(first, second, bytes, first_byte, merged) on all bytes.
template <typename MergePart>
void Merge(benchmark::State& state, const ParallelFor& parallel_for,
           const MergePart& merge) {
  const std::vector<uint8_t> first = RandomBytes(1), second = RandomBytes(2);
  std::vector<uint8_t> merged(kBytes);
  for (auto _ : state) {
    ParallelForUnits(parallel_for, kBytes, 1024, 1,
                     [&](int64_t begin, int64_t end) {
                       merge(first.data() + begin, second.data() + begin,
                             end - begin, begin, merged.data() + begin);
                     });
    benchmark::ClobberMemory();
  }
  SetRate(state);
}

// `kept` has a byte for each value: whether the first one's bit is kept.
inline uint8_t MergeByte(uint8_t first, uint8_t second, const uint8_t* kept) {
  uint8_t mask = 0;
  for (int bit = 0; bit < 8; ++bit) {
    mask = static_cast<uint8_t>(mask | kept[bit] << bit);
  }
  return static_cast<uint8_t>((first & mask) | (second & ~mask));
}

void MergeWithScalarBlocks(const uint8_t* first, const uint8_t* second,
                           int64_t bytes, int64_t first_byte, int threshold,
                           uint8_t* merged) {
  for (int64_t i = 0; i < bytes; i += 2) {
    const PhiloxWords block = PhiloxBlock(kSeed, (first_byte + i) / 2);
    uint8_t random[16], kept[16];
    std::memcpy(random, block.words, sizeof(random));
    for (int v = 0; v < 16; ++v) kept[v] = random[v] < threshold;
    merged[i] = MergeByte(first[i], second[i], kept);
    merged[i + 1] = MergeByte(first[i + 1], second[i + 1], kept + 8);
  }
}

// As many random bytes at a time as the caches hold.
constexpr int64_t kFillBytes = 1024;

// What is behind PhiloxFill: loops that the compiler vectorises, for each
// instruction set.
__attribute__((always_inline)) inline void CompareAndPack(
    const uint8_t* first, const uint8_t* second, const uint8_t* random,
    int64_t bytes, uint8_t threshold, uint8_t* merged) {
  uint8_t kept[8 * kFillBytes];
  for (int64_t v = 0; v < 8 * bytes; ++v) kept[v] = random[v] < threshold;
  for (int64_t i = 0; i < bytes; ++i) {
    uint64_t eight;
    __builtin_memcpy(&eight, kept + 8 * i, sizeof(eight));
    // Byte k's lowest bit becomes bit 56 + k.
    const uint8_t mask = static_cast<uint8_t>(eight * 0x0102040810204080 >> 56);
    merged[i] = static_cast<uint8_t>((first[i] & mask) | (second[i] & ~mask));
  }
}

void CompareAndPackBaseline(const uint8_t* first, const uint8_t* second,
                            const uint8_t* random, int64_t bytes,
                            uint8_t threshold, uint8_t* merged) {
  CompareAndPack(first, second, random, bytes, threshold, merged);
}

__attribute__((target("arch=x86-64-v3"))) void CompareAndPackAvx2(
    const uint8_t* first, const uint8_t* second, const uint8_t* random,
    int64_t bytes, uint8_t threshold, uint8_t* merged) {
  CompareAndPack(first, second, random, bytes, threshold, merged);
}

__attribute__((target("arch=x86-64-v4,prefer-vector-width=512"))) void
CompareAndPackAvx512(const uint8_t* first, const uint8_t* second,
                     const uint8_t* random, int64_t bytes, uint8_t threshold,
                     uint8_t* merged) {
  CompareAndPack(first, second, random, bytes, threshold, merged);
}

void MergeWithFill(const uint8_t* first, const uint8_t* second, int64_t bytes,
                   int64_t first_byte, int threshold, uint8_t* merged) {
  const auto compare_and_pack =
      ActiveInstructionSet() == InstructionSet::kBaseline
          ? CompareAndPackBaseline
      : ActiveInstructionSet() == InstructionSet::kAvx2 ? CompareAndPackAvx2
                                                        : CompareAndPackAvx512;
  uint32_t words[2 * kFillBytes];
  for (int64_t i = 0; i < bytes; i += kFillBytes) {
    const int64_t part = std::min(kFillBytes, bytes - i);
    PhiloxFill(kSeed, (first_byte + i) / 2, part / 2, words);
    compare_and_pack(first + i, second + i,
                     reinterpret_cast<const uint8_t*>(words), part,
                     static_cast<uint8_t>(threshold), merged + i);
  }
}

void RegisterMerge(int first_count, int second_count) {
  RegisterForAll("SignMerge/" + std::to_string(first_count) + "of" +
                     std::to_string(first_count + second_count),
                 [=](benchmark::State& state, const ParallelFor& parallel_for) {
                   Merge(
                       state, parallel_for,
                       [=](const uint8_t* first, const uint8_t* second,
                           int64_t bytes, int64_t first_byte, uint8_t* merged) {
                         SignMerge(first, second, bytes, first_count,
                                   second_count, kSeed, first_byte, merged);
                       });
                 });
}

template <typename MergePart>
void RegisterBaseline(const std::string& name, const MergePart& merge) {
  // p = 1/2; the probability makes no difference to the time.
  RegisterForAll(
      name, [=](benchmark::State& state, const ParallelFor& parallel_for) {
        Merge(state, parallel_for,
              [=](const uint8_t* first, const uint8_t* second, int64_t bytes,
                  int64_t first_byte, uint8_t* merged) {
                merge(first, second, bytes, first_byte, 128, merged);
              });
      });
}

const bool kRegistered = [] {
  RegisterForAll("SignPack", Pack);
  RegisterForAll("SignUnpack", Unpack);
  RegisterMerge(1, 1);
  RegisterMerge(1, 3);
  RegisterMerge(1, 7);
  RegisterMerge(1, 2);
  RegisterMerge(2, 1);
  RegisterBaseline("RandomByteMerge", MergeWithScalarBlocks);
  RegisterBaseline("RandomByteMergeFill", MergeWithFill);
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
