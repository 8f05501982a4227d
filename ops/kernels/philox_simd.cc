#include <cstdint>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/philox-inl.h"
#include "ops/kernels/simd-inl.h"

namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET {
namespace {

void Fill(Seed seed, uint64_t first, int64_t blocks, uint32_t* words) {
  const Philox philox(seed);
  int64_t block = 0;
  for (; block + Philox::kBlocks <= blocks; block += Philox::kBlocks) {
    UnsignedInts next[2];
    philox.Generate(first + block, next);
    __builtin_memcpy(words + 4 * block, next, sizeof(next));
  }
  if (block < blocks) {
    UnsignedInts rest[2];
    philox.Generate(first + block, rest);
    __builtin_memcpy(words + 4 * block, rest,
                     (blocks - block) * sizeof(PhiloxWords));
  }
}

}  // namespace

const PhiloxTable kPhiloxTable = {Fill};

}  // namespace tf_gc::kernels::TF_GC_INSTRUCTION_SET
