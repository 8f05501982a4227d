// The exchange of uncompressed values.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/topology.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

template <typename T>
using Variables = std::vector<std::vector<T>>;

// All-reduces in place what the ranks hold.
template <typename T>
std::vector<absl::Status> ExactAllReduce(std::vector<Variables<T>>* ranks,
                                         float divisor, int64_t piece_values,
                                         InProcessNetwork* network,
                                         const Topology& topology = kSharded) {
  return RunRanks(ranks->size(), network, [&](int rank) {
    std::vector<ExactVariable> variables;
    std::vector<int64_t> sizes;
    for (std::vector<T>& values : (*ranks)[rank]) {
      variables.push_back(Exact<T>{values.data(), values.data(), divisor});
      sizes.push_back(values.size());
    }
    InPieces<ExactHop> hop(piece_values, variables);
    return AllReduce(sizes, 0, network->transport(rank), &hop, topology);
  });
}

template <typename T>
void ExpectOk(std::vector<Variables<T>>* ranks, float divisor,
              int64_t piece_values, const Topology& topology = kSharded) {
  InProcessNetwork network(ranks->size());
  network.SetFault(InAnyOrder);
  for (const absl::Status& status :
       ExactAllReduce(ranks, divisor, piece_values, &network, topology)) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

template <typename T>
class ExactExchangeTest : public testing::Test {
 protected:
  // Integers so small that all of their sums are exact in every type.
  static std::vector<Variables<T>> RandomIntegers(int ranks) {
    std::mt19937 generator(ranks);
    std::vector<Variables<T>> all(ranks);
    for (Variables<T>& variables : all) {
      for (const int64_t size : {0, 1, 3, 17, 100, 0, 257, 5, 64}) {
        variables.emplace_back(size);
        for (T& value : variables.back()) {
          value = static_cast<T>(static_cast<int>(generator() % 51) - 25);
        }
      }
    }
    return all;
  }

  static void ExpectIsSum(int ranks, float divisor, int64_t piece_values,
                          const Topology& topology = kSharded) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks, pieces of ", piece_values));
    const std::vector<Variables<T>> inputs = RandomIntegers(ranks);
    std::vector<Variables<T>> outputs = inputs;
    ExpectOk(&outputs, divisor, piece_values, topology);
    for (size_t v = 0; v < inputs[0].size(); ++v) {
      for (size_t i = 0; i < inputs[0][v].size(); ++i) {
        float sum = 0;
        for (const Variables<T>& input : inputs) {
          sum += static_cast<float>(input[v][i]);
        }
        const T expected = static_cast<T>(sum / divisor);
        for (const Variables<T>& output : outputs) {
          ASSERT_EQ(output[v][i], expected) << "variable " << v << ", " << i;
        }
      }
    }
  }
};

using Types = testing::Types<float, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(ExactExchangeTest, Types);

TYPED_TEST(ExactExchangeTest, GivesAllRanksTheSum) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int64_t piece_values : {11, 64, 1 << 20}) {
      this->ExpectIsSum(ranks, 1, piece_values);
    }
  }
}

TYPED_TEST(ExactExchangeTest, GivesAllRanksTheMean) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    this->ExpectIsSum(ranks, static_cast<float>(ranks), 50);
  }
}

TYPED_TEST(ExactExchangeTest, RingGivesAllRanksTheMean) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int64_t piece_values : {11, 64, 1 << 20}) {
      this->ExpectIsSum(ranks, static_cast<float>(ranks), piece_values, kRing);
    }
  }
}

TYPED_TEST(ExactExchangeTest, TorusGivesAllRanksTheMean) {
  const int shapes[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 2},
                           {2, 3}, {3, 2}, {4, 2}, {3, 3}};
  for (const auto& [rows, columns] : shapes) {
    SCOPED_TRACE(absl::StrCat(rows, " rows"));
    this->ExpectIsSum(rows * columns, static_cast<float>(rows * columns), 31,
                      TorusOf(rows));
  }
}

TYPED_TEST(ExactExchangeTest, TreeGivesAllRanksTheMean) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t piece_values : {31, 1 << 20}) {
      this->ExpectIsSum(ranks, static_cast<float>(ranks), piece_values, kTree);
    }
  }
}

TYPED_TEST(ExactExchangeTest, FewerValuesThanRanks) {
  using T = TypeParam;
  std::vector<Variables<T>> ranks(4, {{T(1), T(2)}, {}});
  ExpectOk(&ranks, 1, 100);
  for (const Variables<T>& variables : ranks) {
    EXPECT_EQ(variables, (Variables<T>{{T(4), T(8)}, {}}));
  }
}

TYPED_TEST(ExactExchangeTest, NonFiniteValuesArriveAsInAnySum) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Variables<T>> ranks(3, {{T(1), T(1), T(1), T(1)}});
  ranks[0][0] = {T(infinity), T(nan), T(infinity), T(7)};
  ranks[2][0] = {T(1), T(1), T(-infinity), T(1)};
  ExpectOk(&ranks, 1, 100);
  for (const Variables<T>& variables : ranks) {
    EXPECT_EQ(static_cast<float>(variables[0][0]), infinity);
    EXPECT_TRUE(std::isnan(static_cast<float>(variables[0][1])));
    EXPECT_TRUE(std::isnan(static_cast<float>(variables[0][2])));
    EXPECT_EQ(static_cast<float>(variables[0][3]), 9);
  }
}

TEST(ExactExchangeOfHalfTest, IsAddedInFloat32AndRoundedOnce) {
  // In float16 2048 + 1 is 2048.
  using T = Eigen::half;
  std::vector<Variables<T>> ranks = {
      {{T(2048)}}, {{T(1)}}, {{T(1)}}, {{T(1)}}, {{T(1)}}};
  ExpectOk(&ranks, 1, 100);
  for (const Variables<T>& variables : ranks) {
    EXPECT_EQ(static_cast<float>(variables[0][0]), 2052);
  }
}

// What happens to two ranks that hold 32 ones each, under a fault. Every
// message is a head, which is filled to the last byte.
std::vector<absl::Status> UnderFault(const InProcessNetwork::Fault& fault) {
  using T = Eigen::half;
  std::vector<Variables<T>> ranks(2, {std::vector<T>(32, T(1))});
  InProcessNetwork network(2);
  network.SetFault(fault);
  return ExactAllReduce(&ranks, 1, 1000, &network);
}

TEST(ExactExchangeFaultTest, BodyOfAnotherSizeIsDataLoss) {
  // The piece 0 is of shard 0, the piece 1 of shard 1.
  for (const char* tag : {"contribution:1", "sum:0"}) {
    const std::vector<absl::Status> statuses =
        UnderFault([tag](Transfer* transfer) {
          if (transfer->source == 0 && transfer->tag == tag) {
            transfer->bytes[24] -= 2;  // the header's size
            SealAgain(transfer);
          }
        });
    ExpectDataLoss(statuses[1], "body has");
  }
}

TEST(ExactExchangeFaultTest, LostConnectionIsUnavailable) {
  for (const absl::Status& status : UnderFault([](Transfer* transfer) {
         transfer->status = absl::UnavailableError("connection reset");
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST(ExactExchangeMixedTest, EachTypeTravelsAsItDoesAloneAndHasItsDivisor) {
  constexpr int kRanks = 3;
  const std::vector<int64_t> sizes = {40, 1, 33};
  for (const int64_t piece_values : {16, 1 << 20}) {
    InProcessNetwork network(kRanks);
    network.SetFault(InAnyOrder);
    std::vector<std::vector<VariableTraffic>> traffic(kRanks);
    const std::vector<absl::Status> statuses =
        RunRanks(kRanks, &network, [&](int rank) {
          // Sums of which float16 and bfloat16 cannot hold all bits.
          std::vector<Eigen::bfloat16> bfloats(
              sizes[0], Eigen::bfloat16(1 + rank / 64.f));
          std::vector<float> floats(sizes[1], 1 + rank * 0x1p-20f);
          std::vector<Eigen::half> halves(sizes[2],
                                          Eigen::half(1 + rank * 0x1p-10f));
          InPieces<ExactHop> hop(
              piece_values,
              std::vector<ExactVariable>{
                  Exact<Eigen::bfloat16>{bfloats.data(), bfloats.data()},
                  Exact<float>{floats.data(), floats.data(), 2},
                  Exact<Eigen::half>{halves.data(), halves.data()}});
          EXPECT_EQ(hop.codec(), Codec::kMixedFloats);
          Mailbox mailbox(network.transport(rank), kTimeoutSeconds);
          const absl::Status status =
              AllReduce(sizes, kSharded, {rank, kRanks, /*round=*/0, &mailbox},
                        &hop, &traffic[rank]);
          EXPECT_THAT(bfloats, Each(Eigen::bfloat16(3 + 3 / 64.f)));
          EXPECT_THAT(floats, Each((3 + 3 * 0x1p-20f) / 2));
          EXPECT_THAT(halves, Each(Eigen::half(3 + 3 * 0x1p-10f)));
          return status;
        });
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(statuses[rank].ok()) << statuses[rank];
      EXPECT_EQ(traffic[rank][0].bytes, 2 * traffic[rank][0].values);
      EXPECT_EQ(traffic[rank][1].bytes, 4 * traffic[rank][1].values);
      EXPECT_EQ(traffic[rank][2].bytes, 2 * traffic[rank][2].values);
    }
  }
}

TEST(ExactExchangeFaultTest, RanksOfDifferentTypesAreDataLoss) {
  InProcessNetwork network(2);
  std::vector<float> floats(10);
  std::vector<Eigen::half> halves(20);
  const std::vector<absl::Status> statuses =
      RunRanks(2, &network, [&](int rank) {
        Transport* const transport = network.transport(rank);
        if (rank == 0) {
          ExactHop hop({Exact<float>{floats.data(), floats.data()}});
          return AllReduce({0}, 0, transport, &hop);
        }
        ExactHop hop({Exact<Eigen::half>{halves.data(), halves.data()}});
        return AllReduce({0}, 0, transport, &hop);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.code() == absl::StatusCode::kDataLoss ||
                status.code() == absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("codec is"));
  }
}

}  // namespace
}  // namespace tf_gc
