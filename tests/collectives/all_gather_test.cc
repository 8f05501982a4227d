#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/collectives/plain_message.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::HasSubstr;

using Data = std::vector<std::vector<uint8_t>>;  // of every rank

// What every rank gets of every other.
std::vector<absl::Status> Gather(const Data& data, InProcessNetwork* network,
                                 std::vector<Data>* gathered,
                                 double timeout_seconds = kTimeoutSeconds,
                                 const std::vector<uint32_t>& rounds = {},
                                 int64_t max_bytes = kMaxPlainBytes) {
  const int ranks = data.size();
  gathered->assign(ranks, {});
  return RunRanks(ranks, network, [&](int rank) {
    Mailbox mailbox(network->transport(rank), timeout_seconds);
    std::vector<Bytes> parts;
    const absl::Status status =
        AllGather([&] { return data[rank].data(); }, data[rank].size(),
                  {rank, ranks, rounds.empty() ? 0 : rounds[rank], &mailbox},
                  &parts, max_bytes);
    for (const Bytes& part : parts) {
      (*gathered)[rank].emplace_back(part.data(), part.data() + part.size());
    }
    return status;
  });
}

Data RandomData(int ranks, uint32_t seed) {
  std::mt19937 generator(seed);
  Data data;
  for (int rank = 0; rank < ranks; ++rank) {
    data.emplace_back(generator() % 3 == 0 ? 0 : generator() % 2000);
    for (uint8_t& byte : data.back()) byte = generator();
  }
  return data;
}

TEST(AllGatherTest, GivesAllRanksTheBytesOfAllInTheirOrder) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, seed ", seed));
      const Data data = RandomData(ranks, seed);
      InProcessNetwork network(ranks);
      network.SetFault(InAnyOrder);
      std::vector<Data> gathered;
      for (const absl::Status& status : Gather(data, &network, &gathered)) {
        EXPECT_TRUE(status.ok()) << status;
      }
      for (const Data& all : gathered) EXPECT_EQ(all, data);
    }
  }
}

constexpr int64_t kFewBytes = 2000;

TEST(AllGatherTest, FewBytesTakeAMessageForEachDoublingOfMoreThanFourRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    const Data data = RandomData(ranks, ranks);
    InProcessNetwork network(ranks);
    std::vector<int> messages(ranks);
    network.SetFault([&](Transfer* transfer) {
      transfer->overtakable = true;
      if (transfer->tag.find("rest") == std::string::npos) {
        ++messages[transfer->source];
      }
    });
    std::vector<Data> gathered;
    for (const absl::Status& status :
         Gather(data, &network, &gathered, kTimeoutSeconds, {}, kFewBytes)) {
      EXPECT_TRUE(status.ok()) << status;
    }
    for (const Data& all : gathered) EXPECT_EQ(all, data);
    int hops = 0;
    while (1 << hops < ranks) ++hops;
    EXPECT_THAT(messages, ::testing::Each(ranks > 4 ? hops : ranks - 1));
  }
}

TEST(AllGatherTest, PartsThatAreNotThoseOfTheMessageAreDataLoss) {
  const struct {
    uint32_t size;  // of the first of two parts, of 4 bytes each
    const char* message;
  } parts[] = {
      {3, "part 1 of 2 has"},
      {2001, "part 0 of 2 has 2001 bytes of at most 2000"},
      {12, "part 1 of 2 has 0 bytes of at most 2000, and 0 are left"},
      {0, "are behind its last part"},
  };
  for (const auto& part : parts) {
    InProcessNetwork network(5);
    network.SetFault([&](Transfer* transfer) {
      if (transfer->tag != "contribution:1" || transfer->destination != 0) {
        return;
      }
      std::memcpy(&transfer->bytes[kHeaderSize], &part.size, sizeof(part.size));
      SealAgain(transfer);
    });
    std::vector<Data> gathered;
    const Data data(5, std::vector<uint8_t>(4, 0));
    ExpectDataLoss(
        Gather(data, &network, &gathered, kTimeoutSeconds, {}, kFewBytes)[0],
        part.message);
  }
}

TEST(AllGatherTest, BytesThatFillAHeadAndMoreArrive) {
  Data data;
  for (const int size : {223, 224, 225, 5 << 20}) {
    data.emplace_back(size, static_cast<uint8_t>(size));
  }
  InProcessNetwork network(data.size());
  network.SetFault(InAnyOrder);
  std::vector<Data> gathered;
  for (const absl::Status& status : Gather(data, &network, &gathered)) {
    EXPECT_TRUE(status.ok()) << status;
  }
  for (const Data& all : gathered) EXPECT_EQ(all, data);
}

// Notes what is asked for, which never comes.
class Silence : public Transport {
 public:
  std::vector<int> asked;

  int rank() const override { return 0; }
  int size() const override { return 3; }
  std::string PeerName(int peer) const override { return absl::StrCat(peer); }
  void Send(int, const std::string&, const Bytes&, Done done) override {
    done(absl::UnavailableError("nobody is there"));
  }
  void Receive(int peer, const std::string&, const Bytes&, Done done) override {
    asked.push_back(peer);
    done_.push_back(std::move(done));
  }
  void Cancel() override {
    for (const Done& done : std::exchange(done_, {})) {
      done(absl::CancelledError());
    }
  }

 private:
  std::vector<Done> done_;
};

TEST(AllGatherTest, OthersAreAskedBeforeOnesOwnIsMade) {
  for (const int64_t max_bytes : {int64_t{1}, kMaxPlainBytes}) {
    Silence transport;
    Mailbox mailbox(&transport, kTimeoutSeconds);
    const std::vector<uint8_t> data = {1};
    size_t asked = 0;
    const auto own = [&] {
      asked = transport.asked.size();
      return data.data();
    };
    std::vector<Bytes> parts;
    EXPECT_FALSE(
        AllGather(own, 1, {0, 3, 0, &mailbox}, &parts, max_bytes).ok());
    EXPECT_EQ(asked, 2);
  }
}

TEST(AllGatherTest, MoreBytesThanAMessageCarriesAreRefused) {
  InProcessNetwork network(1);
  Mailbox mailbox(network.transport(0), kTimeoutSeconds);
  std::vector<Bytes> parts;
  const absl::Status status = AllGather(
      [] { return nullptr; }, int64_t{1} << 31, {0, 1, 0, &mailbox}, &parts);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("data must have at most 2147483647 bytes"));
}

// Of rank 1, when what rank 0 sends meets with a fault.
absl::Status UnderFault(const InProcessNetwork::Fault& fault,
                        double timeout_seconds = kTimeoutSeconds) {
  InProcessNetwork network(3);
  network.SetFault([&](Transfer* transfer) {
    if (transfer->source == 0 && transfer->destination == 1) fault(transfer);
  });
  std::vector<Data> gathered;
  return Gather(RandomData(3, 7), &network, &gathered, timeout_seconds)[1];
}

TEST(AllGatherFaultTest, DamagedByteOfTheHeaderIsAnError) {
  for (int i = 0; i < kHeaderSize; ++i) {
    const absl::Status status =
        UnderFault([i](Transfer* transfer) { transfer->bytes[i] ^= 0x80; });
    EXPECT_EQ(status.code(), i == 4 ? absl::StatusCode::kFailedPrecondition
                                    : absl::StatusCode::kDataLoss)
        << "byte " << i << ": " << status;
  }
}

TEST(AllGatherFaultTest,
     SizeBeyondTheLimitIsResourceExhaustedBeforeAnythingIsAllocated) {
  const absl::Status status = UnderFault([](Transfer* transfer) {
    transfer->bytes[24 + 3] = 0xff;  // almost 2^32 bytes
    SealAgain(transfer);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expects at most 2147483679"));
}

TEST(AllGatherFaultTest, LostConnectionIsUnavailable) {
  EXPECT_EQ(UnderFault([](Transfer* transfer) {
              transfer->status = absl::UnavailableError("connection reset");
            }).code(),
            absl::StatusCode::kUnavailable);
}

TEST(AllGatherFaultTest, DeadPeerIsDeadlineExceeded) {
  const absl::Status status =
      UnderFault([](Transfer* transfer) { transfer->dropped = true; }, 0.05);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status))
      << status;
}

TEST(AllGatherFaultTest, RanksThatHaveLostStepAreDataLoss) {
  InProcessNetwork network(2);
  std::vector<Data> gathered;
  const std::vector<absl::Status> statuses =
      Gather(RandomData(2, 1), &network, &gathered, kTimeoutSeconds, {4, 5});
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("round is"));
  }
}

}  // namespace
}  // namespace tf_gc
