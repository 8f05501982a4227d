#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

// Lanes that take whole bytes, whatever their width.
constexpr int64_t kGroupLanes = 8;

// Words of packed lanes, of which a group fills the lowest kBits bytes.
template <typename Lane>
using Group =
    std::conditional_t<sizeof(Lane) == 1, uint64_t, unsigned __int128>;

// The lowest kBits bits of each lane in a word.
template <int kBits, typename Lane>
constexpr uint64_t Mask() {
  uint64_t mask = 0;
  for (int bit = 0; bit < 64; bit += 8 * sizeof(Lane)) {
    mask |= ((uint64_t{1} << kBits) - 1) << bit;
  }
  return mask;
}

// The lanes of a word, side by side.
template <int kBits, typename Lane>
inline uint64_t Join(uint64_t lanes) {
#if defined(__BMI2__)
  return _pext_u64(lanes, Mask<kBits, Lane>());
#else
  uint64_t joined = 0;
  for (int k = 0; k < static_cast<int>(8 / sizeof(Lane)); ++k) {
    const uint64_t lane = lanes >> (8 * sizeof(Lane) * k);
    joined |= (lane & ((1u << kBits) - 1)) << (kBits * k);
  }
  return joined;
#endif
}

template <int kBits, typename Lane>
inline uint64_t Split(uint64_t joined) {
#if defined(__BMI2__)
  return _pdep_u64(joined, Mask<kBits, Lane>());
#else
  uint64_t lanes = 0;
  for (int k = 0; k < static_cast<int>(8 / sizeof(Lane)); ++k) {
    const uint64_t lane = joined >> (kBits * k) & ((1u << kBits) - 1);
    lanes |= lane << (8 * sizeof(Lane) * k);
  }
  return lanes;
#endif
}

template <int kBits>
inline uint64_t PackGroup(const uint8_t* lanes) {
  return Join<kBits, uint8_t>(Load<uint64_t>(lanes));
}

template <int kBits>
inline unsigned __int128 PackGroup(const uint16_t* lanes) {
  const unsigned __int128 high =
      Join<kBits, uint16_t>(Load<uint64_t>(lanes + kGroupLanes / 2));
  return high << (4 * kBits) | Join<kBits, uint16_t>(Load<uint64_t>(lanes));
}

template <int kBits>
inline void UnpackGroup(uint64_t group, uint8_t* lanes) {
  Store(Split<kBits, uint8_t>(group), lanes);
}

template <int kBits>
inline void UnpackGroup(unsigned __int128 group, uint16_t* lanes) {
  Store(Split<kBits, uint16_t>(static_cast<uint64_t>(group)), lanes);
  Store(Split<kBits, uint16_t>(static_cast<uint64_t>(group >> (4 * kBits))),
        lanes + kGroupLanes / 2);
}

// Groups before the place that this returns may be read and written as whole
// words, as what is behind them has more bytes than a word.
template <int kBits, typename Lane>
constexpr int64_t EndOfWords(int64_t n) {
  return n - kGroupLanes -
         static_cast<int64_t>(8 * sizeof(Group<Lane>)) / kBits;
}

template <int kBits, typename Lane>
void Pack(const Lane* lanes, int64_t n, uint8_t* packed) {
  int64_t i = 0;
  for (; i < EndOfWords<kBits, Lane>(n); i += kGroupLanes, packed += kBits) {
    Store(PackGroup<kBits>(lanes + i), packed);
  }
  for (; i < n; i += kGroupLanes, packed += kBits) {
    const int64_t left = Min(n - i, kGroupLanes);
    Lane rest[kGroupLanes] = {};
    __builtin_memcpy(rest, lanes + i, left * sizeof(Lane));
    const Group<Lane> group = PackGroup<kBits>(rest);
    __builtin_memcpy(packed, &group, (left * kBits + 7) / 8);
  }
}

template <int kBits, typename Lane>
void Unpack(const uint8_t* packed, int64_t n, Lane* lanes) {
  int64_t i = 0;
  for (; i < EndOfWords<kBits, Lane>(n); i += kGroupLanes, packed += kBits) {
    UnpackGroup<kBits>(Load<Group<Lane>>(packed), lanes + i);
  }
  for (; i < n; i += kGroupLanes, packed += kBits) {
    const int64_t left = Min(n - i, kGroupLanes);
    Group<Lane> group = 0;
    __builtin_memcpy(&group, packed, (left * kBits + 7) / 8);
    Lane rest[kGroupLanes];
    UnpackGroup<kBits>(group, rest);
    __builtin_memcpy(lanes + i, rest, left * sizeof(Lane));
  }
}

// Calls work of the width that `bits` is, which is at most kBits.
template <int kBits, typename Work>
void WithBits(int bits, const Work& work) {
  if constexpr (kBits > 0) {
    if (bits != kBits) return WithBits<kBits - 1>(bits, work);
    work(std::integral_constant<int, kBits>());
  }
}

template <typename Lane>
void PackAny(const Lane* lanes, int64_t n, int bits, uint8_t* packed) {
  WithBits<8 * sizeof(Lane) - 1>(bits, [&](auto width) {
    Pack<decltype(width)::value>(lanes, n, packed);
  });
}

template <typename Lane>
void UnpackAny(const uint8_t* packed, int64_t n, int bits, Lane* lanes) {
  WithBits<8 * sizeof(Lane) - 1>(bits, [&](auto width) {
    Unpack<decltype(width)::value>(packed, n, lanes);
  });
}

}  // namespace

const LanePackingTable kLanePackingTable = {PackAny<uint8_t>, PackAny<uint16_t>,
                                            UnpackAny<uint8_t>,
                                            UnpackAny<uint16_t>};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
