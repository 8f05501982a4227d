#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/quartic-inl.h"
#include "ops/kernels/simd-inl.h"
#include "ops/kernels/zero_run-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

inline Floats Broadcast(float value) { return value - Floats{}; }

inline constexpr int32_t kMagnitudeBits = 0x7fffffff;
inline constexpr int32_t kSignBit = ~kMagnitudeBits;

// values + residual, of which there may be none.
template <bool kHasResidual>
inline Floats LoadSum(const float* values, const float* residual) {
  const Floats sum = Load<Floats>(values);
  if constexpr (kHasResidual) return sum + Load<Floats>(residual);
  return sum;
}

// ---- Scale and residual -----------------------------------------------------

// As integers, the bits of |x| are ordered as |x| is, and NaN comes last.
template <bool kHasResidual>
inline Ints MaxMagnitude(Ints largest, const float* values,
                         const float* residual) {
  const Floats sum = LoadSum<kHasResidual>(values, residual);
  const Ints magnitude = reinterpret_cast<Ints>(sum) & kMagnitudeBits;
  return magnitude > largest ? magnitude : largest;
}

template <bool kHasResidual>
float MaxAbsSumOf(const float* values, const float* residual, int64_t n) {
  constexpr int kTurn = kGroup / sizeof(float);
  // The processor's own prefetching stops at each page; this doubles the rate.
  constexpr int64_t kAhead = 1024;
  Ints largest = {};
  int64_t i = 0;
  for (; i + kTurn <= n; i += kTurn) {
    __builtin_prefetch(values + i + kAhead);
    if (kHasResidual) __builtin_prefetch(residual + i + kAhead);
    for (int k = 0; k < kTurn; k += kLanes) {
      largest =
          MaxMagnitude<kHasResidual>(largest, values + i + k, residual + i + k);
    }
  }
  if (i < n) {
    float rest[2][kTurn] = {};
    __builtin_memcpy(rest[0], values + i, (n - i) * sizeof(float));
    if (kHasResidual) {
      __builtin_memcpy(rest[1], residual + i, (n - i) * sizeof(float));
    }
    for (int k = 0; k < kTurn; k += kLanes) {
      largest = MaxMagnitude<kHasResidual>(largest, rest[0] + k, rest[1] + k);
    }
  }
  int32_t bits = 0;
  for (int k = 0; k < kLanes; ++k) bits = largest[k] > bits ? largest[k] : bits;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

float MaxAbsSum(const float* values, const float* residual, int64_t n) {
  return residual ? MaxAbsSumOf<true>(values, residual, n)
                  : MaxAbsSumOf<false>(values, nullptr, n);
}

void AddResidual(const float* values, const float* residual, int64_t n,
                 float* sum) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(LoadSum<true>(values + i, residual + i), sum + i);
  }
  for (; i < n; ++i) sum[i] = values[i] + residual[i];
}

// ---- Encoding ---------------------------------------------------------------

// Quantises one vector and appends its digits to `quartic`.
template <bool kHasResidual>
inline void AppendDigitVector(const float* values, const float* residual,
                              Floats scale, float* new_residual,
                              uint8_t* quartic) {
  const Floats t = LoadSum<kHasResidual>(values, residual);
  const Ints bits = reinterpret_cast<Ints>(t);
  const Floats magnitude = reinterpret_cast<Floats>(bits & kMagnitudeBits);
  const Ints is_large = magnitude + magnitude > scale;
  const Ints delivered =
      ((bits & kSignBit) | reinterpret_cast<Ints>(scale)) & is_large;
  Store(t - reinterpret_cast<Floats>(delivered), new_residual);
  const Ints q = ((bits >> 31) | 1) & is_large;
  const Bytes before = Load<Bytes>(quartic);
  const Bytes digit = __builtin_convertvector(q, Bytes) + int8_t{1};
  Store(static_cast<Bytes>(before + before + before + digit), quartic);
}

// Quantises n values and appends their digits to `quartic`.
template <bool kHasResidual>
void AppendDigits(const float* values, const float* residual, float scale,
                  int64_t n, float* new_residual, uint8_t* quartic) {
  const Floats scales = Broadcast(scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    AppendDigitVector<kHasResidual>(values + i, residual + i, scales,
                                    new_residual + i, quartic + i);
  }
  if (i < n) {
    const int64_t count = n - i;
    float rest[2][kLanes] = {};
    uint8_t rest_quartic[kLanes] = {};
    __builtin_memcpy(rest[0], values + i, count * sizeof(float));
    if (kHasResidual) {
      __builtin_memcpy(rest[1], residual + i, count * sizeof(float));
    }
    __builtin_memcpy(rest_quartic, quartic + i, count);
    AppendDigitVector<kHasResidual>(rest[0], rest[1], scales, rest[0],
                                    rest_quartic);
    __builtin_memcpy(new_residual + i, rest[0], count * sizeof(float));
    __builtin_memcpy(quartic + i, rest_quartic, count);
  }
}

void TernaryQuantize(const float* values, const float* residual, float scale,
                     int64_t n, int8_t* ternary, float* new_residual) {
  uint8_t digits[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = Min(kBlock, n - begin);
    __builtin_memset(digits, 0, count);
    if (residual) {
      AppendDigits<true>(values + begin, residual + begin, scale, count,
                         new_residual + begin, digits);
    } else {
      AppendDigits<false>(values + begin, nullptr, scale, count,
                          new_residual + begin, digits);
    }
    for (int64_t i = 0; i < count; ++i) {
      ternary[begin + i] = static_cast<int8_t>(digits[i] - 1);
    }
  }
}

template <bool kHasResidual>
int64_t EncodeOf(const float* values, const float* residual, float scale,
                 int64_t n, int64_t partition, float* new_residual,
                 uint8_t* payload) {
  // EncodeGroup reads up to 128 bytes from the last group on.
  uint8_t quartic[kBlock + kGroup];
  __builtin_memset(quartic + kBlock, 0, kGroup);
  int64_t pending = 0;
  uint8_t* out = payload;
  for (int64_t begin = 0; begin < partition; begin += kBlock) {
    const int64_t size = Min(kBlock, partition - begin);
    __builtin_memset(quartic, 0, kBlock);
    for (int j = 0; j < 5; ++j) {
      const int64_t first = j * partition + begin;
      const int64_t count = Max(Min(size, n - first), 0);
      AppendDigits<kHasResidual>(values + first,
                                 kHasResidual ? residual + first : nullptr,
                                 scale, count, new_residual + first, quartic);
      // The digit of padding is 0.
      for (int64_t i = count; i < size; ++i) quartic[i] *= 3;
    }
    for (int64_t i = 0; i < size; i += kGroup) {
      out = EncodeGroup(quartic + i, Min(kGroup, size - i), &pending, out);
    }
  }
  if (pending > 0) out = AppendRun(pending, out);
  return out - payload;
}

int64_t Encode(const float* values, const float* residual, float scale,
               int64_t n, int64_t partition, float* new_residual,
               uint8_t* payload) {
  return residual ? EncodeOf<true>(values, residual, scale, n, partition,
                                   new_residual, payload)
                  : EncodeOf<false>(values, nullptr, scale, n, partition,
                                    new_residual, payload);
}

// ---- Decoding ---------------------------------------------------------------

struct Validator {
  void operator()(const uint8_t*, int, int64_t, int64_t) const {}
};

// Partition j's values q of a vector of quartic bytes, as fractions: q is the
// sign where IsNonZero, else 0.
//
// In balanced ternary, a byte less 121 is 81 q0 + 27 q1 + 9 q2 + 3 q3 + q4.
// Times 3^j / 243, and less whole numbers, that is q_j / 3 and something
// smaller than 1/6. The point stands before the 32 bits, so that whole numbers
// drop out.
inline Ints DigitFractions(const uint8_t* quartic, int j) {
  constexpr uint32_t kFactors[] = {17674762, 53024286, 159072858, 477218574,
                                   1431655722};
  const Bytes balanced = Load<Bytes>(quartic) - static_cast<int8_t>(kZeroByte);
  const Ints wide = __builtin_convertvector(balanced, Ints);
  return reinterpret_cast<Ints>(reinterpret_cast<UnsignedInts>(wide) *
                                kFactors[j]);
}

inline Ints IsNonZero(Ints fractions) {
  constexpr int32_t kSixth = 715827882;  // 2^32 / 6
  return (fractions ^ (fractions >> 31)) > kSixth;
}

// values[i] = scale * q[i].
struct Assigner {
  static inline void Apply(Ints fractions, Floats scale, float* values) {
    const Ints q = ((fractions >> 31) | 1) & IsNonZero(fractions);
    Store(scale * __builtin_convertvector(q, Floats), values);
  }
};

// values[i] += scale * q[i] where q[i] is not 0.
struct Adder {
  static inline void Apply(Ints fractions, Floats scale, float* values) {
    const Floats old = Load<Floats>(values);
    const Ints delta = reinterpret_cast<Ints>(scale) ^ (fractions & kSignBit);
    Store(IsNonZero(fractions) ? old + reinterpret_cast<Floats>(delta) : old,
          values);
  }
};
// True if the values from n on, which pad the last partitions, have the digit
// 0 in this block of quartic bytes.
inline bool PaddingIsZero(const uint8_t* quartic, int64_t begin, int64_t size,
                          int64_t n, int64_t partition) {
  for (int64_t padding = n; padding < 5 * partition; ++padding) {
    const int j = static_cast<int>(padding / partition);
    const int64_t i = padding - j * partition - begin;
    if (i >= 0 && i < size && Digit(quartic[i], DigitFactor(j)) != 0) {
      return false;
    }
  }
  return true;
}

// Applies the sink to partition j's values of n quartic bytes.
template <typename Sink>
void DecodePartition(const uint8_t* quartic, int j, Floats scale, int64_t n,
                     float* values) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Sink::Apply(DigitFractions(quartic + i, j), scale, values + i);
  }
  if (i < n) {
    const int64_t bytes = (n - i) * static_cast<int64_t>(sizeof(float));
    float rest[kLanes] = {};
    __builtin_memcpy(rest, values + i, bytes);
    Sink::Apply(DigitFractions(quartic + i, j), scale, rest);
    __builtin_memcpy(values + i, rest, bytes);
  }
}

struct Nothing {};

template <typename Sink>
int64_t DecodeInto(const uint8_t* payload, int64_t size, float scale, int64_t n,
                   int64_t partition, float* values) {
  // A vector that begins inside the block may end behind it.
  uint8_t quartic[kBlock + kVectorBytes];
  ZeroRunReader reader = {payload, payload + size, 0};
  for (int64_t begin = 0; begin < partition; begin += kBlock) {
    const int64_t count = Min(kBlock, partition - begin);
    if (!ReadBlock(&reader, count, quartic) ||
        !PaddingIsZero(quartic, begin, count, n, partition)) {
      return -1;
    }
    if constexpr (!__is_same(Sink, Nothing)) {
      for (int j = 0; j < 5; ++j) {
        const int64_t first = j * partition + begin;
        DecodePartition<Sink>(quartic, j, Broadcast(scale),
                              Min(count, n - first), values + first);
      }
    }
  }
  return reader.pending == 0 ? reader.next - payload : -1;
}

int64_t Decode(const uint8_t* payload, int64_t size, float scale, int64_t n,
               int64_t partition, float* values) {
  return DecodeInto<Assigner>(payload, size, scale, n, partition, values);
}

int64_t DecodeAdd(const uint8_t* payload, int64_t size, float scale, int64_t n,
                  int64_t partition, float* sum) {
  return DecodeInto<Adder>(payload, size, scale, n, partition, sum);
}

int64_t Validate(const uint8_t* payload, int64_t size, int64_t n,
                 int64_t partition) {
  return DecodeInto<Nothing>(payload, size, 0, n, partition, nullptr);
}

}  // namespace

const ThreeLcTable kThreeLcTable = {MaxAbsSum, AddResidual, TernaryQuantize,
                                    Encode,    Decode,      DecodeAdd,
                                    Validate};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
