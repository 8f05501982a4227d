// Unpacks bytes as indices: first two bytes of count, then four of size, then
// the packed indices, to which zeros are added as far as they are too few. What
// is accepted must ascend, be in range, and pack to the same bytes again, on
// every instruction set.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/selected_sum.h"
#include "tests/fuzz/check.h"

namespace tf_gc::kernels {
namespace {

void Fuzz(const uint8_t* packed, int64_t k, int64_t n) {
  std::vector<int32_t> first(k);
  const bool is_valid = [&] {
    Check(SetInstructionSet(InstructionSet::kBaseline));
    return UnpackIndices(packed, k, n, first.data()) == nullptr;
  }();
  for (const InstructionSet set : SupportedInstructionSets()) {
    Check(SetInstructionSet(set));
    std::vector<int32_t> indices(k);
    Check((UnpackIndices(packed, k, n, indices.data()) == nullptr) == is_valid);
    if (!is_valid) continue;
    Check(indices == first);
    for (int64_t j = 0; j < k; ++j) {
      Check(indices[j] > (j == 0 ? -1 : indices[j - 1]) && indices[j] < n);
    }
    Check(FindNotAscending(indices.data(), k, n) == -1);
    std::vector<uint8_t> again(PackedIndicesSize(k, n));
    PackIndices(indices.data(), k, n, again.data());
    Check(std::equal(again.begin(), again.end(), packed));
  }
}

void FuzzMessages(const uint8_t* packed, int64_t k, int64_t n) {
  const int64_t packed_size = PackedIndicesSize(k, n);
  const int64_t size = SelectedSize(k, n);
  // A message with the first indices, and one with these.
  std::vector<int32_t> indices(2 * k), first(k);
  std::iota(first.begin(), first.end(), 0);
  const std::unique_ptr<uint8_t[]> messages(new uint8_t[2 * size]);
  PackIndices(first.data(), k, n, messages.get());
  std::copy_n(packed, packed_size, messages.get() + size);
  for (int m = 0; m < 2; ++m) {
    const std::vector<float> values(k, m + 1.0f);
    std::memcpy(messages.get() + m * size + packed_size, values.data(),
                k * sizeof(float));
  }
  std::vector<float> sums(n), expected(n);
  const char* const what = UnpackIndices(packed, k, n, first.data());
  const SelectedError error = SumSelected(messages.get(), 2, k, n, SingleThread,
                                          indices.data(), sums.data());
  Check(error.what == what);
  Check(error.message == (what != nullptr));
  if (what != nullptr) return;
  for (int64_t j = 0; j < k; ++j) {
    expected[j] += 1;
    expected[first[j]] += 2;
  }
  Check(sums == expected);
}

}  // namespace
}  // namespace tf_gc::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6) return 0;
  uint16_t count;
  int32_t n;
  std::memcpy(&count, data, sizeof(count));
  std::memcpy(&n, data + 2, sizeof(n));
  n &= 0x7fffffff;
  const int64_t k =
      n == 0 ? 0 : count % std::min<int64_t>(n + int64_t{1}, 5000);
  const int64_t packed_size = tf_gc::kernels::PackedIndicesSize(k, n);
  // Memory of exactly this size, so that reading behind it is found.
  const std::unique_ptr<uint8_t[]> packed(new uint8_t[packed_size]());
  std::copy_n(data + 6,
              std::min<int64_t>(static_cast<int64_t>(size) - 6, packed_size),
              packed.get());
  tf_gc::kernels::Fuzz(packed.get(), k, n);
  // Of no more memory than fuzzing can spare.
  if (k > 0 && n <= 1 << 16) tf_gc::kernels::FuzzMessages(packed.get(), k, n);
  return 0;
}
