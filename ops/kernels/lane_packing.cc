#include "ops/kernels/lane_packing.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/kernels/bit_packing.h"

namespace tf_gc::kernels {
namespace {

// Lanes that take whole bytes, whatever their width.
constexpr int64_t kGroupLanes = 8;

// Words of packed lanes, of which a group fills the lowest kBits bytes.
template <typename Lane>
using Group =
    std::conditional_t<sizeof(Lane) == 1, uint64_t, unsigned __int128>;

template <typename Word>
Word Load(const void* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

template <typename Word>
void Store(const Word& word, void* to) {
  std::memcpy(to, &word, sizeof(word));
}

// The lowest `bits` bits of each field of a word.
constexpr uint64_t Mask(int field, int bits) {
  uint64_t mask = 0;
  for (int i = 0; i < 64; i += field) mask |= ((uint64_t{1} << bits) - 1) << i;
  return mask;
}

// A word has fields of kField bits, and the lowest kBits of each count. Returns
// these side by side: fields are joined in pairs until there is one. (The
// instruction pext does it at once, but takes hundreds of cycles on some
// processors.)
template <int kField, int kBits>
inline uint64_t Join(uint64_t fields) {
  if constexpr (kField == 64) {
    return fields;
  } else {
    constexpr uint64_t kLow = Mask(2 * kField, kBits);
    return Join<2 * kField, 2 * kBits>(
        (fields & kLow) | ((fields >> (kField - kBits)) & (kLow << kBits)));
  }
}

// The inverse of Join.
template <int kField, int kBits>
inline uint64_t Split(uint64_t joined) {
  if constexpr (kField == 64) {
    return joined;
  } else {
    constexpr uint64_t kLow = Mask(2 * kField, kBits);
    const uint64_t pairs = Split<2 * kField, 2 * kBits>(joined);
    return (pairs & kLow) | ((pairs << (kField - kBits)) & (kLow << kField));
  }
}

template <int kBits>
inline uint64_t PackGroup(const uint8_t* lanes) {
  return Join<8, kBits>(Load<uint64_t>(lanes));
}

template <int kBits>
inline unsigned __int128 PackGroup(const uint16_t* lanes) {
  const unsigned __int128 high =
      Join<16, kBits>(Load<uint64_t>(lanes + kGroupLanes / 2));
  return high << (4 * kBits) | Join<16, kBits>(Load<uint64_t>(lanes));
}

template <int kBits>
inline void UnpackGroup(uint64_t group, uint8_t* lanes) {
  Store(Split<8, kBits>(group), lanes);
}

template <int kBits>
inline void UnpackGroup(unsigned __int128 group, uint16_t* lanes) {
  Store(Split<16, kBits>(static_cast<uint64_t>(group)), lanes);
  Store(Split<16, kBits>(static_cast<uint64_t>(group >> (4 * kBits))),
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
    const int64_t left = std::min(n - i, kGroupLanes);
    Lane rest[kGroupLanes] = {};
    std::memcpy(rest, lanes + i, left * sizeof(Lane));
    const Group<Lane> group = PackGroup<kBits>(rest);
    std::memcpy(packed, &group, (left * kBits + 7) / 8);
  }
}

template <int kBits, typename Lane>
void Unpack(const uint8_t* packed, int64_t n, Lane* lanes) {
  int64_t i = 0;
  for (; i < EndOfWords<kBits, Lane>(n); i += kGroupLanes, packed += kBits) {
    UnpackGroup<kBits>(Load<Group<Lane>>(packed), lanes + i);
  }
  for (; i < n; i += kGroupLanes, packed += kBits) {
    const int64_t left = std::min(n - i, kGroupLanes);
    Group<Lane> group = 0;
    std::memcpy(&group, packed, (left * kBits + 7) / 8);
    Lane rest[kGroupLanes];
    UnpackGroup<kBits>(group, rest);
    std::memcpy(lanes + i, rest, left * sizeof(Lane));
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

void PackLanes(const uint8_t* lanes, int64_t n, int bits, uint8_t* packed) {
  if (IsPackableBits(bits)) return PackBits(lanes, n, bits, packed);
  PackAny(lanes, n, bits, packed);
}

void PackLanes(const uint16_t* lanes, int64_t n, int bits, uint8_t* packed) {
  if (bits < 16) return PackAny(lanes, n, bits, packed);
  if (n > 0) std::memcpy(packed, lanes, n * sizeof(uint16_t));
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint8_t* lanes) {
  if (IsPackableBits(bits)) return UnpackBits(packed, n, bits, lanes);
  UnpackAny(packed, n, bits, lanes);
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint16_t* lanes) {
  if (bits < 16) return UnpackAny(packed, n, bits, lanes);
  if (n > 0) std::memcpy(lanes, packed, n * sizeof(uint16_t));
}

}  // namespace tf_gc::kernels
