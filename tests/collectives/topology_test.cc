#include "ops/collectives/topology.h"

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/cascading_sign_hop.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/lane_hop.h"
#include "ops/collectives/sign_majority_hop.h"
#include "ops/collectives/sign_merge_hop.h"
#include "ops/collectives/three_lc_hop.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;

void ExpectIsInvalid(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

void ExpectIsRefused(const std::string& name, int rows, int ranks,
                     const std::string& message) {
  Topology topology;
  ExpectIsInvalid(ParseTopology(name, rows, ranks, &topology), message);
}

// Who sends to whom, as "source>destination".
std::vector<std::string> Edges(const std::string& name, int rows, int ranks) {
  Topology topology;
  EXPECT_TRUE(ParseTopology(name, rows, ranks, &topology).ok());
  InProcessNetwork network(ranks);
  std::set<std::string> edges;
  network.SetFault([&](Transfer* transfer) {
    edges.insert(absl::StrCat(transfer->source, ">", transfer->destination));
  });
  RunRanks(ranks, &network, [&](int rank) {
    std::vector<float> values(100);
    ExactHop hop({Exact<float>{values.data(), values.data()}});
    return AllReduce({100}, 0, network.transport(rank), &hop, topology);
  });
  return {edges.begin(), edges.end()};
}

TEST(TopologyTest, EveryNameIsThatOfItsTopology) {
  using ::testing::ElementsAre;
  EXPECT_THAT(Edges("sharded", 1, 3),
              ElementsAre("0>1", "0>2", "1>0", "1>2", "2>0", "2>1"));
  EXPECT_THAT(Edges("ring", 1, 3), ElementsAre("0>1", "1>2", "2>0"));
  EXPECT_THAT(Edges("tree", 1, 4),
              ElementsAre("0>1", "0>2", "1>0", "2>0", "2>3", "3>2"));
  EXPECT_THAT(Edges("torus", 2, 6),
              ElementsAre("0>1", "0>3", "1>2", "1>4", "2>0", "2>5", "3>0",
                          "3>4", "4>1", "4>5", "5>2", "5>3"));
}

TEST(TopologyTest, UnknownNameIsRefusedWithThoseThatThereAre) {
  ExpectIsRefused("star", 1, 4,
                  "topology must be one of sharded, ring, tree, torus, "
                  "got star");
}

// What an all-reduce on a topology that the hop does not run on, or of which
// there is none, gives; it must not have sent anything.
absl::Status AllReduceUnsent(Hop* hop, const Topology& topology) {
  InProcessNetwork network(2);
  bool sent = false;
  network.SetFault([&](Transfer*) { sent = true; });
  const absl::Status status =
      AllReduce({1}, 0, network.transport(0), hop, topology);
  EXPECT_FALSE(sent);
  return status;
}

TEST(TopologyTest, HopRefusesATopologyThatItDoesNotRunOnByName) {
  const uint8_t packed = 0;
  uint8_t signs = 0, sum = 0;
  float value = 0;
  std::vector<FeedbackVariable> variables = {
      {1, &value, &value, &value, &value}};
  LaneHop<uint8_t> lane(&packed, {0, 1, 2, 3}, 2, 4, &sum);
  SignMergeHop merge(&packed, {}, &signs);
  SignMajorityHop majority(&packed, &signs);
  CascadingSignHop cascading(&value, {}, &value);
  ThreeLcHop three_lc(&variables, 1, 1, nullptr);
  const struct {
    Hop* hop;
    Topology topology;
    const char* message;
  } pairs[] = {
      {&lane, kTree,
       "the lane exchange does not run on the topology tree, but on sharded, "
       "ring, torus"},
      {&merge, kSharded,
       "the sign merge exchange does not run on the topology sharded, but on "
       "ring, torus"},
      {&merge, kTree, "sign merge exchange does not run on the topology tree"},
      {&majority, kRing,
       "the sign majority exchange does not run on the topology ring, but on "
       "sharded"},
      {&cascading, TorusOf(2),
       "the cascading sign exchange does not run on the topology torus, but "
       "on ring"},
      {&three_lc, kRing,
       "the 3LC exchange does not run on the topology ring, but on sharded"},
  };
  for (const auto& [hop, topology, message] : pairs) {
    ExpectIsInvalid(AllReduceUnsent(hop, topology), message);
  }
}

TEST(TopologyTest, AllReduceRefusesRowsThatMakeNoTorusOfTheRanks) {
  float value = 0;
  ExactHop hop({Exact<float>{&value, &value}});
  ExpectIsInvalid(AllReduceUnsent(&hop, TorusOf(3)),
                  "rows must divide the number of workers, 2, got 3");
  ExpectIsInvalid(AllReduceUnsent(&hop, {TopologyKind::kTree, 2}),
                  "rows must be 1");
}

// Counts what it decodes.
class DecodeCounter : public ExactHop {
 public:
  DecodeCounter(float* values, std::atomic<int>* decoded)
      : ExactHop({Exact<float>{values, values}}), decoded_(*decoded) {}

  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override {
    ++decoded_;
    return ExactHop::Decode(piece, body, size);
  }

 private:
  std::atomic<int>& decoded_;
};

TEST(TopologyTest, RingDecodesEachResultBeforeItSendsTheNextOneOn) {
  constexpr int kRanks = 4;
  std::atomic<int> decoded[kRanks] = {};
  int sent[kRanks] = {};
  InProcessNetwork network(kRanks);
  network.SetFault([&](Transfer* transfer) {
    const bool is_result = transfer->tag.substr(0, 4) == "sum:";
    const bool is_rest = transfer->tag.find("rest") != std::string::npos;
    if (!is_result || is_rest) return;
    EXPECT_GE(decoded[transfer->source], sent[transfer->source]++);
  });
  RunRanks(kRanks, &network, [&](int rank) {
    std::vector<float> values(kRanks * BucketLayout::kAlignment);
    DecodeCounter hop(values.data(), &decoded[rank]);
    return AllReduce({static_cast<int64_t>(values.size())}, 0,
                     network.transport(rank), &hop, kRing);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sent[rank], kRanks - 1);
    EXPECT_EQ(decoded[rank], kRanks);
  }
}

// Refuses one body: the one that it merges, or decodes, after so many others.
class Refuser : public ExactHop {
 public:
  Refuser(float* values, int merges, int decodes)
      : ExactHop({Exact<float>{values, values}}),
        merges_(merges),
        decodes_(decodes) {}

  absl::Status Merge(const Piece& piece, const Aggregate& incoming,
                     const uint8_t* body, int64_t size) override {
    if (merges_-- == 0) return absl::DataLossError("refused");
    return ExactHop::Merge(piece, incoming, body, size);
  }
  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override {
    if (decodes_-- == 0) return absl::DataLossError("refused");
    return ExactHop::Decode(piece, body, size);
  }

 private:
  int merges_, decodes_;
};

TEST(TopologyTest, AnErrorOfABodyNamesWhoHasSentIt) {
  constexpr int kRanks = 4, kRank = 2;
  const auto error = [&](const Topology& topology, int merges, int decodes) {
    InProcessNetwork network(kRanks);
    const std::vector<absl::Status> statuses =
        RunRanks(kRanks, &network, [&](int rank) {
          std::vector<float> values(kRanks * BucketLayout::kAlignment);
          Refuser hop(values.data(), rank == kRank ? merges : -1,
                      rank == kRank ? decodes : -1);
          return AllReduce({static_cast<int64_t>(values.size())}, 0,
                           network.transport(rank), &hop, topology);
        });
    return std::string(statuses[kRank].message());
  };
  const struct {
    Topology topology;
    std::vector<int> merged, decoded;  // their senders
  } cases[] = {
      {kSharded, {3, 0, 1}, {2, 3, 0, 1}},
      {kRing, {1, 1, 1}, {2, 1, 1, 1}},
      {TorusOf(2), {3, 3, 0}, {0, 2, 3, 3}},
      {kTree, {3}, {0}},
  };
  for (const auto& [topology, merged, decoded] : cases) {
    for (size_t i = 0; i < merged.size(); ++i) {
      EXPECT_EQ(error(topology, i, -1),
                absl::StrCat("from rank ", merged[i], ": refused"));
    }
    for (size_t i = 0; i < decoded.size(); ++i) {
      EXPECT_EQ(error(topology, -1, i),
                absl::StrCat("from rank ", decoded[i], ": refused"));
    }
  }
}

TEST(TopologyTest, FewBytesTakeATreeWhereTheHopRunsOnOne) {
  float value = 0;
  ExactHop exact({Exact<float>{&value, &value}});
  std::vector<FeedbackVariable> variables = {
      {1, &value, &value, &value, &value}};
  ThreeLcHop three_lc(&variables, 1, 1, nullptr);
  for (const auto& [ranks, most] :
       {std::pair{2, 1 << 12}, {4, 1 << 13}, {32, 1 << 16}, {100, 1 << 16}}) {
    EXPECT_EQ(DefaultTopology(exact, most, ranks).kind, TopologyKind::kTree);
    EXPECT_EQ(DefaultTopology(exact, most + 1, ranks).kind,
              TopologyKind::kSharded);
  }
  EXPECT_EQ(DefaultTopology(three_lc, 4, 2).kind, TopologyKind::kSharded);
  Eigen::half half{};
  Exact<Eigen::half> narrow = {&half, &half};
  const ExactHop gradients({Exact<float>{&value, &value}, narrow});
  EXPECT_EQ(DefaultTopology(gradients, 6, 2).kind, TopologyKind::kSharded);
  narrow.is_statistic = true;
  const ExactHop statistics({Exact<float>{&value, &value}, narrow});
  EXPECT_EQ(DefaultTopology(statistics, 6, 2).kind, TopologyKind::kTree);
}

TEST(TopologyTest, RowsMustMakeATorusOfTheWorkers) {
  for (const int rows : {0, -1, 3, 5, 8}) {
    ExpectIsRefused("torus", rows, 4,
                    absl::StrCat("rows must divide the number of workers, 4, "
                                 "got ",
                                 rows));
  }
}

TEST(TopologyTest, OnlyATorusHasRows) {
  for (const char* const name : {"sharded", "ring", "tree"}) {
    ExpectIsRefused(name, 2, 4, "rows must be 1");
  }
}

}  // namespace
}  // namespace tf_gc
