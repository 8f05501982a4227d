#include <cstdint>

#include "ops/kernels/bit_packing-inl.h"
#include "ops/kernels/kernel_table.h"
#include "ops/kernels/lookup-inl.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

// Up to 2^kBits levels, arranged for a search of kBits steps.
template <int kBits>
class Levels {
 public:
  Levels(const float* levels, int num_levels)
      : lowest_(Floats{} + levels[0]),
        highest_(Floats{} + levels[num_levels - 1]) {
    // What is behind the last cut is never reached.
    for (int k = 1; k < kSize; ++k) nodes_[k] = __builtin_inff();
    for (int step = 0; step < kBits; ++step) {
      for (int k = 0; k < 1 << step; ++k) {
        const int level = (2 * k + 1) << (kBits - 1 - step);
        if (level < num_levels - 1) nodes_[(1 << step) + k] = levels[level];
      }
    }
    for (int z = 0; z + 1 < num_levels; ++z) {
      low_[z] = levels[z];
      gap_[z] = levels[z + 1] - levels[z];
    }
  }

  // The indices of kLanes values.
  inline Ints Quantize(Floats v, Floats uniforms) const {
    v = v > lowest_ ? v : lowest_;
    v = v < highest_ ? v : highest_;
    const Ints z = Descend<0>(v, Ints{});
    const Floats distance = v - Lookup<kSize>(low_, z);
    return z - (distance > uniforms * Lookup<kSize>(gap_, z));
  }

 private:
  static constexpr int kSize = 1 << kBits;

  // z's highest `kStep` bits are known; the next one is 1 if v is not below the
  // level at the middle of what is left.
  template <int kStep>
  inline Ints Descend(Floats v, Ints z) const {
    if constexpr (kStep == kBits) {
      return z;
    } else {
      const Floats middle = Lookup<1 << kStep>(nodes_ + (1 << kStep), z);
      return Descend<kStep + 1>(v, z + z - (middle <= v));
    }
  }

  Floats lowest_;
  Floats highest_;
  // The levels 1 ... num_levels - 2 as a tree: those of a step lie side by
  // side, from 2^step on.
  float nodes_[kSize + kLanes] = {};
  float low_[kSize + kLanes] = {};
  float gap_[kSize + kLanes] = {};
};

// Where r comes from: Fill writes those of kVectorBytes values, the first of
// which is at the place `first`, a multiple of 8, of the stream.
class Random {
 public:
  explicit Random(Seed seed) : philox_(seed) {}

  inline void Fill(uint64_t first, Floats (&uniforms)[4]) const {
    UnsignedInts words[2];
    philox_.Generate(first / 8, words);
    uint16_t halves[kVectorBytes];
    __builtin_memcpy(halves, words, sizeof(halves));
    for (int k = 0; k < 4; ++k) uniforms[k] = Fractions(halves + k * kLanes);
  }

 private:
  Philox philox_;
};

struct Half {
  inline void Fill(uint64_t, Floats (&uniforms)[4]) const {
    for (Floats& lanes : uniforms) lanes = Floats{} + 0.5f;
  }
};

// Quantises values in turns of kVectorBytes.
template <int kBits, typename Uniform>
class Quantizer {
 public:
  Quantizer(const float* levels, int num_levels, const Uniform& uniform)
      : levels_(levels, num_levels), uniform_(uniform) {}

  // Of values / divisor. `first` is the place of values[0] in the stream.
  inline Bytes Quantize(const float* values, float divisor,
                        uint64_t first) const {
    Floats uniforms[4];
    uniform_.Fill(first, uniforms);
    Ints indices[4];
    for (int k = 0; k < 4; ++k) {
      const Floats v = Load<Floats>(values + k * kLanes) / divisor;
      indices[k] = levels_.Quantize(v, uniforms[k]);
    }
    if constexpr (kBits < 8) return Narrow(indices);
    for (Ints& lanes : indices) lanes -= 128;
    return Narrow(indices) + 128;
  }

  // The same of n < kVectorBytes values.
  Bytes QuantizeRest(const float* values, float divisor, int64_t n,
                     uint64_t first) const {
    float rest[kVectorBytes] = {};
    __builtin_memcpy(rest, values, n * sizeof(float));
    return Quantize(rest, divisor, first);
  }

 private:
  Levels<kBits> levels_;
  Uniform uniform_;
};

template <int kBits>
void QuantizeOf(const float* values, int64_t n, const float* levels,
                int num_levels, Seed seed, int64_t first, uint8_t* indices) {
  const Quantizer<kBits, Random> quantizer(levels, num_levels, Random(seed));
  int64_t i = 0;
  for (; i + kVectorBytes <= n; i += kVectorBytes) {
    Store(quantizer.Quantize(values + i, 1, first + i), indices + i);
  }
  if (i < n) {
    const Bytes rest = quantizer.QuantizeRest(values + i, 1, n - i, first + i);
    __builtin_memcpy(indices + i, &rest, n - i);
  }
}

template <int kBits, typename Uniform>
void QuantizePackOf(const float* values, float divisor, int64_t n,
                    const float* levels, int num_levels, const Uniform& uniform,
                    int64_t first, uint8_t* packed) {
  const Quantizer<kBits, Uniform> quantizer(levels, num_levels, uniform);
  int64_t i = 0;
  for (; i + kVectorBytes <= n; i += kVectorBytes) {
    PackVector<kBits>(quantizer.Quantize(values + i, divisor, first + i),
                      packed);
    packed += kPackedBytes<kBits>;
  }
  if (i < n) {
    PackRest<kBits>(
        quantizer.QuantizeRest(values + i, divisor, n - i, first + i), n - i,
        packed);
  }
}

void Quantize(const float* values, int64_t n, const float* levels,
              int num_levels, Seed seed, int64_t first, uint8_t* indices) {
  const auto quantize = num_levels <= 4    ? QuantizeOf<2>
                        : num_levels <= 8  ? QuantizeOf<3>
                        : num_levels <= 16 ? QuantizeOf<4>
                        : num_levels <= 32 ? QuantizeOf<5>
                                           : QuantizeOf<8>;
  quantize(values, n, levels, num_levels, seed, first, indices);
}

template <typename Uniform>
void QuantizePackBy(const Uniform& uniform, const float* values, float divisor,
                    int64_t n, const float* levels, int num_levels,
                    int64_t first, int bits, uint8_t* packed) {
  WithBits(bits, [&](auto width) {
    QuantizePackOf<decltype(width)::kValue>(values, divisor, n, levels,
                                            num_levels, uniform, first, packed);
  });
}

void QuantizePack(const float* values, float divisor, int64_t n,
                  const float* levels, int num_levels, Seed seed, int64_t first,
                  int bits, uint8_t* packed) {
  QuantizePackBy(Random(seed), values, divisor, n, levels, num_levels, first,
                 bits, packed);
}

void NearestQuantizePack(const float* values, float divisor, int64_t n,
                         const float* levels, int num_levels, int bits,
                         uint8_t* packed) {
  QuantizePackBy(Half(), values, divisor, n, levels, num_levels, /*first=*/0,
                 bits, packed);
}

}  // namespace

const StochasticQuantizeTable kStochasticQuantizeTable = {
    Quantize, QuantizePack, NearestQuantizePack};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
