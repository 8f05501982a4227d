#include "ops/collectives/thc_all_reduce.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/all_reduce.h"
#include "ops/collectives/lane_hop.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/denormals.h"
#include "ops/wire/bytes.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// Delivers each part of the bucket as soon as its sums are there.
template <typename Lane>
class ThcHop : public LaneHop<Lane> {
 public:
  // The arrays and the bucket must outlive the hop.
  ThcHop(ThcBucket* bucket, uint8_t* packed, int ranks, Lane* sums,
         const CommitCallback& commit, const kernels::ParallelFor& threads)
      : LaneHop<Lane>(packed,
                      std::vector<Lane>(bucket->table().integers.begin(),
                                        bucket->table().integers.end()),
                      bucket->table().bits, ranks, sums, threads),
        bucket_(*bucket),
        packed_(packed),
        sums_(sums),
        commit_(commit),
        threads_(threads) {
    for (int64_t i = 0; i < bucket->padded(); i += bucket->part()) {
      missing_.push_back(std::min(bucket->part(), bucket->padded() - i));
    }
  }

  void Prepare(const BucketLayout& /*layout*/, int /*rank*/) override {
    bucket_.Quantize(packed_);
  }

  absl::Status Commit() override { return commit_(bucket_.non_finite()); }

  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override {
    TF_GC_RETURN_IF_ERROR(LaneHop<Lane>::Decode(piece, body, size));
    const std::vector<int64_t> complete = Complete(piece);
    threads_(complete.size(), bucket_.part() * kernels::kThcDecodeCost,
             [&](int64_t begin, int64_t end) {
               const std::unique_ptr<float[]> room(new float[bucket_.part()]);
               for (int64_t i = begin; i < end; ++i) {
                 bucket_.Deliver(complete[i], sums_, room.get());
               }
             });
    return absl::OkStatus();
  }

 private:
  // Where the parts begin of which the piece's sums were the last ones missing.
  std::vector<int64_t> Complete(const Piece& piece) {
    const int64_t part = bucket_.part(), end = piece.begin + piece.values;
    std::vector<int64_t> complete;
    for (int64_t i = piece.begin; i < end;) {
      const int64_t index = i / part;
      const int64_t next = std::min((index + 1) * part, end);
      missing_[index] -= next - i;
      if (missing_[index] == 0) complete.push_back(index * part);
      i = next;
    }
    return complete;
  }

  ThcBucket& bucket_;
  uint8_t* const packed_;
  const Lane* const sums_;
  const CommitCallback& commit_;
  const kernels::ParallelFor& threads_;
  std::vector<int64_t> missing_;  // sums of each part
};

template <typename Lane>
absl::Status ExchangeSums(ThcBucket* bucket, const CommitCallback& commit,
                          const Topology& topology, const Party& party,
                          const kernels::ParallelFor& threads,
                          JointHop* companions, int64_t* bytes_sent) {
  // Both are written before they are read.
  const Bytes packed(
      kernels::PackedSize(bucket->padded(), bucket->table().bits));
  const Bytes sums(bucket->padded() * sizeof(Lane));
  ThcHop<Lane> hop(bucket, packed.data(), party.ranks,
                   reinterpret_cast<Lane*>(sums.data()), commit, threads);
  std::vector<VariableTraffic> traffic;
  TF_GC_RETURN_IF_ERROR(AllReduce({bucket->padded()}, topology, party,
                                  companions->With(&hop), &traffic));
  *bytes_sent += traffic[0].bytes;
  return absl::OkStatus();
}

}  // namespace

absl::Status ThcAllReduce(ThcBucket* bucket, const CommitCallback& commit,
                          const Topology& topology, const Party& party,
                          const kernels::ParallelFor& threads,
                          JointHop* companions, int64_t* bytes_sent) {
  const int64_t largest_sum = party.ranks * bucket->table().granularity();
  if (largest_sum > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table must hold values of at most 65535 / ", party.ranks,
        " workers, for the sums to fit in 16 bits, got ",
        bucket->table().granularity(), ": use a smaller granularity"));
  }
  const kernels::KeepDenormals keep_denormals;  // as in AllReduce
  std::vector<uint8_t> statistics;
  const auto measure = [&] {
    statistics = bucket->Statistics();
    return statistics.data();
  };
  std::vector<Bytes> gathered;
  TF_GC_RETURN_IF_ERROR(AllGather(measure, bucket->statistics_size(), party,
                                  &gathered, bucket->statistics_size()));
  TF_GC_RETURN_IF_ERROR(bucket->Agree(gathered));
  *bytes_sent = (party.ranks - 1) * bucket->statistics_size();
  const auto exchange = largest_sum <= std::numeric_limits<uint8_t>::max()
                            ? ExchangeSums<uint8_t>
                            : ExchangeSums<uint16_t>;
  Party next = party;
  ++next.round;
  return exchange(bucket, commit, topology, next, threads, companions,
                  bytes_sent);
}

}  // namespace tf_gc
