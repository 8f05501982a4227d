// The random numbers of the hops.

#ifndef TF_GC_OPS_WIRE_SEEDS_H_
#define TF_GC_OPS_WIRE_SEEDS_H_

#include <cstdint>

#include "ops/kernels/philox.h"

namespace tf_gc {

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), a bijection
// in which every bit of the input changes half of the output's.
constexpr uint64_t MixBits(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// The seed, which all ranks share, for what `rank` draws at the hop where it
// has `count` ranks' values before it. For one seed no two are alike.
constexpr kernels::Seed HopSeed(kernels::Seed seed, int rank, int count) {
  const uint64_t hop = uint64_t{static_cast<uint32_t>(rank)} << 32 |
                       static_cast<uint32_t>(count);
  return {MixBits(seed.key ^ MixBits(hop)), seed.stream};
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_SEEDS_H_
