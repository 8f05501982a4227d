// Decodes bytes as bodies of uncompressed values, lanes and signs. Whatever
// they are, a hop gives DataLoss, or values that it can send on and that are
// alike however often it decodes them.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ops/collectives/cascading_sign_hop.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/joint_hop.h"
#include "ops/collectives/lane_hop.h"
#include "ops/collectives/sign_majority_hop.h"
#include "ops/collectives/sign_merge_hop.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/signs.h"
#include "tests/fuzz/check.h"

namespace tf_gc {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kCarried = 5;  // values, all of which the first shard has

using Buffer = std::vector<uint8_t>;

// Makes a hop that writes its result to a buffer.
using MakeHop = std::function<std::unique_ptr<Hop>(Buffer* result)>;

// What the hop makes of the body: merged into its own, sent on and decoded, or
// decoded as the result. `incoming` is 0 for the latter.
absl::Status Take(const Piece& piece, int incoming, const Buffer& body,
                  Hop* hop) {
  const BucketLayout layout({piece.values}, kRanks, hop->piece_values(),
                            hop->alignment());
  hop->Plan(layout);
  hop->Prepare(layout, /*rank=*/0);
  if (incoming == 0) return hop->Decode(piece, body.data(), body.size());
  const int own = kRanks - incoming;
  hop->Start(piece);
  hop->Anticipate(piece, own, incoming);
  const absl::Status merged =
      hop->Merge(piece, Aggregate::Partial(incoming), body.data(), body.size());
  if (!merged.ok()) return merged;
  Buffer result(hop->MaxBodySize(piece, Content::kResult));
  const int64_t size =
      hop->Encode(piece, {Content::kResult, kRanks}, result.data());
  Check(size <= static_cast<int64_t>(result.size()));
  Check(hop->Decode(piece, result.data(), size).ok());
  return merged;
}

// `result_size` are the bytes of the result.
void FuzzHop(int64_t n, int64_t result_size, const Buffer& body,
             const MakeHop& make) {
  const Piece piece = {{{0, 0, n}}, n, 0, 0};
  for (int incoming = 0; incoming < kRanks; ++incoming) {
    Buffer first(result_size), second(result_size);
    const absl::Status status = Take(piece, incoming, body, make(&first).get());
    Check(Take(piece, incoming, body, make(&second).get()) == status);
    Check(status.ok() || absl::IsDataLoss(status));
    Check(!status.ok() || first == second);
  }
}

template <typename T>
void FuzzExact(int64_t n, const Buffer& body) {
  if (n == 0) return;  // a segment is never empty
  const std::vector<T> own(n, T(0.25f));
  FuzzHop(n, n * sizeof(T), body, [&](Buffer* result) {
    const Exact<T> values = {own.data(), reinterpret_cast<T*>(result->data()),
                             kRanks};
    return std::make_unique<ExactHop>(std::vector<ExactVariable>{values});
  });
}

// The largest sums are those that lanes of so many bits have just room for.
template <typename Lane>
void FuzzLanes(int64_t n, int bits, int lane_bits, const Buffer& body) {
  const Buffer own(kernels::PackedSize(n, bits));
  std::vector<Lane> table(int64_t{1} << bits);
  for (size_t z = 0; z < table.size(); ++z) {
    table[z] = ((1 << lane_bits) - 1) / kRanks * z / (table.size() - 1);
  }
  FuzzHop(n, n * sizeof(Lane), body, [&](Buffer* result) {
    return std::make_unique<LaneHop<Lane>>(
        own.data(), table, bits, kRanks,
        reinterpret_cast<Lane*>(result->data()));
  });
}

void FuzzSigns(int64_t n, const Buffer& body) {
  const int64_t size = kernels::SignPackedSize(n);
  const Buffer own(size);
  FuzzHop(n, size, body, [&](Buffer* result) {
    return std::make_unique<SignMergeHop>(own.data(), kernels::Seed{1, 2},
                                          result->data());
  });
  FuzzHop(n, size, body, [&](Buffer* result) {
    return std::make_unique<SignMajorityHop>(own.data(), result->data());
  });
}

// A hop that carries floats, and the one whose messages they travel in.
class CarryingHop : public JointHop {
 public:
  CarryingHop(std::unique_ptr<Hop> leader, const Exact<float>& carried,
              int64_t size)
      : JointHop({carried}, {size}), leader_(std::move(leader)) {
    With(leader_.get());
  }

 private:
  const std::unique_ptr<Hop> leader_;
};

void FuzzCarryingSigns(int64_t n, const Buffer& body) {
  if (n == 0) return;  // nothing carries them
  const int64_t size = kernels::SignPackedSize(n);
  const Buffer own(size);
  const std::vector<float> carried(kCarried, 0.25f);
  FuzzHop(n, size + kCarried * sizeof(float), body, [&](Buffer* result) {
    // In the beginning, where floats are aligned.
    auto* const sums = reinterpret_cast<float*>(result->data());
    auto leader = std::make_unique<SignMergeHop>(
        own.data(), kernels::Seed{1, 2},
        result->data() + kCarried * sizeof(float));
    return std::make_unique<CarryingHop>(
        std::move(leader), Exact<float>{carried.data(), sums}, kCarried);
  });
}

void FuzzCascadingSigns(int64_t n, const Buffer& body) {
  const std::vector<float> values(n, 0.25f);
  FuzzHop(n, n * sizeof(float), body, [&](Buffer* result) {
    return std::make_unique<CascadingSignHop>(
        values.data(), kernels::Seed{1, 2},
        reinterpret_cast<float*>(result->data()));
  });
}

}  // namespace
}  // namespace tf_gc

// A byte that chooses the bits of indices and lanes, one with how many values
// fewer than it may hold the body is of, and the body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr int kAllBits[] = {2, 3, 4, 5, 8};
  const int bits = kAllBits[data[0] % 5];
  const int64_t fewer = data[1] % 16;
  const std::vector<uint8_t> body(data + 2, data + size);
  const int64_t bytes = body.size();
  const auto values = [=](int64_t n) {
    return std::max(n - fewer, int64_t{0});
  };
  tf_gc::FuzzExact<float>(values(bytes / 4), body);
  tf_gc::FuzzExact<Eigen::half>(values(bytes / 2), body);
  tf_gc::FuzzExact<Eigen::bfloat16>(values(bytes / 2), body);
  const int lane_bits = 2 + data[0] / 5 % 15;
  for (const int64_t n :
       {values(8 * bytes / lane_bits), values(8 * bytes / bits)}) {
    if (lane_bits <= 8) tf_gc::FuzzLanes<uint8_t>(n, bits, lane_bits, body);
    tf_gc::FuzzLanes<uint16_t>(n, bits, lane_bits, body);
  }
  tf_gc::FuzzSigns(values(8 * bytes), body);
  constexpr int64_t kCarriedBytes = tf_gc::kCarried * sizeof(float);
  tf_gc::FuzzCarryingSigns(values(8 * (bytes - kCarriedBytes)), body);
  tf_gc::FuzzCascadingSigns(values(8 * (bytes - 4)), body);
  return 0;
}
