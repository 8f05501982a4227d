#include <cstdint>

#include "ops/kernels/bit_packing-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

typedef uint16_t Words __attribute__((vector_size(kVectorBytes)));

// A table of up to 32 bytes, in registers.
template <int kBits>
class ByteTable {
 public:
  // Byte `byte` of every value of the table.
  template <typename Lane>
  ByteTable(const Lane* table, int byte) {
    for (int i = 0; i < kVectorBytes; ++i) {
      const int z = i % 16;
      lower_[i] = z < 1 << kBits ? table[z] >> 8 * byte & 0xff : 0;
      upper_[i] = kBits > 4 ? table[16 + z] >> 8 * byte & 0xff : 0;
    }
  }

  inline Bytes Lookup(Bytes z) const {
    if constexpr (kBits <= 4) return ShuffleBytes(lower_, z);
    // Indices of the other half turn into 128 or more, which give 0.
    return ShuffleBytes(lower_, z + 0x70) | ShuffleBytes(upper_, z - 16);
  }

 private:
  Bytes lower_;
  Bytes upper_;
};

// low[i] + 2^8 high[i], in order.
inline void Interleave(Bytes low, Bytes high, Words words[2]) {
  // Unpacking works within 16 bytes.
#if defined(__AVX512BW__)
  const Lanes64 even = reinterpret_cast<Lanes64>(_mm512_unpacklo_epi8(
      reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high)));
  const Lanes64 odd = reinterpret_cast<Lanes64>(_mm512_unpackhi_epi8(
      reinterpret_cast<__m512i>(low), reinterpret_cast<__m512i>(high)));
  words[0] = reinterpret_cast<Words>(
      __builtin_shufflevector(even, odd, 0, 1, 8, 9, 2, 3, 10, 11));
  words[1] = reinterpret_cast<Words>(
      __builtin_shufflevector(even, odd, 4, 5, 12, 13, 6, 7, 14, 15));
#elif defined(__AVX2__)
  const __m256i even = _mm256_unpacklo_epi8(reinterpret_cast<__m256i>(low),
                                            reinterpret_cast<__m256i>(high));
  const __m256i odd = _mm256_unpackhi_epi8(reinterpret_cast<__m256i>(low),
                                           reinterpret_cast<__m256i>(high));
  words[0] =
      reinterpret_cast<Words>(_mm256_permute2x128_si256(even, odd, 0x20));
  words[1] =
      reinterpret_cast<Words>(_mm256_permute2x128_si256(even, odd, 0x31));
#else
  words[0] = reinterpret_cast<Words>(_mm_unpacklo_epi8(
      reinterpret_cast<__m128i>(low), reinterpret_cast<__m128i>(high)));
  words[1] = reinterpret_cast<Words>(_mm_unpackhi_epi8(
      reinterpret_cast<__m128i>(low), reinterpret_cast<__m128i>(high)));
#endif
}

template <int kBits>
struct ByteAdder {
  using Lane = uint8_t;

  explicit ByteAdder(const uint8_t* table) : table(table, 0) {}

  // Adds the values of kVectorBytes indices.
  inline void Add(Bytes z, uint8_t* accumulator) const {
    Store(Load<Bytes>(accumulator) + table.Lookup(z), accumulator);
  }

  ByteTable<kBits> table;
};

template <int kBits>
struct WordAdder {
  using Lane = uint16_t;

  explicit WordAdder(const uint16_t* table) : low(table, 0), high(table, 1) {}

  inline void Add(Bytes z, uint16_t* accumulator) const {
    Words words[2];
    Interleave(low.Lookup(z), high.Lookup(z), words);
    for (int k = 0; k < 2; ++k) {
      uint16_t* const to = accumulator + k * kVectorBytes / 2;
      Store(Load<Words>(to) + words[k], to);
    }
  }

  ByteTable<kBits> low;
  ByteTable<kBits> high;
};

template <int kBits, typename Adder>
void SumOf(const uint8_t* packed, int64_t n, const typename Adder::Lane* table,
           typename Adder::Lane* accumulator) {
  using Lane = typename Adder::Lane;
  const Adder adder(table);
  ForEachUnpacked<kBits>(
      packed, n, [&](int64_t i, int64_t count, const Bytes& z) {
        if (count == kVectorBytes) {
          adder.Add(z, accumulator + i);
        } else {
          Lane rest[kVectorBytes] = {};
          __builtin_memcpy(rest, accumulator + i, count * sizeof(Lane));
          adder.Add(z, rest);
          __builtin_memcpy(accumulator + i, rest, count * sizeof(Lane));
        }
      });
}

// A table of 256 values, which fits no registers.
template <typename Lane>
void SumOf8Bits(const uint8_t* packed, int64_t n, const Lane* table,
                Lane* accumulator) {
  for (int64_t i = 0; i < n; ++i) {
    accumulator[i] = static_cast<Lane>(accumulator[i] + table[packed[i]]);
  }
}

template <template <int> class Adder, typename Lane>
void Sum(const uint8_t* packed, int64_t n, const Lane* table, int bits,
         Lane* accumulator) {
  WithBits(bits, [=](auto width) {
    constexpr int kBits = decltype(width)::kValue;
    if constexpr (kBits == 8) {
      SumOf8Bits(packed, n, table, accumulator);
    } else {
      SumOf<kBits, Adder<kBits>>(packed, n, table, accumulator);
    }
  });
}

}  // namespace

const TableSumTable kTableSumTable = {Sum<ByteAdder, uint8_t>,
                                      Sum<WordAdder, uint16_t>};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
