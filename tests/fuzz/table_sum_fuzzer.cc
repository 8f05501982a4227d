// Adds the table values of any bytes: first what chooses the bits and how many
// values the last byte holds, then the table, then the bytes. All instruction
// sets must agree with sums of what UnpackBits gives.

#include <cstdint>
#include <vector>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/table_sum.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

template <typename Lane>
void Fuzz(const std::vector<uint8_t>& packed, int64_t n,
          const std::vector<Lane>& table, int bits) {
  std::vector<uint8_t> indices(n);
  UnpackBits(packed.data(), n, bits, indices.data());
  std::vector<Lane> start(n), expected(n);
  for (int64_t i = 0; i < n; ++i) {
    start[i] = static_cast<Lane>(40503 * i);
    expected[i] = static_cast<Lane>(start[i] + table[indices[i]]);
  }
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    std::vector<Lane> sums = start;
    TableSum(packed.data(), n, table.data(), bits, sums.data());
    Check(sums == expected);
  }
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  constexpr int kAllBits[] = {2, 3, 4, 5, 8};
  const int bits = kAllBits[data[0] % 5];
  const int64_t entries = int64_t{1} << bits;
  if (static_cast<int64_t>(size) < 1 + entries) return 0;
  const std::vector<uint8_t> table(data + 1, data + 1 + entries);
  std::vector<uint16_t> wide_table(entries);
  for (int64_t z = 0; z < entries; ++z) {
    wide_table[z] = static_cast<uint16_t>(table[z] * 257 + z);
  }
  const std::vector<uint8_t> packed(data + 1 + entries, data + size);
  int64_t n = static_cast<int64_t>(packed.size()) * 8 / bits;
  n -= data[0] / 5 % 4;
  if (n < 0 || tf_gc::kernels::PackedSize(n, bits) !=
                   static_cast<int64_t>(packed.size())) {
    return 0;
  }
  tf_gc::kernels::Fuzz<uint8_t>(packed, n, table, bits);
  tf_gc::kernels::Fuzz<uint16_t>(packed, n, wide_table, bits);
  return 0;
}
