// How many transfers a step takes: each is a remote call.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/size_history.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::Each;

// In pieces that are short, for the sanitizers, and yet longer than a head.
class HopOfPieces : public ExactHop {
 public:
  HopOfPieces(const Exact<float>& variable, int64_t piece_values)
      : ExactHop({variable}), piece_values_(piece_values) {}
  int64_t piece_values() const override { return piece_values_; }

 private:
  const int64_t piece_values_;
};

// The transfers that each rank sends in the second step of a bucket.
std::vector<int> TransfersOfAStep(int ranks, const Topology& topology,
                                  int pieces = 1,
                                  LinkMeasurement measurement = {}) {
  const int64_t shard_values = 64, values = ranks * shard_values;
  InProcessNetwork network(ranks);
  std::vector<int> transfers;
  network.SetFault([&](Transfer* transfer) { ++transfers[transfer->source]; });
  std::deque<SizeHistory> histories(ranks);
  for (uint32_t step = 0; step < 2; ++step) {
    transfers.assign(ranks, 0);
    for (const absl::Status& status : RunRanks(ranks, &network, [&](int rank) {
           std::vector<float> gradient(values, 1);
           HopOfPieces hop({gradient.data(), gradient.data()},
                           pieces == 1 ? values : shard_values / pieces);
           histories[rank].BeginStep();
           Mailbox mailbox(network.transport(rank), Patience(kTimeoutSeconds),
                           nullptr, step, nullptr, &histories[rank],
                           measurement);
           std::vector<VariableTraffic> traffic;
           const absl::Status status =
               AllReduce({values}, topology, {rank, ranks, step, &mailbox},
                         &hop, &traffic);
           EXPECT_EQ(gradient, std::vector<float>(values, ranks));
           return status;
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  return transfers;
}

TEST(TransferCountTest, AMessageIsOneTransfer) {
  for (const int ranks : {2, 4, 16}) {
    EXPECT_THAT(TransfersOfAStep(ranks, kSharded), Each(2 * (ranks - 1)));
    EXPECT_THAT(TransfersOfAStep(ranks, kRing), Each(2 * (ranks - 1)));
  }
}

TEST(TransferCountTest, ATreeTakesOneUpAndOneDownForEachRankButTheRoot) {
  for (const int ranks : {2, 4, 16}) {
    int total = 0;
    for (const int sent : TransfersOfAStep(ranks, kTree)) total += sent;
    EXPECT_EQ(total, 2 * (ranks - 1));
  }
}

// All ranks agree on which they are: the first of each phase between two.
TEST(TransferCountTest, SomeMessagesHaveATransferMoreWhereLinksAreMeasured) {
  constexpr int kRanks = 4, kPieces = 2;
  const auto more = [&](const Topology& topology, LinkMeasurement measurement) {
    std::vector<int> more =
        TransfersOfAStep(kRanks, topology, kPieces, measurement);
    const std::vector<int> less = TransfersOfAStep(kRanks, topology, kPieces);
    for (int rank = 0; rank < kRanks; ++rank) more[rank] -= less[rank];
    return more;
  };
  for (const auto measurement :
       {LinkMeasurement::kBandwidth, LinkMeasurement::kLatency}) {
    EXPECT_THAT(more(kSharded, measurement), Each(2 * (kRanks - 1)));
    EXPECT_THAT(more(kRing, measurement), Each(2));
    EXPECT_THAT(more(TorusOf(2), measurement), Each(4));
  }
}

}  // namespace
}  // namespace tf_gc
