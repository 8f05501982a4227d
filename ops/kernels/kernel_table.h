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

namespace tf_gc::kernels {

struct BitPackingTable {
  void (*pack)(const uint8_t* indices, int64_t n, int bits, uint8_t* packed);
  void (*unpack)(const uint8_t* packed, int64_t n, int bits, uint8_t* indices);
};

// Which values of a Hadamard transform change their signs.
enum class HadamardSigns { kNone, kFirst, kLast };

struct HadamardTask {
  Seed seed;
  HadamardSigns signs;
  float scale;
};

// Values that are transformed within the first-level cache, and that a part of
// short rows has a multiple of.
inline constexpr int64_t kHadamardChunk = 4096;
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

// Everywhere `partition` is QuarticSize(n).
struct QuarticTable {
  // Index of the first of n bytes for which (byte + offset) mod 256 > limit,
  // or -1.
  int64_t (*find_above)(const uint8_t* bytes, int64_t n, uint8_t offset,
                        uint8_t limit);
  void (*encode)(const int8_t* ternary, int64_t n, int64_t partition,
                 uint8_t* quartic);
  void (*decode)(const uint8_t* quartic, int64_t n, int64_t partition,
                 int8_t* ternary);
};

struct ZeroRunTable {
  int64_t (*encode)(const uint8_t* quartic, int64_t m, uint8_t* encoded);
  int64_t (*decoded_size)(const uint8_t* encoded, int64_t size);
  int64_t (*decode)(const uint8_t* encoded, int64_t size, int64_t m,
                    uint8_t* quartic);
};

struct ThreeLcTable {
  float (*max_abs_sum)(const float* values, const float* residual, int64_t n);
  void (*add_residual)(const float* values, const float* residual, int64_t n,
                       float* sum);
  void (*ternary_quantize)(const float* values, const float* residual,
                           float scale, int64_t n, int8_t* ternary,
                           float* new_residual);
  int64_t (*encode)(const float* values, const float* residual, float scale,
                    int64_t n, int64_t partition, float* new_residual,
                    uint8_t* payload);
  int64_t (*decode)(const uint8_t* payload, int64_t size, float scale,
                    int64_t n, int64_t partition, float* values);
  int64_t (*decode_add)(const uint8_t* payload, int64_t size, float scale,
                        int64_t n, int64_t partition, float* sum);
  int64_t (*validate)(const uint8_t* payload, int64_t size, int64_t n,
                      int64_t partition);
};

struct PhiloxTable {
  void (*fill)(Seed seed, uint64_t first, int64_t blocks, uint32_t* words);
};

struct StochasticQuantizeTable {
  void (*quantize)(const float* values, int64_t n, const float* levels,
                   int num_levels, Seed seed, int64_t first, uint8_t* indices);
  void (*quantize_pack)(const float* values, int64_t n, const float* levels,
                        int num_levels, Seed seed, int64_t first, int bits,
                        uint8_t* packed);
};

struct TableSumTable {
  void (*sum_bytes)(const uint8_t* packed, int64_t n, const uint8_t* table,
                    int bits, uint8_t* accumulator);
  void (*sum_words)(const uint8_t* packed, int64_t n, const uint16_t* table,
                    int bits, uint16_t* accumulator);
};

#define TF_GC_DECLARE_KERNEL_TABLES(instruction_set)             \
  namespace instruction_set {                                    \
  extern const BitPackingTable kBitPackingTable;                 \
  extern const HadamardTable kHadamardTable;                     \
  extern const PhiloxTable kPhiloxTable;                         \
  extern const QuarticTable kQuarticTable;                       \
  extern const StochasticQuantizeTable kStochasticQuantizeTable; \
  extern const TableSumTable kTableSumTable;                     \
  extern const ThreeLcTable kThreeLcTable;                       \
  extern const ZeroRunTable kZeroRunTable;                       \
  }  // namespace instruction_set

TF_GC_DECLARE_KERNEL_TABLES(baseline)
TF_GC_DECLARE_KERNEL_TABLES(avx2)
TF_GC_DECLARE_KERNEL_TABLES(avx512)

#undef TF_GC_DECLARE_KERNEL_TABLES

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_KERNEL_TABLE_H_
