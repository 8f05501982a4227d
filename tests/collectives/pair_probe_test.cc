#include "ops/collectives/pair_probe.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;
using TimePoint = std::chrono::steady_clock::time_point;

constexpr int64_t kMaxBytes = 1 << 20;

std::atomic<int64_t> nanoseconds{0};

TimePoint Now() { return TimePoint(std::chrono::nanoseconds(nanoseconds)); }

std::vector<absl::Status> Probe(const std::vector<std::vector<int64_t>>& sizes,
                                InProcessNetwork* network,
                                std::vector<std::vector<double>>* seconds) {
  const int ranks = sizes.size();
  seconds->assign(ranks, {});
  return RunRanks(ranks, network, [&](int rank) {
    Mailbox mailbox(network->transport(rank), kTimeoutSeconds);
    return ProbePairs(sizes[rank], {rank, ranks, /*round=*/0, &mailbox},
                      kMaxBytes, &(*seconds)[rank], Now);
  });
}

TEST(TournamentTest, EveryTwoMeetOnceAndNobodyMeetsTwoAtOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::set<std::pair<int, int>> met;
    for (int turn = 0; turn < Turns(ranks); ++turn) {
      for (int rank = 0; rank < ranks; ++rank) {
        const int opponent = Opponent(rank, ranks, turn);
        ASSERT_GE(opponent, 0);
        ASSERT_LT(opponent, ranks);
        ASSERT_EQ(Opponent(opponent, ranks, turn), rank);
        if (opponent != rank) {
          EXPECT_TRUE(met.insert({rank, opponent}).second);
        }
      }
    }
    EXPECT_EQ(met.size(), ranks * (ranks - 1));
    EXPECT_LE(Turns(ranks), ranks);
  }
}

TEST(PairProbeTest, AMessageTakesItsTimeAndThatOfItsAnswer) {
  InProcessNetwork network(2);
  network.SetFault(
      [](Transfer* transfer) { nanoseconds += transfer->bytes.size(); });
  std::vector<std::vector<double>> seconds;
  // The second rank's message may begin before the first one has read its
  // clock, so it has no bytes.
  for (const absl::Status& status :
       Probe({{0, 100'000}, {0, 0}}, &network, &seconds)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(seconds[0][0], 0);
  EXPECT_EQ(seconds[1][1], 0);
  const double answer = 1e-9 * Mailbox::kHeadSize;
  const double message = 1e-9 * (kHeaderSize + 100'000);
  EXPECT_GT(seconds[0][1], message + answer - 1e-10);
  EXPECT_LT(seconds[0][1], message + 3 * answer + 1e-10);
  EXPECT_NEAR(seconds[1][0], 2 * answer, 1e-10);
}

TEST(PairProbeTest, EveryRankHearsOfEveryOther) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    InProcessNetwork network(ranks);
    network.SetFault([](Transfer* transfer) {
      nanoseconds += 1;
      InAnyOrder(transfer);
    });
    std::vector<std::vector<int64_t>> sizes(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int peer = 0; peer < ranks; ++peer) {
        sizes[rank].push_back(1000 * rank * peer);
      }
    }
    std::vector<std::vector<double>> seconds;
    for (const absl::Status& status : Probe(sizes, &network, &seconds)) {
      EXPECT_TRUE(status.ok()) << status;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int peer = 0; peer < ranks; ++peer) {
        EXPECT_EQ(seconds[rank][peer] > 0, rank != peer);
      }
    }
  }
}

TEST(PairProbeTest, WrongSizesAreRefused) {
  struct Case {
    std::vector<int64_t> sizes;
    std::string message;
  };
  for (const Case& wrong :
       {Case{{0}, "sizes must have one number for each of the 2 workers"},
        Case{{0, -1}, "sizes must be 0 ... 1048576 (max_bytes), got -1"},
        Case{{0, kMaxBytes + 1}, "got 1048577"}}) {
    InProcessNetwork network(2);
    std::vector<std::vector<double>> seconds;
    const absl::Status status =
        Probe({wrong.sizes, {0, 0}}, &network, &seconds)[0];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.message));
  }
}

TEST(PairProbeTest, AMessageThatIsTooLargeIsResourceExhausted) {
  InProcessNetwork network(2);
  const std::vector<absl::Status> statuses =
      RunRanks(2, &network, [&](int rank) {
        Mailbox mailbox(network.transport(rank), kTimeoutSeconds);
        std::vector<double> seconds;
        return ProbePairs({0, rank == 0 ? 1000 : 0},
                          {rank, 2, /*round=*/0, &mailbox},
                          /*max_bytes=*/rank == 0 ? 1000 : 900, &seconds);
      });
  EXPECT_TRUE(absl::IsResourceExhausted(statuses[1]));
  EXPECT_THAT(
      std::string(statuses[1].message()),
      testing::HasSubstr("size is 1032, and this worker expects at most 932"));
}

}  // namespace
}  // namespace tf_gc
