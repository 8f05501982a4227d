// Packing and unpacking a vector at a time, for the *_simd.cc files (see
// kernel_table.h).
//
// Eight values, a byte each, are a lane of 64 bits. Three times, neighbours are
// pushed together, which makes twos, fours and then all eight of them; the
// bytes that hold them are then gathered. Unpacking goes the other way.

#ifndef TF_GC_OPS_KERNELS_BIT_PACKING_INL_H_
#define TF_GC_OPS_KERNELS_BIT_PACKING_INL_H_

#include <cstdint>

#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {

typedef uint64_t Lanes64 __attribute__((vector_size(kVectorBytes)));

// The bytes of kVectorBytes packed values.
template <int kBits>
inline constexpr int64_t kPackedBytes = kVectorBytes / 8 * kBits;

// A width of bits as a type.
template <int kBits>
struct Bits {
  static constexpr int kValue = kBits;
};

// Calls work of the width that `bits` is: 2, 3, 4, 5 or 8.
template <typename Work>
inline void WithBits(int bits, const Work& work) {
  switch (bits) {
    case 2:
      return work(Bits<2>());
    case 3:
      return work(Bits<3>());
    case 4:
      return work(Bits<4>());
    case 5:
      return work(Bits<5>());
    default:
      return work(Bits<8>());
  }
}

// table[index % 16] within each 16 bytes, or 0 where index >= 128.
inline Bytes ShuffleBytes(Bytes table, Bytes index) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Bytes>(_mm512_shuffle_epi8(
      reinterpret_cast<__m512i>(table), reinterpret_cast<__m512i>(index)));
#elif defined(__AVX2__)
  return reinterpret_cast<Bytes>(_mm256_shuffle_epi8(
      reinterpret_cast<__m256i>(table), reinterpret_cast<__m256i>(index)));
#else
  return reinterpret_cast<Bytes>(_mm_shuffle_epi8(
      reinterpret_cast<__m128i>(table), reinterpret_cast<__m128i>(index)));
#endif
}

// The low `kUsed` bits of every `kWidth`, to one of two sides.
template <int kWidth, int kUsed>
inline constexpr uint64_t LowBits() {
  uint64_t mask = 0;
  for (int bit = 0; bit < 64; bit += kWidth) {
    mask |= ((uint64_t{1} << kUsed) - 1) << bit;
  }
  return mask;
}

// Of every two fields of kWidth bits, of which kUsed are used, the upper one is
// put right above the lower one's bits.
template <int kWidth, int kUsed>
inline Lanes64 PushTogether(Lanes64 x) {
  constexpr uint64_t kLower = LowBits<2 * kWidth, kUsed>();
  return (x & kLower) | (x >> (kWidth - kUsed) & kLower << kUsed);
}

template <int kWidth, int kUsed>
inline Lanes64 PullApart(Lanes64 x) {
  constexpr uint64_t kLower = LowBits<2 * kWidth, kUsed>();
  return (x & kLower) | (x << (kWidth - kUsed) & kLower << kWidth);
}

// Which byte of each 16 comes where, to gather the kBits used ones of every
// eight, and to scatter them again. Indices from 128 on give 0.
template <int kBits>
struct ByteOrders {
  uint8_t gather[kVectorBytes] = {};
  uint8_t scatter[kVectorBytes] = {};

  constexpr ByteOrders() {
    for (int i = 0; i < kVectorBytes; ++i) {
      const int to = i % 16;
      const int gathered = to / kBits * 8 + to % kBits;
      const int scattered = to / 8 * kBits + to % 8;
      gather[i] = static_cast<uint8_t>(to < 2 * kBits ? gathered : 255);
      scatter[i] = static_cast<uint8_t>(to % 8 < kBits ? scattered : 255);
    }
  }
};

template <int kBits>
inline constexpr ByteOrders<kBits> kByteOrders;

// Packs kVectorBytes values, each less than 2^kBits, into kPackedBytes<kBits>.
template <int kBits>
inline void PackVector(Bytes indices, uint8_t* packed) {
  const Lanes64 twos =
      PushTogether<8, kBits>(reinterpret_cast<Lanes64>(indices));
  const Lanes64 fours = PushTogether<16, 2 * kBits>(twos);
  const Lanes64 eights = PushTogether<32, 4 * kBits>(fours);
  const Bytes gathered = ShuffleBytes(reinterpret_cast<Bytes>(eights),
                                      Load<Bytes>(kByteOrders<kBits>.gather));
  uint8_t bytes[kVectorBytes];
  Store(gathered, bytes);
  for (int i = 0; i < kVectorBytes / 16; ++i) {
    CopyBytes<2 * kBits>(bytes + 16 * i, packed + 2 * kBits * i);
  }
}

template <>
inline void PackVector<8>(Bytes indices, uint8_t* packed) {
  Store(indices, packed);
}

// How far UnpackVector may read behind the kPackedBytes that it unpacks.
inline constexpr int64_t kUnpackOverread = 16;

// The bytes of 16 packed values, and what follows, in each 16 bytes.
template <int kBits>
inline Bytes LoadPacked(const uint8_t* packed) {
#if defined(__AVX512BW__)
  __m512i all = _mm512_maskz_broadcast_i32x4(0xffff, Load<__m128i>(packed));
  all = _mm512_mask_broadcast_i32x4(all, 0x00f0,
                                    Load<__m128i>(packed + 2 * kBits));
  all = _mm512_mask_broadcast_i32x4(all, 0x0f00,
                                    Load<__m128i>(packed + 4 * kBits));
  all = _mm512_mask_broadcast_i32x4(all, 0xf000,
                                    Load<__m128i>(packed + 6 * kBits));
  return reinterpret_cast<Bytes>(all);
#elif defined(__AVX2__)
  return reinterpret_cast<Bytes>(
      _mm256_inserti128_si256(_mm256_castsi128_si256(Load<__m128i>(packed)),
                              Load<__m128i>(packed + 2 * kBits), 1));
#else
  return Load<Bytes>(packed);
#endif
}

// The kVectorBytes values that kPackedBytes<kBits> hold. Reads, and ignores, up
// to kUnpackOverread bytes more.
template <int kBits>
inline Bytes UnpackVector(const uint8_t* packed) {
  const Lanes64 eights = reinterpret_cast<Lanes64>(ShuffleBytes(
      LoadPacked<kBits>(packed), Load<Bytes>(kByteOrders<kBits>.scatter)));
  const Lanes64 fours = PullApart<32, 4 * kBits>(eights);
  const Lanes64 twos = PullApart<16, 2 * kBits>(fours);
  return reinterpret_cast<Bytes>(PullApart<8, kBits>(twos));
}

template <>
inline Bytes UnpackVector<8>(const uint8_t* packed) {
  return Load<Bytes>(packed);
}

// The bytes of n packed values. (PackedSize is not for these files.)
template <int kBits>
inline int64_t BytesOf(int64_t n) {
  return n / 8 * kBits + (n % 8 * kBits + 7) / 8;
}

// Packs n < kVectorBytes values of a vector, with padding of 0.
template <int kBits>
inline void PackRest(Bytes indices, int64_t n, uint8_t* packed) {
  Bytes rest = {};
  __builtin_memcpy(&rest, &indices, n);
  uint8_t bytes[kVectorBytes];
  PackVector<kBits>(rest, bytes);
  __builtin_memcpy(packed, bytes, BytesOf<kBits>(n));
}

// Calls sink(i, count, indices) for all n packed values, a vector of them at a
// time: `indices` are those of the values i ... i + count - 1, and count is
// kVectorBytes but for the last few.
template <int kBits, typename Sink>
inline void ForEachUnpacked(const uint8_t* packed, int64_t n,
                            const Sink& sink) {
  const uint8_t* const end = packed + BytesOf<kBits>(n);
  int64_t i = 0;
  for (; end - packed >= kPackedBytes<kBits> + kUnpackOverread;
       i += kVectorBytes, packed += kPackedBytes<kBits>) {
    sink(i, kVectorBytes, UnpackVector<kBits>(packed));
  }
  for (; i < n; i += kVectorBytes, packed += kPackedBytes<kBits>) {
    uint8_t rest[kPackedBytes<kBits> + kUnpackOverread] = {};
    __builtin_memcpy(rest, packed, Min(end - packed, kPackedBytes<kBits>));
    sink(i, Min(n - i, kVectorBytes), UnpackVector<kBits>(rest));
  }
}

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET

#endif  // TF_GC_OPS_KERNELS_BIT_PACKING_INL_H_
