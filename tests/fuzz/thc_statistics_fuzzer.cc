// Gives bytes to a bucket as the statistics of another rank. Whatever they are,
// it refuses them with DataLoss, or reduces to finite values, and to NaN where
// a variable is said not to be finite, or might overflow.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/collectives/thc_bucket.h"
#include "ops/kernels/bit_packing.h"
#include "tests/fuzz/check.h"

namespace tf_gc {
namespace {

constexpr int64_t kSize = 100;  // of each of two variables, in four blocks

void Fuzz(const uint8_t* data, size_t size) {
  std::vector<float> values(2 * kSize, 0.5f), residuals(2 * kSize),
      reduced(2 * kSize);
  std::vector<FeedbackVariable> variables;
  for (int64_t begin : {int64_t{0}, kSize}) {
    variables.push_back({kSize, values.data() + begin, residuals.data() + begin,
                         values.data() + begin, reduced.data() + begin});
  }
  ThcBucket bucket(&variables,
                   {kernels::ThcTable({0, 1, 2, 4}),
                    /*truncation=*/2.15f,
                    {1, 2},
                    kernels::Seed{3, 4}},
                   /*ranks=*/2, /*divisor=*/1, kernels::SingleThread);
  const std::vector<uint8_t> own = bucket.Statistics();
  Bytes mine(own.size()), others(size);
  std::copy(own.begin(), own.end(), mine.data());
  std::copy_n(data, size, others.data());
  const absl::Status status = bucket.Agree({mine, others});
  Check(status.ok() || absl::IsDataLoss(status));
  if (!status.ok()) return;
  std::vector<uint8_t> packed(
      kernels::PackedSize(bucket.padded(), bucket.table().bits));
  bucket.Quantize(packed.data());
  const std::vector<uint8_t> sums(bucket.padded(), 8);
  std::vector<float> room(bucket.part());
  bucket.Deliver(0, sums.data(), room.data());
  for (int64_t i = 0; i < 2 * kSize; ++i) {
    Check(bucket.non_finite()[i / kSize] ? std::isnan(reduced[i])
                                         : std::isfinite(reduced[i]));
  }
}

}  // namespace
}  // namespace tf_gc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_gc::Fuzz(data, size);
  return 0;
}
