// What a *_simd.cc file defines: a table of the functions behind a kernel's
// header, once per instruction set, each in a namespace of its own.
//
// The BUILD file compiles every *_simd.cc three times. Those files include
// nothing that defines inline functions outside of their own namespace
// (std::min, QuarticSize): the linker may keep this instruction set's copy for
// everybody, and crash older processors.

#ifndef TF_GC_OPS_KERNELS_KERNEL_TABLE_H_
#define TF_GC_OPS_KERNELS_KERNEL_TABLE_H_

#include <cstdint>

#include "ops/kernels/philox.h"
#include "ops/kernels/units.h"

namespace tf_gc::kernels {

struct BitPackingTable {
  void (*pack)(const uint8_t* indices, int64_t n, int bits, uint8_t* packed);
  void (*unpack)(const uint8_t* packed, int64_t n, int bits, uint8_t* indices);
};

struct ChunkArgmaxTable {
  // Adds `first` to every index.
  void (*chunk_argmax)(const float* values, int64_t n, int64_t chunk,
                       int64_t first, int32_t* indices);
};

// Which values of a Hadamard transform change their signs.
enum class HadamardSigns { kNone, kFirst, kLast };

struct HadamardTask {
  Seed seed;
  HadamardSigns signs;
  float scale;
  int64_t place = 0;  // of the first value in D, a multiple of 128
};

// Values that are transformed within the second-level cache, and that a part of
// short rows has a multiple of.
inline constexpr int64_t kHadamardChunk = 1 << 15;
// How many blocks the columns below are made of.
inline constexpr int64_t kHadamardRadix = 8;
// Parts of the columns begin at multiples of it.
inline constexpr int64_t kHadamardTile = 1024;

struct HadamardTable {
  // The levels h < size of the blocks of `size` values between the positions
  // `begin` and `end`. If they are whole rows, `begin` is a multiple of the
  // chunk, and the scale and the last signs are applied, too.
  void (*blocks)(const HadamardTask& task, const float* values, int64_t begin,
                 int64_t end, int64_t size, bool is_whole_row,
                 float* transformed);
  // The last levels of a row of kHadamardRadix such blocks, from position
  // `first` on, the scale and the last signs, all in place: of the values
  // `begin` ... `end` - 1 of each block.
  void (*columns)(const HadamardTask& task, int64_t first, int64_t size,
                  int64_t begin, int64_t end, float* transformed);
};

struct IndexPackingTable {
  int64_t (*find_not_ascending)(const int32_t* indices, int64_t k, int64_t n);
  // low_bits is the form: -1 for the bitmap.
  void (*pack)(const int32_t* indices, int64_t k, int64_t n, int low_bits,
               uint8_t* packed);
  const char* (*unpack)(const uint8_t* packed, int64_t k, int64_t n,
                        int low_bits, int32_t* indices);
};

struct PhiloxTable {
  void (*fill)(Seed seed, uint64_t first, int64_t blocks, uint32_t* words);
};

// In the tables of quartic and zero-run encoding and of 3LC, `partition` is
// QuarticSize(n), and [begin, end) is the part of the quartic bytes that a
// function is about.
struct QuarticTable {
  // Index of the first of n bytes for which (byte + offset) mod 256 > limit,
  // or -1.
  int64_t (*find_above)(const uint8_t* bytes, int64_t n, uint8_t offset,
                        uint8_t limit);
  void (*encode)(const int8_t* ternary, int64_t n, int64_t partition,
                 int64_t begin, int64_t end, uint8_t* quartic);
  void (*decode)(const uint8_t* quartic, int64_t n, int64_t partition,
                 int64_t begin, int64_t end, int8_t* ternary);
};

// Where the decoding of a zero-run encoding goes on.
struct ZeroRunPosition {
  int64_t offset;   // of the next encoded byte,
  int64_t pending;  // after the zeros of a run that are still to come.
};

// Encoders write at most end - begin bytes, and leave `pending` < 14 zeros at
// the end of their part out. Decoders move `position` from `begin` to `end`, or
// return false.
struct ZeroRunTable {
  int64_t (*encode)(const uint8_t* quartic, int64_t begin, int64_t end,
                    uint8_t* encoded, int64_t* pending);
  int64_t (*decoded_size)(const uint8_t* encoded, int64_t size);
  // Finds the positions of the quartic bytes 0, step, 2 step, ... below m;
  // false if the encoding ends before one.
  bool (*find_positions)(const uint8_t* encoded, int64_t size, int64_t m,
                         int64_t step, ZeroRunPosition* positions);
  bool (*decode)(const uint8_t* encoded, int64_t size, int64_t begin,
                 int64_t end, ZeroRunPosition* position, uint8_t* quartic);
};

using ThreeLcDecodeFunction = bool(const uint8_t* payload, int64_t size,
                                   float scale, const Units& units, int64_t n,
                                   int64_t partition, int64_t begin,
                                   int64_t end, ZeroRunPosition* position,
                                   float* values);

// The values that are added in float32, and in how many parts.
inline constexpr int64_t kMagnitudeBlock = 4096;
inline constexpr int kMagnitudeLanes = 32;

struct ThcKernelTable {
  double (*sum_of_squares)(const float* values, int64_t n);
  void (*divide)(const float* values, int64_t n, float divisor,
                 float* quotients);
  void (*subtract)(const float* values, const float* others, int64_t n,
                   float* differences);
  void (*divide_by_units)(float* values, int64_t n, float row,
                          const float* columns);
  void (*multiply_by_units)(float* values, int64_t n, float row,
                            const float* columns);
  // values = limit * levels[index], of up to 256 levels.
  void (*decode_indices)(const uint8_t* indices, int64_t n, const float* levels,
                         int num_levels, float limit, float* values);
  // values = limit * (sum * step - offset).
  void (*decode_bytes)(const uint8_t* sums, int64_t n, float limit, float step,
                       float offset, float* values);
  void (*decode_words)(const uint16_t* sums, int64_t n, float limit, float step,
                       float offset, float* values);
};

struct ThreeLcTable {
  float (*max_abs_sum)(const float* values, const float* residual, int64_t n,
                       const Units& weights);
  // Of at most kMagnitudeBlock values.
  void (*block_magnitudes)(const float* values, const float* residual,
                           int64_t n, const Units& weights, double* total,
                           float* largest);
  void (*add_residual)(const float* values, const float* residual, int64_t n,
                       float* sum);
  void (*ternary_quantize)(const float* values, const float* residual,
                           float scale, const Units& units, int64_t n,
                           int8_t* ternary, float* new_residual);
  // As those of ZeroRunTable; validate, for which `scale` and `values` count
  // for nothing, writes nothing.
  int64_t (*encode)(const float* values, const float* residual, float scale,
                    const Units& units, int64_t n, int64_t partition,
                    int64_t begin, int64_t end, float* new_residual,
                    uint8_t* payload, int64_t* pending);
  ThreeLcDecodeFunction* decode;
  ThreeLcDecodeFunction* decode_add;
  ThreeLcDecodeFunction* validate;
};

struct SecondMomentTable {
  // Writes the sums of the squares of the rows and columns of a tile of at most
  // 1024 columns, whose rows are `stride` values apart.
  void (*sum_squares)(const float* values, int64_t rows, int64_t columns,
                      int64_t stride, float* row_sums, float* column_sums);
  void (*outer_product)(const float* a, int64_t rows, const float* b,
                        int64_t columns, float* product);
};

struct SignsTable {
  void (*pack)(const float* values, int64_t n, uint8_t* packed);
  void (*unpack)(const uint8_t* packed, int64_t n, float* values);
  // `threshold` is SignMergeThreshold's.
  void (*merge)(const uint8_t* first, const uint8_t* second, int64_t bytes,
                uint32_t threshold, Seed seed, int64_t first_byte,
                uint8_t* merged);
};

struct StochasticQuantizeTable {
  void (*quantize)(const float* values, int64_t n, const float* levels,
                   int num_levels, Seed seed, int64_t first, uint8_t* indices);
  void (*quantize_pack)(const float* values, float divisor, int64_t n,
                        const float* levels, int num_levels, Seed seed,
                        int64_t first, int bits, uint8_t* packed);
  void (*nearest_quantize_pack)(const float* values, float divisor, int64_t n,
                                const float* levels, int num_levels, int bits,
                                uint8_t* packed);
};

struct TableSumTable {
  void (*sum_bytes)(const uint8_t* packed, int64_t n, const uint8_t* table,
                    int bits, uint8_t* accumulator);
  void (*sum_words)(const uint8_t* packed, int64_t n, const uint16_t* table,
                    int bits, uint16_t* accumulator);
};

struct TernaryTable {
  void (*nearest)(const float* values, int64_t n, float scale, int8_t* ternary);
  void (*stochastic)(const float* values, int64_t n, float scale, Seed seed,
                     int64_t first, int8_t* ternary);
};

struct TopKTable {
  // Writes key and index (i + first) of each value whose key, the bits of its
  // magnitude, is above the threshold >= -1, in order, and returns their
  // number. *ties is the number of keys that equal the threshold. Both have
  // room for n + 16; what is behind the results is overwritten.
  int64_t (*collect)(const float* values, int64_t n, int64_t first,
                     int32_t threshold, int32_t* keys, int32_t* indices,
                     int64_t* ties);
};

#define TF_GC_DECLARE_KERNEL_TABLES(instruction_set)             \
  namespace instruction_set {                                    \
  extern const BitPackingTable kBitPackingTable;                 \
  extern const ChunkArgmaxTable kChunkArgmaxTable;               \
  extern const HadamardTable kHadamardTable;                     \
  extern const IndexPackingTable kIndexPackingTable;             \
  extern const PhiloxTable kPhiloxTable;                         \
  extern const QuarticTable kQuarticTable;                       \
  extern const SecondMomentTable kSecondMomentTable;             \
  extern const SignsTable kSignsTable;                           \
  extern const StochasticQuantizeTable kStochasticQuantizeTable; \
  extern const TableSumTable kTableSumTable;                     \
  extern const TernaryTable kTernaryTable;                       \
  extern const ThcKernelTable kThcKernelTable;                   \
  extern const ThreeLcTable kThreeLcTable;                       \
  extern const TopKTable kTopKTable;                             \
  extern const ZeroRunTable kZeroRunTable;                       \
  }  // namespace instruction_set

TF_GC_DECLARE_KERNEL_TABLES(baseline)
TF_GC_DECLARE_KERNEL_TABLES(avx2)
TF_GC_DECLARE_KERNEL_TABLES(avx512)

#undef TF_GC_DECLARE_KERNEL_TABLES

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_KERNEL_TABLE_H_
