#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

#define TF_GC_ALWAYS_INLINE inline __attribute__((always_inline))

// How many registers are transformed at once. More would be spilt, and rows of
// more than eight do not fit in a set of the first-level cache, which is where
// strides of a power of two put them.
inline constexpr int kRegisters = 8;
inline constexpr int64_t kGroupValues = kRegisters * kLanes;

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

// ---- Several vectors --------------------------------------------------------

// Vectors that are kept in registers: in an array GCC 12 would leave them in
// memory. The functions do the same to each; the k-th has to do with
// what lies `k * stride` behind a place.
template <int kCount>
struct Vectors {
  Vectors<kCount / 2> low;
  Vectors<kCount / 2> high;

  static TF_GC_ALWAYS_INLINE Vectors Load(const float* from, int64_t stride) {
    return {Vectors<kCount / 2>::Load(from, stride),
            Vectors<kCount / 2>::Load(from + kCount / 2 * stride, stride)};
  }

  TF_GC_ALWAYS_INLINE void Store(float* to, int64_t stride) const {
    low.Store(to, stride);
    high.Store(to + kCount / 2 * stride, stride);
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

// What follows the last level, if anything does.
struct Finish {
  bool is_last = false;
  Floats scale = {};
  // A bit for each value, or null. The rows' bits are `sign_stride` apart.
  const uint32_t* signs = nullptr;
  int64_t sign_stride = 0;

  template <int kCount>
  TF_GC_ALWAYS_INLINE void Apply(int64_t bit, int64_t stride,
                                 Vectors<kCount>* x) const {
    if (is_last) x->Multiply(scale);
    if (signs != nullptr) x->Flip(signs, bit, stride);
  }
};

// The levels h < size <= kGroupValues of a group.
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
// their values.
template <int kRows>
void ColumnsOf(const float* from, int64_t stride, int64_t columns,
               Finish finish, float* to) {
  for (int64_t i = 0; i < columns; i += kLanes) {
    auto x = Vectors<kRows>::Load(from + i, stride);
    x.Levels();
    finish.Apply(i, finish.sign_stride, &x);
    x.Store(to + i, stride);
  }
}

// The same for 2 ... kRows rows.
template <int kRows = kRegisters>
void Columns(int64_t rows, const float* from, int64_t stride, int64_t columns,
             const Finish& finish, float* to) {
  if (rows == kRows) {
    ColumnsOf<kRows>(from, stride, columns, finish, to);
  } else if constexpr (kRows > 2) {
    Columns<kRows / 2>(rows, from, stride, columns, finish, to);
  }
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

// A group's values, into the second-level cache. They need not exist.
TF_GC_ALWAYS_INLINE void Prefetch(const float* group) {
  constexpr int kCacheLine = 64 / sizeof(float);
  for (int64_t i = 0; i < kGroupValues; i += kCacheLine) {
    __builtin_prefetch(group + i, /*rw=*/0, /*locality=*/2);
  }
}

// The levels h < size of n <= kHadamardChunk values, all within the first-level
// cache.
void Chunk(const HadamardTask& task, const float* values, int64_t first,
           int64_t n, int64_t size, bool is_whole_row, float* transformed) {
  uint32_t signs[kHadamardChunk / 32];
  const bool flips_last = is_whole_row && task.signs == HadamardSigns::kLast;
  const bool flips_first = task.signs == HadamardSigns::kFirst;
  if (flips_first || flips_last) FillSigns(task.seed, first, n, signs);
  const uint32_t* const first_signs = flips_first ? signs : nullptr;
  Finish finish = {is_whole_row, Floats{} + task.scale,
                   flips_last ? signs : nullptr, 0};
  const float* from = values + first;
  float* const to = transformed + first;
  if (size <= kGroupValues) {
    Groups(from, n, size, first_signs, finish, to);
    return;
  }
  alignas(kVectorBytes) float scratch[kHadamardChunk];
  for (int64_t i = 0; i < n; i += kGroupValues) {
    if (n == kHadamardChunk) {
      // Of many, perhaps. The last pass below writes faster than memory takes,
      // and the processor does not know where the next chunk begins.
      Prefetch(from + n + i);
      Prefetch(to + i);
    }
    Group(from + i, kGroupValues, first_signs, i, Finish(), scratch + i);
  }
  int64_t stride = kGroupValues;
  for (; stride * kRegisters < size; stride *= kRegisters) {
    for (int64_t i = 0; i < n; i += kRegisters * stride) {
      Columns(kRegisters, scratch + i, stride, stride, Finish(), scratch + i);
    }
  }
  finish.sign_stride = stride;
  for (int64_t i = 0; i < n; i += size) {
    Columns(size / stride, scratch + i, stride, stride, finish, to + i);
    if (flips_last) finish.signs += size / 32;
  }
}

// The last levels of `radix` blocks of `size` values, from `first` on: of the
// values `begin` ... `end` - 1 of each.
void JoinBlocks(const HadamardTask& task, int64_t first, int64_t radix,
                int64_t size, int64_t begin, int64_t end, bool is_whole_row,
                float* transformed) {
  uint32_t signs[kHadamardRadix * kHadamardTile / 32];
  const bool flips = is_whole_row && task.signs == HadamardSigns::kLast;
  const Finish finish = {is_whole_row, Floats{} + task.scale,
                         flips ? signs : nullptr, kHadamardTile};
  for (int64_t tile = begin; tile < end; tile += kHadamardTile) {
    if (flips) {
      for (int64_t block = 0; block < radix; ++block) {
        FillSigns(task.seed, first + block * size + tile, kHadamardTile,
                  signs + block * kHadamardTile / 32);
      }
    }
    float* const at = transformed + first + tile;
    Columns<kHadamardRadix>(radix, at, size, kHadamardTile, finish, at);
  }
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
