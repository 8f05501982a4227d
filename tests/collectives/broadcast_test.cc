#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/plain_exchange.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> RandomBytes(int64_t size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = generator();
  return bytes;
}

struct Result {
  absl::Status status;
  std::vector<uint8_t> received;
  int receivers = 0;
};

// Every rank has bytes of its own, rank r those of RandomBytes(sizes[r], r).
std::vector<Result> RunBroadcast(const std::vector<int64_t>& sizes, int root,
                                 InProcessNetwork* network,
                                 double timeout_seconds = kTimeoutSeconds) {
  const int ranks = sizes.size();
  std::vector<Result> results(ranks);
  const std::vector<absl::Status> statuses =
      RunRanks(ranks, network, [&](int rank) {
        Mailbox mailbox(network->transport(rank), timeout_seconds);
        const std::vector<uint8_t> data = RandomBytes(sizes[rank], rank);
        Bytes received;
        const absl::Status status =
            Broadcast(data.data(), data.size(), root,
                      {rank, ranks, /*round=*/3, &mailbox}, &received,
                      &results[rank].receivers);
        results[rank].received.assign(received.data(),
                                      received.data() + received.size());
        return status;
      });
  for (int rank = 0; rank < ranks; ++rank) {
    results[rank].status = statuses[rank];
  }
  return results;
}

TEST(BroadcastTest, GivesAllRanksTheBytesOfTheRoot) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      std::vector<int64_t> sizes = {0, 1, 700, 224, 3000, 0, 225, 17, 5};
      sizes.resize(ranks);
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, root ", root));
      InProcessNetwork network(ranks);
      network.SetFault(InAnyOrder);
      int receivers = 0;
      for (const Result& result : RunBroadcast(sizes, root, &network)) {
        EXPECT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(result.received, RandomBytes(sizes[root], root));
        receivers += result.receivers;
      }
      EXPECT_EQ(receivers, ranks - 1);
    }
  }
}

TEST(BroadcastTest, LongBytesArriveInParts) {
  const std::vector<int64_t> sizes(3, int64_t{9} << 20);
  InProcessNetwork network(3);
  network.SetFault(InAnyOrder);
  for (const Result& result : RunBroadcast(sizes, 2, &network)) {
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.received, RandomBytes(sizes[2], 2));
  }
}

TEST(BroadcastTest, TheRootSendsNoMoreThanTheLogarithmOfTheRanks) {
  InProcessNetwork network(8);
  const std::vector<Result> results =
      RunBroadcast(std::vector<int64_t>(8, 10), 5, &network);
  EXPECT_EQ(results[5].receivers, 3);
}

TEST(BroadcastTest, RootThatIsNoRankIsRefused) {
  for (const int root : {-1, 3, 100}) {
    InProcessNetwork network(3);
    for (const Result& result : RunBroadcast({1, 1, 1}, root, &network)) {
      EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(
          std::string(result.status.message()),
          HasSubstr(absl::StrCat("root must be the rank of a worker, 0 ... 2, "
                                 "got ",
                                 root)));
    }
  }
}

TEST(BroadcastTest, MoreBytesThanAMessageCarriesAreRefused) {
  InProcessNetwork network(1);
  Mailbox mailbox(network.transport(0), kTimeoutSeconds);
  Bytes received;
  int receivers;
  EXPECT_EQ(Broadcast(nullptr, int64_t{1} << 31, 0, {0, 1, 0, &mailbox},
                      &received, &receivers)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

// Of rank 3, whose bytes come from rank 0 by way of rank 2.
absl::Status UnderFault(const InProcessNetwork::Fault& fault,
                        double timeout_seconds = kTimeoutSeconds) {
  InProcessNetwork network(4);
  network.SetFault([&](Transfer* transfer) {
    if (transfer->destination == 3) fault(transfer);
  });
  return RunBroadcast({500, 0, 0, 0}, 0, &network, timeout_seconds)[3].status;
}

TEST(BroadcastFaultTest, DamagedHeaderIsDataLoss) {
  for (const int i : {0, 5, 6, 7, 8, 12, 16, 28, 31}) {
    const absl::Status status =
        UnderFault([i](Transfer* transfer) { transfer->bytes[i] ^= 0x80; });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "byte " << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr("from rank 2: "));
  }
}

TEST(BroadcastFaultTest, LostConnectionIsUnavailable) {
  EXPECT_EQ(UnderFault([](Transfer* transfer) {
              transfer->status = absl::UnavailableError("connection reset");
            }).code(),
            absl::StatusCode::kUnavailable);
}

TEST(BroadcastFaultTest, TheRootThatGetsNothingLearnsOfAFailure) {
  InProcessNetwork network(4);
  network.SetFault([](Transfer* transfer) {
    if (transfer->destination != 0) return;
    transfer->status = absl::UnavailableError("connection reset");
  });
  EXPECT_EQ(RunBroadcast({500, 0, 0, 0}, 0, &network)[0].status.code(),
            absl::StatusCode::kUnavailable);
}

TEST(BroadcastFaultTest, DeadPeerIsDeadlineExceeded) {
  const absl::Status status =
      UnderFault([](Transfer* transfer) { transfer->dropped = true; }, 0.05);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
      << status;
}

}  // namespace
}  // namespace tf_gc
