#include "ops/kernels/lane_packing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/kernels/bit_packing.h"

namespace tf_gc::kernels {
namespace {

// Lanes that take whole bytes, whatever their width.
constexpr int kGroup = 8;

// Shifts by constants, once the compiler has unrolled the loops.
template <int kBits, typename Lane>
inline void PackGroup(const Lane* lanes, uint8_t* packed) {
  unsigned __int128 group = 0;
  for (int k = 0; k < kGroup; ++k) {
    group |= static_cast<unsigned __int128>(lanes[k]) << (k * kBits);
  }
  std::memcpy(packed, &group, kBits);
}

template <int kBits, typename Lane>
inline void UnpackGroup(const uint8_t* packed, Lane* lanes) {
  unsigned __int128 group = 0;
  std::memcpy(&group, packed, kBits);
  for (int k = 0; k < kGroup; ++k) {
    lanes[k] = static_cast<Lane>(static_cast<uint32_t>(group >> (k * kBits)) &
                                 ((1u << kBits) - 1));
  }
}

template <int kBits, typename Lane>
void Pack(const Lane* lanes, int64_t n, uint8_t* packed) {
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup, packed += kBits) {
    PackGroup<kBits>(lanes + i, packed);
  }
  if (i == n) return;
  Lane rest[kGroup] = {};
  uint8_t group[kBits];
  std::copy(lanes + i, lanes + n, rest);
  PackGroup<kBits>(rest, group);
  std::copy_n(group, PackedSize(n - i, kBits), packed);
}

template <int kBits, typename Lane>
void Unpack(const uint8_t* packed, int64_t n, Lane* lanes) {
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup, packed += kBits) {
    UnpackGroup<kBits>(packed, lanes + i);
  }
  if (i == n) return;
  uint8_t group[kBits] = {};
  Lane rest[kGroup];
  std::copy_n(packed, PackedSize(n - i, kBits), group);
  UnpackGroup<kBits>(group, rest);
  std::copy_n(rest, n - i, lanes + i);
}

// Calls work of the width that `bits` is.
template <int kBits, typename Work>
void WithBits(int bits, const Work& work) {
  if constexpr (kBits > 0) {
    if (bits != kBits) return WithBits<kBits - 1>(bits, work);
    work(std::integral_constant<int, kBits>());
  }
}

template <typename Lane>
void PackAny(const Lane* lanes, int64_t n, int bits, uint8_t* packed) {
  constexpr int kMost = 8 * sizeof(Lane);
  if (bits == kMost) {
    if (n > 0) std::memcpy(packed, lanes, n * sizeof(Lane));
    return;
  }
  WithBits<kMost - 1>(bits, [&](auto width) {
    Pack<decltype(width)::value>(lanes, n, packed);
  });
}

template <typename Lane>
void UnpackAny(const uint8_t* packed, int64_t n, int bits, Lane* lanes) {
  constexpr int kMost = 8 * sizeof(Lane);
  if (bits == kMost) {
    if (n > 0) std::memcpy(lanes, packed, n * sizeof(Lane));
    return;
  }
  WithBits<kMost - 1>(bits, [&](auto width) {
    Unpack<decltype(width)::value>(packed, n, lanes);
  });
}

}  // namespace

void PackLanes(const uint8_t* lanes, int64_t n, int bits, uint8_t* packed) {
  if (IsPackableBits(bits)) return PackBits(lanes, n, bits, packed);
  PackAny(lanes, n, bits, packed);
}

void PackLanes(const uint16_t* lanes, int64_t n, int bits, uint8_t* packed) {
  PackAny(lanes, n, bits, packed);
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint8_t* lanes) {
  if (IsPackableBits(bits)) return UnpackBits(packed, n, bits, lanes);
  UnpackAny(packed, n, bits, lanes);
}

void UnpackLanes(const uint8_t* packed, int64_t n, int bits, uint16_t* lanes) {
  UnpackAny(packed, n, bits, lanes);
}

}  // namespace tf_gc::kernels
