#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

#define TF_GC_ALWAYS_INLINE inline __attribute__((always_inline))

// How many vectors are transformed at once: half of the registers.
#if defined(__AVX512F__)
inline constexpr int kRegisters = 16;
#else
inline constexpr int kRegisters = 8;
#endif
inline constexpr int64_t kGroupValues = kRegisters * kLanes;

// Half of the first-level cache, at least. Of more values, rows that are a
// power of two apart share a set of it, which has room for kHadamardRadix of
// them.
inline constexpr int64_t kFirstLevelValues = 4096;

// ---- One vector -------------------------------------------------------------

// a - b. Processors that add in some units and multiply in others have use for
// both; the product is exact, so that the result is the same.
TF_GC_ALWAYS_INLINE Floats Subtract(Floats a, Floats b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_fnmadd_ps(reinterpret_cast<__m512>(b), _mm512_set1_ps(1),
                       reinterpret_cast<__m512>(a)));
#elif defined(__FMA__)
  return reinterpret_cast<Floats>(
      _mm256_fnmadd_ps(reinterpret_cast<__m256>(b), _mm256_set1_ps(1),
                       reinterpret_cast<__m256>(a)));
#else
  return a - b;
#endif
}

// Lane i of the result is lane i ^ h.
template <int h>
TF_GC_ALWAYS_INLINE Floats SwapLanes(Floats x) {
#define TF_GC_LANES(i)                                              \
  (i ^ h) % kLanes, ((i + 1) ^ h) % kLanes, ((i + 2) ^ h) % kLanes, \
      ((i + 3) ^ h) % kLanes
#if defined(__AVX512F__)
  return __builtin_shufflevector(x, x, TF_GC_LANES(0), TF_GC_LANES(4),
                                 TF_GC_LANES(8), TF_GC_LANES(12));
#elif defined(__AVX2__)
  return __builtin_shufflevector(x, x, TF_GC_LANES(0), TF_GC_LANES(4));
#else
  return __builtin_shufflevector(x, x, TF_GC_LANES(0));
#endif
#undef TF_GC_LANES
}

// The level h within a vector: b - a is b + (-a), exactly.
template <int h>
TF_GC_ALWAYS_INLINE Floats LaneLevel(Floats x) {
  Floats sign;
  for (int i = 0; i < kLanes; ++i) sign[i] = i & h ? -1.0f : 1.0f;
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(sign),
      reinterpret_cast<__m512>(SwapLanes<h>(x))));
#elif defined(__FMA__)
  return reinterpret_cast<Floats>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(x), reinterpret_cast<__m256>(sign),
      reinterpret_cast<__m256>(SwapLanes<h>(x))));
#else
  return x * sign + SwapLanes<h>(x);
#endif
}

// The levels h < size within a vector.
TF_GC_ALWAYS_INLINE Floats LaneLevels(Floats x, int64_t size) {
  if (size > 1) x = LaneLevel<1>(x);
  if (size > 2) x = LaneLevel<2>(x);
  if (kLanes > 4 && size > 4) x = LaneLevel<4>(x);
  if (kLanes > 8 && size > 8) x = LaneLevel<8>(x);
  return x;
}

// Changes the sign of lane i if bit i is 1.
TF_GC_ALWAYS_INLINE Floats Flip(Floats x, uint32_t bits) {
  constexpr int32_t kSignBit = INT32_MIN;
#if defined(__AVX512F__)
  const __m512i integers = reinterpret_cast<__m512i>(x);
  return reinterpret_cast<Floats>(
      _mm512_mask_xor_epi32(integers, static_cast<__mmask16>(bits), integers,
                            _mm512_set1_epi32(kSignBit)));
#else
  Ints own_bit;
  for (int i = 0; i < kLanes; ++i) own_bit[i] = 1 << i;
  const Ints is_chosen =
      ((Ints{} + static_cast<int32_t>(bits)) & own_bit) == own_bit;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) ^
                                  (is_chosen & kSignBit));
#endif
}

// Hides an address's origin from GCC, which would compute all addresses of a
// loop before it and lacks the registers to keep them.
template <typename Value>
TF_GC_ALWAYS_INLINE Value* Hide(Value* address) {
  asm("" : "+r"(address));
  return address;
}

// ---- Several vectors --------------------------------------------------------

// Vectors that are kept in registers: in an array GCC 12 would leave them in
// memory. The functions do the same to each; the k-th has to do with
// what lies `k * stride` behind a place.
template <int kCount>
struct Vectors {
  Vectors<kCount / 2> low;
  Vectors<kCount / 2> high;

  // The place of `high`. (Two vectors have few addresses, and those that are a
  // constant apart have one.)
  template <typename Value>
  static TF_GC_ALWAYS_INLINE Value* Middle(Value* place, int64_t stride) {
    place += kCount / 2 * stride;
    return kCount == 2 || __builtin_constant_p(stride) ? place : Hide(place);
  }

  static TF_GC_ALWAYS_INLINE Vectors Load(const float* from, int64_t stride) {
    return {Vectors<kCount / 2>::Load(from, stride),
            Vectors<kCount / 2>::Load(Middle(from, stride), stride)};
  }

  TF_GC_ALWAYS_INLINE void Store(float* to, int64_t stride) const {
    low.Store(to, stride);
    high.Store(Middle(to, stride), stride);
  }

  TF_GC_ALWAYS_INLINE void Flip(const uint32_t* signs, int64_t bit,
                                int64_t stride) {
    low.Flip(signs, bit, stride);
    high.Flip(signs, bit + kCount / 2 * stride, stride);
  }

  TF_GC_ALWAYS_INLINE void Multiply(Floats factor) {
    low.Multiply(factor);
    high.Multiply(factor);
  }

  TF_GC_ALWAYS_INLINE void LaneLevels(int64_t size) {
    low.LaneLevels(size);
    high.LaneLevels(size);
  }

  // (a, b) <- (a + b, a - b)
  static TF_GC_ALWAYS_INLINE void Combine(Vectors& a, Vectors& b) {
    Vectors<kCount / 2>::Combine(a.low, b.low);
    Vectors<kCount / 2>::Combine(a.high, b.high);
  }

  // The levels between `count` vectors.
  TF_GC_ALWAYS_INLINE void Levels(int64_t count = kCount) {
    low.Levels(count);
    high.Levels(count);
    if (count >= kCount) Vectors<kCount / 2>::Combine(low, high);
  }
};

template <>
struct Vectors<1> {
  Floats vector;

  static TF_GC_ALWAYS_INLINE Vectors Load(const float* from, int64_t) {
    return {TF_GC_INSTRUCTION_SET::Load<Floats>(from)};
  }
  TF_GC_ALWAYS_INLINE void Store(float* to, int64_t) const {
    TF_GC_INSTRUCTION_SET::Store(vector, to);
  }
  TF_GC_ALWAYS_INLINE void Flip(const uint32_t* signs, int64_t bit, int64_t) {
    vector = TF_GC_INSTRUCTION_SET::Flip(vector, signs[bit / 32] >> (bit % 32));
  }
  TF_GC_ALWAYS_INLINE void Multiply(Floats factor) { vector *= factor; }
  TF_GC_ALWAYS_INLINE void LaneLevels(int64_t size) {
    vector = TF_GC_INSTRUCTION_SET::LaneLevels(vector, size);
  }
  static TF_GC_ALWAYS_INLINE void Combine(Vectors& a, Vectors& b) {
    const Floats sum = a.vector + b.vector;
    b.vector = Subtract(a.vector, b.vector);
    a.vector = sum;
  }
  TF_GC_ALWAYS_INLINE void Levels(int64_t) {}
};

// ---- Passes -----------------------------------------------------------------

// What follows a pass: nothing, or, if it was the last one, the scale and
// perhaps D. Types, so that no pass's loop depends on it.
struct NoFinish {
  template <int kCount>
  TF_GC_ALWAYS_INLINE void Apply(int64_t, int64_t, Vectors<kCount>*) const {}
};

struct Scale {
  Floats scale;

  template <int kCount>
  TF_GC_ALWAYS_INLINE void Apply(int64_t, int64_t, Vectors<kCount>* x) const {
    x->Multiply(scale);
  }
};

struct ScaleAndFlip {
  Floats scale;
  const uint32_t* signs;

  // The first vector's signs begin at `bit`, the others' each `stride` further.
  template <int kCount>
  TF_GC_ALWAYS_INLINE void Apply(int64_t bit, int64_t stride,
                                 Vectors<kCount>* x) const {
    x->Multiply(scale);
    x->Flip(signs, bit, stride);
  }
};

// Calls pass(finish). `signs` may be null.
template <typename Pass>
void WithFinish(bool is_last, float scale, const uint32_t* signs,
                const Pass& pass) {
  if (!is_last) {
    pass(NoFinish());
  } else if (signs == nullptr) {
    pass(Scale{Floats{} + scale});
  } else {
    pass(ScaleAndFlip{Floats{} + scale, signs});
  }
}

// The levels h < size <= kGroupValues of a group.
template <typename Finish>
TF_GC_ALWAYS_INLINE void Group(const float* from, int64_t size,
                               const uint32_t* first_signs, int64_t bit,
                               const Finish& finish, float* to) {
  auto x = Vectors<kRegisters>::Load(from, kLanes);
  if (first_signs != nullptr) x.Flip(first_signs, bit, kLanes);
  x.LaneLevels(size);
  x.Levels(size / kLanes);
  finish.Apply(bit, kLanes, &x);
  x.Store(to, kLanes);
}

// The levels h < size <= kGroupValues of n values.
template <typename Finish>
TF_GC_ALWAYS_INLINE void Groups(const float* from, int64_t n, int64_t size,
                                const uint32_t* first_signs,
                                const Finish& finish, float* to) {
  int64_t i = 0;
  for (; i + kGroupValues <= n; i += kGroupValues) {
    Group(from + i, size, first_signs, i, finish, to + i);
  }
  if (i < n) {
    const int64_t bytes = (n - i) * static_cast<int64_t>(sizeof(float));
    float rest[kGroupValues] = {};
    __builtin_memcpy(rest, from + i, bytes);
    Group(rest, size, first_signs, i, finish, rest);
    __builtin_memcpy(to + i, rest, bytes);
  }
}

// The levels between `kRows` rows that are `stride` apart, for `columns` of
// their values. The rows' signs are `sign_stride` bits apart.
template <int kRows, typename Finish>
void ColumnsOf(float* at, int64_t stride, int64_t columns, Finish finish,
               int64_t bit, int64_t sign_stride) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    auto x = Vectors<kRows>::Load(Hide(at + i), stride);
    x.Levels();
    finish.Apply(bit + i, sign_stride, &x);
    x.Store(Hide(at + i), stride);
  }
}

// The same for 2 ... kRows rows.
template <int kRows = kRegisters, typename Finish>
void Columns(int64_t rows, float* at, int64_t stride, int64_t columns,
             const Finish& finish, int64_t bit, int64_t sign_stride) {
  if (rows == kRows) {
    ColumnsOf<kRows>(at, stride, columns, finish, bit, sign_stride);
  } else if constexpr (kRows > 2) {
    Columns<kRows / 2>(rows, at, stride, columns, finish, bit, sign_stride);
  }
}

// How many rows of `size` values, groups or more, are joined at once.
inline constexpr int64_t Radix(int64_t size) {
  return size * kRegisters <= kFirstLevelValues ? kRegisters : kHadamardRadix;
}

// The levels kGroupValues <= h < size of `size` values.
template <typename Finish>
void JoinGroups(float* at, int64_t size, const Finish& finish, int64_t bit) {
  int64_t part = kGroupValues;
  while (part * Radix(part) < size) part *= Radix(part);
  if (part > kGroupValues) {
    for (int64_t i = 0; i < size; i += part) {
      JoinGroups(at + i, part, NoFinish(), 0);
    }
  }
  Columns(size / part, at, part, part, finish, bit, part);
}

// ---- Chunks, blocks and columns ---------------------------------------------

// The bits of D for n <= kHadamardChunk values, from a position on that is a
// multiple of 128. Writes whole turns of Philox.
void FillSigns(Seed seed, int64_t first, int64_t n, uint32_t* signs) {
  const Philox philox(seed);
  for (int64_t i = 0; i < n; i += 32 * Philox::kWords) {
    UnsignedInts words[2];
    philox.Generate((first + i) / 128, words);
    __builtin_memcpy(signs + i / 32, words, sizeof(words));
  }
}

// The levels h < size of n <= kHadamardChunk values. The first pass is over all
// of them, because the processor reads ahead in long runs only.
void Chunk(const HadamardTask& task, const float* values, int64_t first,
           int64_t n, int64_t size, bool is_whole_row, float* transformed) {
  uint32_t signs[kHadamardChunk / 32];
  const bool flips_first = task.signs == HadamardSigns::kFirst;
  const bool flips_last = is_whole_row && task.signs == HadamardSigns::kLast;
  if (flips_first || flips_last) {
    FillSigns(task.seed, task.place + first, n, signs);
  }
  const uint32_t* const first_signs = flips_first ? signs : nullptr;
  const uint32_t* const last_signs = flips_last ? signs : nullptr;
  const float* const from = values + first;
  float* const to = transformed + first;
  WithFinish(is_whole_row, task.scale, last_signs, [&](const auto& finish) {
    if (size <= kGroupValues) {
      Groups(from, n, size, first_signs, finish, to);
      return;
    }
    // Two copies of the loop: one that may flip is slower even if it does not.
    if (flips_first) {
      Groups(from, n, kGroupValues, signs, NoFinish(), to);
    } else {
      Groups(from, n, kGroupValues, nullptr, NoFinish(), to);
    }
    for (int64_t i = 0; i < n; i += size) JoinGroups(to + i, size, finish, i);
  });
}

// The last levels of `radix` blocks of `size` values, from `first` on: of the
// values `begin` ... `end` - 1 of each.
void JoinBlocks(const HadamardTask& task, int64_t first, int64_t radix,
                int64_t size, int64_t begin, int64_t end, bool is_whole_row,
                float* transformed) {
  uint32_t signs[kHadamardRadix * kHadamardTile / 32];
  const bool flips = is_whole_row && task.signs == HadamardSigns::kLast;
  WithFinish(
      is_whole_row, task.scale, flips ? signs : nullptr,
      [&](const auto& finish) {
        for (int64_t tile = begin; tile < end; tile += kHadamardTile) {
          if (flips) {
            for (int64_t block = 0; block < radix; ++block) {
              FillSigns(task.seed, task.place + first + block * size + tile,
                        kHadamardTile, signs + block * kHadamardTile / 32);
            }
          }
          Columns<kHadamardRadix>(radix, transformed + first + tile, size,
                                  kHadamardTile, finish, 0, kHadamardTile);
        }
      });
}

// The levels h < size of one block, each part of it while it is in a cache.
void Block(const HadamardTask& task, const float* values, int64_t first,
           int64_t size, bool is_whole_row, float* transformed) {
  if (size <= kHadamardChunk) {
    Chunk(task, values, first, size, size, is_whole_row, transformed);
    return;
  }
  const int64_t radix = Min(size / kHadamardChunk, kHadamardRadix);
  const int64_t part = size / radix;
  for (int64_t i = 0; i < radix; ++i) {
    Block(task, values, first + i * part, part, /*is_whole_row=*/false,
          transformed);
  }
  JoinBlocks(task, first, radix, part, 0, part, is_whole_row, transformed);
}

void Blocks(const HadamardTask& task, const float* values, int64_t begin,
            int64_t end, int64_t size, bool is_whole_row, float* transformed) {
  if (size < kHadamardChunk) {
    for (int64_t i = begin; i < end; i += kHadamardChunk) {
      Chunk(task, values, i, Min(kHadamardChunk, end - i), size, is_whole_row,
            transformed);
    }
    return;
  }
  for (int64_t i = begin; i < end; i += size) {
    Block(task, values, i, size, is_whole_row, transformed);
  }
}

void JoinColumns(const HadamardTask& task, int64_t first, int64_t size,
                 int64_t begin, int64_t end, float* transformed) {
  JoinBlocks(task, first, kHadamardRadix, size, begin, end,
             /*is_whole_row=*/true, transformed);
}

#undef TF_GC_ALWAYS_INLINE

}  // namespace

const HadamardTable kHadamardTable = {Blocks, JoinColumns};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
