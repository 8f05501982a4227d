#include "ops/collectives/topology.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/exact_hop.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string>& AllNames() {
  static const auto* const names =
      new std::vector<std::string>{"sharded", "ring", "tree", "torus"};
  return *names;
}

void ExpectIsRefused(const std::string& name, int rows, int ranks,
                     const std::vector<std::string>& supported,
                     const std::string& message) {
  Topology topology;
  const absl::Status status =
      ParseTopology(name, rows, ranks, supported, &topology);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  EXPECT_EQ(topology, nullptr);
}

// Who sends to whom, as "source>destination".
std::vector<std::string> Edges(const std::string& name, int rows, int ranks) {
  Topology topology;
  EXPECT_TRUE(ParseTopology(name, rows, ranks, AllNames(), &topology).ok());
  InProcessNetwork network(ranks);
  std::set<std::string> edges;
  network.SetFault([&](Transfer* transfer) {
    edges.insert(absl::StrCat(transfer->source, ">", transfer->destination));
  });
  RunRanks(ranks, &network, [&](int rank) {
    std::vector<float> values(100);
    ExactHop<float> hop({{values.data(), values.data()}}, 1);
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

TEST(TopologyTest, UnknownOrUnsupportedNameIsRefusedWithThoseThatAreNot) {
  ExpectIsRefused("star", 1, 4, AllNames(),
                  "topology must be one of sharded, ring, tree, torus, "
                  "got star");
  ExpectIsRefused("tree", 1, 4, {"ring", "torus"},
                  "topology must be one of ring, torus, got tree");
  ExpectIsRefused("star", 1, 4, {"star"}, "there is no topology star");
}

TEST(TopologyTest, RowsMustMakeATorusOfTheWorkers) {
  for (const int rows : {0, -1, 3, 5, 8}) {
    ExpectIsRefused("torus", rows, 4, AllNames(),
                    absl::StrCat("rows must divide the number of workers, 4, "
                                 "got ",
                                 rows));
  }
}

TEST(TopologyTest, OnlyATorusHasRows) {
  for (const char* const name : {"sharded", "ring", "tree"}) {
    ExpectIsRefused(name, 2, 4, AllNames(), "rows must be 1");
  }
}

}  // namespace
}  // namespace tf_gc
