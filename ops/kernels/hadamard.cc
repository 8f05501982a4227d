#include "ops/kernels/hadamard.h"

#include <algorithm>
#include <cmath>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/kernel_table.h"

namespace tf_gc::kernels {
namespace {

// Processor cycles, about, that a value takes in each pass over memory.
constexpr int64_t kCost = 1;

// Fewer rows than these are each shared among the threads, if long enough.
constexpr int64_t kManyRows = 16;
constexpr int64_t kLongRow = int64_t{1} << 16;

void TransformRow(const HadamardTable& table, const HadamardTask& task,
                  const float* values, int64_t first, int64_t size,
                  float* transformed, const ParallelFor& parallel_for) {
  const int64_t block = size / kHadamardRadix;
  parallel_for(kHadamardRadix, kCost * block, [&](int64_t begin, int64_t end) {
    table.blocks(task, values, first + begin * block, first + end * block,
                 block, /*is_whole_row=*/false, transformed);
  });
  ParallelForUnits(parallel_for, block, kHadamardTile, kCost * kHadamardRadix,
                   [&](int64_t begin, int64_t end) {
                     table.columns(task, first, block, begin, end, transformed);
                   });
}

void Transform(const HadamardTask& task, const float* values, int64_t rows,
               int64_t size, float* transformed,
               const ParallelFor& parallel_for) {
  const HadamardTable& table = TF_GC_ACTIVE_TABLE(kHadamardTable);
  if (size >= kLongRow && rows < kManyRows) {
    for (int64_t row = 0; row < rows; ++row) {
      TransformRow(table, task, values, row * size, size, transformed,
                   parallel_for);
    }
    return;
  }
  const int64_t unit = std::max<int64_t>(kHadamardChunk / size, 1);
  ParallelForUnits(parallel_for, rows, unit, kCost * size,
                   [&](int64_t begin, int64_t end) {
                     table.blocks(task, values, begin * size, end * size, size,
                                  /*is_whole_row=*/true, transformed);
                   });
}

float Scale(int64_t size) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
}

}  // namespace

void Hadamard(const float* values, int64_t rows, int64_t size,
              float* transformed, const ParallelFor& parallel_for) {
  Transform({{}, HadamardSigns::kNone, Scale(size)}, values, rows, size,
            transformed, parallel_for);
}

void RandomizedHadamard(const float* values, int64_t rows, int64_t size,
                        Seed seed, float* transformed,
                        const ParallelFor& parallel_for) {
  Transform({seed, HadamardSigns::kFirst, Scale(size)}, values, rows, size,
            transformed, parallel_for);
}

void InverseRandomizedHadamard(const float* values, int64_t rows, int64_t size,
                               Seed seed, float* transformed,
                               const ParallelFor& parallel_for) {
  Transform({seed, HadamardSigns::kLast, Scale(size)}, values, rows, size,
            transformed, parallel_for);
}

void RandomizedHadamardPart(const float* values, int64_t rows, int64_t size,
                            Seed seed, int64_t place, float* transformed) {
  Transform({seed, HadamardSigns::kFirst, Scale(size), place}, values, rows,
            size, transformed, SingleThread);
}

void InverseRandomizedHadamardPart(const float* values, int64_t rows,
                                   int64_t size, Seed seed, int64_t place,
                                   float* transformed) {
  Transform({seed, HadamardSigns::kLast, Scale(size), place}, values, rows,
            size, transformed, SingleThread);
}

}  // namespace tf_gc::kernels
