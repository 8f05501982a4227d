#include "ops/collectives/mailbox.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/wire/checksum.h"
#include "tests/collectives/in_process_transport.h"

namespace tf_gc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMaxSize = 1000;

Header MakeHeader(int64_t size, Phase phase = Phase::kContribution,
                  uint32_t piece = 0) {
  return {Codec::kThreeLc, phase,          piece,
          /*round=*/5,
          /*values=*/77,   /*checksum=*/0, static_cast<uint32_t>(size)};
}

// A message with the body 0, 1, 2, ... and rubbish behind it.
Bytes MakeMessage(int64_t size) {
  const Bytes message(kMaxSize);
  std::memset(message.data(), 0xee, kMaxSize);
  for (int64_t i = kHeaderSize; i < size; ++i) {
    message.data()[i] = (i - kHeaderSize) % 256;
  }
  return message;
}

void SendMessage(const std::vector<int>& peers, const Header& header,
                 const Bytes& buffer, Mailbox* mailbox) {
  mailbox->Send(peers, header, mailbox->Seal(header, buffer));
}

void ExpectIsMessage(const Bytes& message, int64_t size) {
  ASSERT_EQ(message.size(), size);
  std::vector<uint8_t> header(kHeaderSize);
  Header expected = MakeHeader(size);
  expected.checksum =
      Checksum(message.data() + kHeaderSize, size - kHeaderSize);
  WriteHeader(expected, header.data());
  EXPECT_EQ(std::vector<uint8_t>(message.data(), message.data() + kHeaderSize),
            header);
  for (int64_t i = kHeaderSize; i < size; ++i) {
    ASSERT_EQ(message.data()[i], (i - kHeaderSize) % 256) << "byte " << i;
  }
}

// Rank 0 sends to rank 1, on one thread.
class MailboxTest : public testing::Test {
 protected:
  MailboxTest() {
    network_.SetFault([this](Transfer* transfer) {
      transfers_.push_back(*transfer);
      if (fault_) fault_(transfer);
    });
  }

  void Send(int64_t size) {
    SendMessage({1}, MakeHeader(size), MakeMessage(size), &sender_);
  }
  void Expect() { receiver_.Expect(0, MakeHeader(0), kMaxSize); }
  absl::Status Take(Bytes* message) {
    return receiver_.Take(0, Phase::kContribution, 0, message);
  }
  absl::Status Take() {
    Bytes message;
    return Take(&message);
  }
  std::vector<int64_t> TransferSizes() const {
    std::vector<int64_t> sizes;
    for (const Transfer& transfer : transfers_) {
      sizes.push_back(transfer.bytes.size());
    }
    return sizes;
  }

  std::vector<Transfer> transfers_;  // what was sent
  InProcessNetwork::Fault fault_;
  InProcessNetwork network_{2};
  Mailbox sender_{network_.transport(0), 5};
  Mailbox receiver_{network_.transport(1), 5};
};

TEST_F(MailboxTest, MessageUpTo64BytesIsAHeadFilledUpWithZeros) {
  for (const int64_t size :
       {int64_t{32}, int64_t{33}, int64_t{63}, int64_t{64}}) {
    transfers_.clear();
    Expect();
    Send(size);
    Bytes message;
    ASSERT_TRUE(Take(&message).ok());
    ExpectIsMessage(message, size);
    ASSERT_THAT(TransferSizes(), ElementsAre(64));
    for (int64_t i = size; i < 64; ++i) EXPECT_EQ(transfers_[0].bytes[i], 0);
    EXPECT_TRUE(sender_.Flush().ok());
  }
}

TEST_F(MailboxTest, LongerMessageIsAHeadAndARemainder) {
  for (const int64_t size : {int64_t{65}, int64_t{600}, kMaxSize}) {
    transfers_.clear();
    Send(size);
    Expect();
    Bytes message;
    ASSERT_TRUE(Take(&message).ok());
    ExpectIsMessage(message, size);
    EXPECT_THAT(TransferSizes(), ElementsAre(64, size - 64));
    EXPECT_TRUE(sender_.Flush().ok());
  }
}

// A message in which every eight bytes tell where they belong.
Bytes MakeLongMessage(int64_t size) {
  const Bytes message(size);
  std::memset(message.data(), 0, size);
  for (int64_t i = kHeaderSize; i + 8 <= size; i += 8) {
    std::memcpy(message.data() + i, &i, 8);
  }
  return message;
}

TEST(LongMessageTest, ComesInPartsInWhateverOrder) {
  constexpr int64_t kPart = Mailbox::kPartSize;
  for (const int64_t size :
       {64 + kPart, 65 + kPart, 64 + 8 * kPart, 65 + 17 * kPart}) {
    InProcessNetwork network(2);
    std::atomic<int> transfers{0};
    network.SetFault([&](Transfer* transfer) {
      EXPECT_LE(transfer->bytes.size(), kPart);
      ++transfers;
      transfer->overtakable = true;
    });
    Mailbox sender(network.transport(0), 20),
        receiver(network.transport(1), 20);
    const Bytes sent = MakeLongMessage(size);
    SendMessage({1}, MakeHeader(size), sent, &sender);
    receiver.Expect(0, MakeHeader(0), size);
    Bytes message;
    ASSERT_TRUE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
    ASSERT_EQ(message.size(), size);
    EXPECT_EQ(std::memcmp(message.data(), sent.data(), size), 0);
    EXPECT_EQ(transfers, 1 + (size - 64 + kPart - 1) / kPart);
    EXPECT_TRUE(sender.Flush().ok());
  }
}

TEST(LongMessageTest, OnlySomePartsAreUnderWayAtOnce) {
  constexpr int64_t kSize = 64 + 20 * Mailbox::kPartSize;
  InProcessNetwork network(2);
  int transfers = 0;
  network.SetFault([&](Transfer* transfer) {
    ++transfers;
    transfer->dropped = transfer->tag != "contribution:0";
  });
  Mailbox sender(network.transport(0), 0.05);
  SendMessage({1}, MakeHeader(kSize), MakeLongMessage(kSize), &sender);
  Mailbox receiver(network.transport(1), 0.05);
  receiver.Expect(0, MakeHeader(0), kSize);
  EXPECT_EQ(transfers, 1 + Mailbox::kPartsAtOnce);
  Bytes message;
  EXPECT_EQ(receiver.Take(0, Phase::kContribution, 0, &message).code(),
            absl::StatusCode::kDeadlineExceeded);
}

// Steps of one message from rank 0 to rank 1, whose sizes both remember.
class RememberingTest : public testing::Test {
 protected:
  // What the transport was handed for a message of this size.
  std::vector<int64_t> Step(int64_t size, Phase phase = Phase::kContribution) {
    InProcessNetwork network(2);
    std::vector<int64_t> sizes;
    network.SetFault([&](Transfer* transfer) {
      sizes.push_back(transfer->bytes.size());
      for (int64_t i = size; i < sizes[0]; ++i) {
        EXPECT_EQ(transfer->bytes[i], 0) << "padding";
      }
    });
    const auto mailbox = [&](int rank) {
      SizeHistory* const history = &histories_[ranks_[rank]];
      history->BeginStep();
      return std::make_unique<Mailbox>(network.transport(rank), Patience(5),
                                       nullptr, 0, nullptr, history);
    };
    const auto sender = mailbox(0), receiver = mailbox(1);
    receiver->Expect(0, MakeHeader(0, phase), size);
    SendMessage({1}, MakeHeader(size, phase), MakeLongMessage(size),
                sender.get());
    Bytes message;
    EXPECT_TRUE(receiver->Take(0, phase, 0, &message).ok());
    EXPECT_EQ(message.size(), size);
    const Bytes expected = MakeLongMessage(size);
    EXPECT_EQ(std::memcmp(message.data() + kHeaderSize,
                          expected.data() + kHeaderSize, size - kHeaderSize),
              0);
    EXPECT_TRUE(sender->Flush().ok());
    EXPECT_TRUE(receiver->Flush().ok());
    return sizes;
  }

  SizeHistory histories_[2];
  int ranks_[2] = {0, 1};  // whose histories they have
};

TEST_F(RememberingTest, MessageNoLongerThanTheLastOnesIsOneTransfer) {
  EXPECT_THAT(Step(600), ElementsAre(64, 536));
  EXPECT_THAT(Step(600), ElementsAre(600));
  EXPECT_THAT(Step(500), ElementsAre(600));
  EXPECT_THAT(Step(40), ElementsAre(600));
}

TEST_F(RememberingTest, LongerMessageHasARest) {
  Step(600);
  EXPECT_THAT(Step(601), ElementsAre(600, 1));
  EXPECT_THAT(Step(700), ElementsAre(601, 99));
}

TEST_F(RememberingTest, OpeningIsAHeadAtLeastAndAPartAtMost) {
  constexpr int64_t kMost = Mailbox::kMaxOpeningSize;
  Step(33);
  EXPECT_THAT(Step(33, Phase::kContribution), ElementsAre(64));
  Step(2 * kMost);
  EXPECT_THAT(Step(kMost + 5), ElementsAre(kMost, 5));
}

TEST_F(RememberingTest, ResultsAreRememberedWhoeverSendsThem) {
  Step(600, Phase::kSum);
  std::swap(ranks_[0], ranks_[1]);
  EXPECT_THAT(Step(600, Phase::kSum), ElementsAre(600));
}

TEST_F(RememberingTest, OneThatMeasuresLinksDoesSoWithTheFirstOfEachPhase) {
  SizeHistory::Sizes sent, received;
  for (const Phase phase : {Phase::kContribution, Phase::kSum}) {
    for (const uint32_t piece : {0, 1}) {
      const bool is_sum = phase == Phase::kSum;
      const int end = SizeHistory::kAllPeers;
      sent[{Codec::kThreeLc, phase, piece, is_sum ? end : 1, !is_sum}] = 600;
      received[{Codec::kThreeLc, phase, piece, is_sum ? end : 0, false}] = 600;
    }
  }
  const std::map<LinkMeasurement, std::vector<int64_t>> expected = {
      {LinkMeasurement::kNone, {600, 600, 600, 600}},
      {LinkMeasurement::kBandwidth, {32, 600, 32, 600, 600, 600}},
      {LinkMeasurement::kLatency, {600, 32, 600, 32, 600, 600}},
  };
  for (const auto& [measurement, transfers] : expected) {
    histories_[0].EndExchange(sent);
    histories_[1].EndExchange(received);
    for (SizeHistory& history : histories_) history.BeginStep();
    InProcessNetwork network(2);
    std::vector<int64_t> sizes;
    network.SetFault(
        [&](Transfer* transfer) { sizes.push_back(transfer->bytes.size()); });
    Mailbox sender(network.transport(0), Patience(5), nullptr, 0, nullptr,
                   &histories_[0], measurement);
    Mailbox receiver(network.transport(1), Patience(5), nullptr, 0, nullptr,
                     &histories_[1], measurement);
    for (const uint32_t piece : {1, 0}) {
      for (const Phase phase : {Phase::kContribution, Phase::kSum}) {
        receiver.Expect(0, MakeHeader(0, phase, piece), kMaxSize);
        SendMessage({1}, MakeHeader(600, phase, piece), MakeMessage(600),
                    &sender);
        Bytes message;
        EXPECT_TRUE(receiver.Take(0, phase, piece, &message).ok());
      }
    }
    EXPECT_EQ(sizes, transfers);
    EXPECT_TRUE(sender.Flush().ok());
    EXPECT_TRUE(receiver.Flush().ok());
  }
}

TEST(MailboxMeasurementTest, TheExchangeEndsWithWhatMeasuresTheLink) {
  for (const auto measurement :
       {LinkMeasurement::kBandwidth, LinkMeasurement::kLatency}) {
    for (const bool flushes : {true, false}) {
      InProcessNetwork network(2);
      network.SetFault([](Transfer* transfer) {
        transfer->dropped = transfer->tag == "contribution:0:measurement";
      });
      Mailbox sender(network.transport(0), Patience(60), nullptr, 0, nullptr,
                     nullptr, measurement);
      Mailbox receiver(network.transport(1), Patience(0.2), nullptr, 0, nullptr,
                       nullptr, measurement);
      receiver.Expect(0, MakeHeader(0), kMaxSize);
      SendMessage({1}, MakeHeader(600), MakeMessage(600), &sender);
      Bytes message;
      EXPECT_TRUE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
      if (!flushes) continue;  // the mailboxes end all the same
      const absl::Status status = receiver.Flush();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(), HasSubstr("nothing comes from rank 0"));
    }
  }
}

TEST_F(RememberingTest, WorkersThatRememberOtherSizesGetAnError) {
  histories_[0].EndExchange(
      {{{Codec::kThreeLc, Phase::kContribution, 0, 1, true}, 600}});
  InProcessNetwork network(2);
  histories_[0].BeginStep();
  Mailbox sender(network.transport(0), Patience(5), nullptr, 0, nullptr,
                 &histories_[0]);
  Mailbox receiver(network.transport(1), Patience(5), nullptr, 0, nullptr,
                   &histories_[1]);
  receiver.Expect(0, MakeHeader(0), kMaxSize);
  SendMessage({1}, MakeHeader(80), MakeMessage(80), &sender);
  Bytes message;
  EXPECT_FALSE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
  EXPECT_FALSE(sender.Flush().ok());
}

TEST_F(MailboxTest, CountsWhatTheTransportWasHanded) {
  Expect();
  Send(600);
  ASSERT_TRUE(Take().ok());
  EXPECT_EQ(sender_.bytes_sent(), 600);
  EXPECT_EQ(sender_.bytes_received(), 0);
  EXPECT_EQ(receiver_.bytes_received(), 600);
  EXPECT_EQ(receiver_.bytes_sent(), 0);
}

TEST_F(MailboxTest, CountsBytesOfResultsApart) {
  Send(600);
  EXPECT_EQ(sender_.result_bytes_sent(), 0);
  SendMessage({1}, MakeHeader(700, Phase::kSum), MakeMessage(700), &sender_);
  EXPECT_EQ(sender_.bytes_sent(), 1300);
  EXPECT_EQ(sender_.result_bytes_sent(), 700);
}

TEST(MailboxWaitTest, CountsHowLongItHasWaited) {
  using Clock = Patience::Clock;
  constexpr auto kFirstReport = std::chrono::milliseconds(10);
  InProcessNetwork network(2);
  Mailbox sender(network.transport(0), 60);
  std::promise<void> waits;
  bool has_reported = false;
  Mailbox receiver(network.transport(1), Patience(60, kFirstReport),
                   [&](const std::string&, double) {
                     if (!std::exchange(has_reported, true)) waits.set_value();
                   });
  receiver.Expect(0, MakeHeader(0), kMaxSize);
  EXPECT_EQ(receiver.time_waited().count(), 0);
  const Clock::time_point begin = Clock::now();
  std::thread late([&] {
    waits.get_future().wait();
    SendMessage({1}, MakeHeader(600), MakeMessage(600), &sender);
  });
  Bytes message;
  EXPECT_TRUE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
  EXPECT_GT(receiver.time_waited().count(), 0);
  EXPECT_LE(receiver.time_waited(), Clock::now() - begin);
  late.join();
  EXPECT_EQ(sender.time_waited().count(), 0);
}

TEST_F(MailboxTest, PhasesAndPiecesAreKeptApart) {
  const std::vector<Header> headers = {MakeHeader(40, Phase::kContribution, 0),
                                       MakeHeader(300, Phase::kContribution, 1),
                                       MakeHeader(50, Phase::kSum, 0),
                                       MakeHeader(400, Phase::kSum, 1)};
  for (const Header& header : headers) {
    receiver_.Expect(0, header, kMaxSize);
  }
  for (int i = 3; i >= 0; --i) {
    SendMessage({1}, headers[i], MakeMessage(headers[i].size), &sender_);
  }
  for (const Header& header : headers) {
    Bytes message;
    ASSERT_TRUE(receiver_.Take(0, header.phase, header.piece, &message).ok());
    EXPECT_EQ(message.size(), static_cast<int64_t>(header.size));
  }
}

TEST(MailboxOfManyTest, OneMessageGoesToSeveralPeers) {
  InProcessNetwork network(4);
  Mailbox sender(network.transport(1), 5);
  SendMessage({0, 2, 3}, MakeHeader(300), MakeMessage(300), &sender);
  for (const int rank : {0, 2, 3}) {
    Mailbox receiver(network.transport(rank), 5);
    receiver.Expect(1, MakeHeader(0), kMaxSize);
    Bytes message;
    ASSERT_TRUE(receiver.Take(1, Phase::kContribution, 0, &message).ok());
    ExpectIsMessage(message, 300);
  }
  EXPECT_TRUE(sender.Flush().ok());
  EXPECT_EQ(sender.bytes_sent(), 900);
}

// Rank 0 sends ranks 1 and 2 contributions that are longer than the last ones,
// and then rank 2 a result.
class LateRestTest : public testing::Test {
 protected:
  void Send(int64_t size, int64_t last_size) {
    size_ = size;
    for (const int receiver : {1, 2}) {
      for (const auto& [rank, peer] :
           {std::pair(0, receiver), std::pair(receiver, 0)}) {
        histories_[rank].EndExchange(
            {{{Codec::kThreeLc, Phase::kContribution, 0, peer, rank == 0},
              last_size}});
        histories_[rank].BeginStep();
      }
    }
    network_.SetFault([this](Transfer* transfer) {
      tags_.push_back(transfer->tag);
      if (transfer->tag == "contribution:0:rest:0") transfer->status = error_;
    });
    for (const int peer : {1, 2}) {
      SendMessage({peer}, MakeHeader(size), MakeLongMessage(size), &ranks_[0]);
    }
    SendMessage({2}, MakeHeader(60, Phase::kSum), MakeMessage(60), &ranks_[0]);
    ranks_[2].Expect(0, MakeHeader(0, Phase::kSum), kMaxSize);
  }
  void TakeContribution(int rank) {
    ranks_[rank].Expect(0, MakeHeader(0), size_);
  }
  bool HasResult() const {
    return std::find(tags_.begin(), tags_.end(), "sum:0") != tags_.end();
  }

  int64_t size_ = 0;               // of the contributions
  std::vector<std::string> tags_;  // of what has arrived
  absl::Status error_;             // of the rests
  SizeHistory histories_[3];
  InProcessNetwork network_{3};
  Mailbox ranks_[3] = {
      {network_.transport(0), Patience(5), nullptr, 0, nullptr, &histories_[0]},
      {network_.transport(1), Patience(5), nullptr, 0, nullptr, &histories_[1]},
      {network_.transport(2), Patience(5), nullptr, 0, nullptr, &histories_[2]},
  };
};

TEST_F(LateRestTest, ResultsWaitForTheLast) {
  Send(/*size=*/200, /*last_size=*/100);
  TakeContribution(2);
  EXPECT_FALSE(HasResult());
  TakeContribution(1);
  EXPECT_TRUE(HasResult());
  Bytes message;
  EXPECT_TRUE(ranks_[2].Take(0, Phase::kSum, 0, &message).ok());
  EXPECT_TRUE(ranks_[0].Flush().ok());
  EXPECT_EQ(ranks_[0].result_bytes_sent(), 64);
}

TEST_F(LateRestTest, ItsFailureEndsTheExchangeWithoutResults) {
  Send(/*size=*/200, /*last_size=*/100);
  TakeContribution(1);
  error_ = absl::UnavailableError("connection reset");
  TakeContribution(2);
  EXPECT_FALSE(HasResult());
  EXPECT_EQ(ranks_[0].Flush(), error_);
}

TEST_F(LateRestTest, ThereIsNoneWithoutHistory) {
  Send(/*size=*/200, /*last_size=*/0);
  EXPECT_TRUE(HasResult());
}

TEST_F(LateRestTest, WhatNoOpeningCouldHoldIsNotLate) {
  Send(Mailbox::kMaxOpeningSize + 1, Mailbox::kMaxOpeningSize);
  EXPECT_TRUE(HasResult());
}

TEST_F(MailboxTest, MessageThatNeverComesIsDeadlineExceededAndNamesThePeer) {
  Mailbox receiver(network_.transport(1), 0.02);
  receiver.Expect(0, MakeHeader(0, Phase::kSum, 3), kMaxSize);
  Bytes message;
  const absl::Status status = receiver.Take(0, Phase::kSum, 3, &message);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no sum:3 from rank 0 after 0.02 s without progress: "
                        "nothing comes from rank 0 (who may wait for others in "
                        "turn)"));
  EXPECT_EQ(receiver.Flush().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(MailboxTest, LostRemainderIsDeadlineExceeded) {
  fault_ = [](Transfer* transfer) {
    transfer->dropped = transfer->tag == "contribution:0:rest:0";
  };
  Mailbox receiver(network_.transport(1), 0.02);
  receiver.Expect(0, MakeHeader(0), kMaxSize);
  Send(600);
  Bytes message;
  EXPECT_EQ(receiver.Take(0, Phase::kContribution, 0, &message).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(MailboxTest, MessageThatNobodyTakesIsDeadlineExceeded) {
  Mailbox sender(network_.transport(0), 0.02);
  SendMessage({1}, MakeHeader(40), MakeMessage(40), &sender);
  const absl::Status status = sender.Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(PatienceTest, DeadlineIsThatOfTheLastProgress) {
  // 20 parts that come 0.1 s apart take longer than the second of patience.
  constexpr int64_t kSize = 64 + 20 * Mailbox::kPartSize;
  InProcessNetwork network(2);
  network.SetFault([](Transfer*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  Mailbox sender(network.transport(0), 10);
  // Patience does not last for making a message, which takes a sanitizer long.
  const Bytes sent = sender.Seal(MakeHeader(kSize), MakeLongMessage(kSize));
  Mailbox receiver(network.transport(1), 1);
  receiver.Expect(0, MakeHeader(0), kSize);
  std::thread sending([&] {
    sender.Send({1}, MakeHeader(kSize), sent);
    EXPECT_TRUE(sender.Flush().ok());
  });
  Bytes message;
  EXPECT_TRUE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
  sending.join();
}

TEST(PatienceTest, WhatAWorkerComputesIsNoSilenceOfTheOthers) {
  InProcessNetwork network(2);
  Mailbox sender(network.transport(0), 10);
  Mailbox receiver(network.transport(1), 0.3);
  receiver.Expect(0, MakeHeader(0), kMaxSize);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  std::thread sending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    SendMessage({1}, MakeHeader(40), MakeMessage(40), &sender);
    EXPECT_TRUE(sender.Flush().ok());
  });
  Bytes message;
  const absl::Status status =
      receiver.Take(0, Phase::kContribution, 0, &message);
  EXPECT_TRUE(status.ok()) << status;
  sending.join();
}

TEST(PatienceTest, SilenceIsReportedWithThePeersAndNotTooOften) {
  InProcessNetwork network(3);
  std::vector<std::string> reports;
  Mailbox receiver(
      network.transport(1), Patience(0.1, std::chrono::milliseconds(2)),
      [&](const std::string& what, double) { reports.push_back(what); });
  receiver.Expect(0, MakeHeader(0), kMaxSize);
  receiver.Expect(2, MakeHeader(0), kMaxSize);
  SendMessage({2}, MakeHeader(40), MakeMessage(40), &receiver);
  Bytes message;
  EXPECT_FALSE(receiver.Take(0, Phase::kContribution, 0, &message).ok());
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0],
            "nothing comes from rank 0, rank 2 (who may wait for others in "
            "turn), and rank 2 does not take what was sent");
  EXPECT_LE(reports.size(), 6);  // after 2 ms, and then every 20 ms
}

TEST_F(MailboxTest, TimeBeyondTheClockIsNoDeadline) {
  for (const double seconds : {0.0, 1e10, 1e30}) {
    Mailbox receiver(network_.transport(1), seconds);
    receiver.Expect(0, MakeHeader(0), kMaxSize);
    std::future<absl::Status> taken = std::async(std::launch::async, [&] {
      Bytes message;
      return receiver.Take(0, Phase::kContribution, 0, &message);
    });
    EXPECT_EQ(taken.wait_for(std::chrono::milliseconds(5)),
              std::future_status::timeout);
    Send(40);
    EXPECT_TRUE(taken.get().ok());
  }
}

TEST_F(MailboxTest, PeersFailureIsReturnedByEveryLaterCall) {
  const absl::Status failure = absl::UnavailableError("connection reset");
  fault_ = [&](Transfer* transfer) { transfer->status = failure; };
  Expect();
  Send(600);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Take(), failure);
    EXPECT_EQ(sender_.Flush(), failure);
  }
}

TEST_F(MailboxTest, FailureOfTheRemainderIsThatOfTheMessage) {
  const absl::Status failure = absl::UnavailableError("connection reset");
  fault_ = [&](Transfer* transfer) {
    if (transfer->tag == "contribution:0:rest:0") transfer->status = failure;
  };
  Expect();
  Send(600);
  EXPECT_EQ(Take(), failure);
  EXPECT_EQ(sender_.Flush(), failure);
}

TEST_F(MailboxTest, FirstErrorStays) {
  fault_ = [this](Transfer* transfer) {
    transfer->status =
        absl::UnavailableError(absl::StrCat("transfer ", transfers_.size()));
  };
  Expect();
  Send(40);
  receiver_.Expect(0, MakeHeader(0, Phase::kSum), kMaxSize);
  EXPECT_EQ(Take(), absl::UnavailableError("transfer 1"));
}

TEST_F(MailboxTest, TransferOfAnotherSizeIsAnError) {
  fault_ = [](Transfer* transfer) { transfer->bytes.pop_back(); };
  Expect();
  Send(40);
  EXPECT_FALSE(Take().ok());
}

TEST_F(MailboxTest, EveryDamagedBitOfTheBodyIsDataLossThatNamesThePeer) {
  constexpr int64_t kSize = 80;
  for (int bit = 8 * kHeaderSize; bit < 8 * kSize; ++bit) {
    InProcessNetwork network(2);
    network.SetFault([bit](Transfer* transfer) {
      const int begin = transfer->tag == "contribution:0" ? 0 : 64;
      const int byte = bit / 8 - begin;
      if (byte < 0 || byte >= static_cast<int>(transfer->bytes.size())) return;
      transfer->bytes[byte] ^= 1 << (bit % 8);
    });
    Mailbox sender(network.transport(0), 5), receiver(network.transport(1), 5);
    receiver.Expect(0, MakeHeader(0), 160);
    SendMessage({1}, MakeHeader(kSize), MakeMessage(kSize), &sender);
    Bytes message;
    const absl::Status status =
        receiver.Take(0, Phase::kContribution, 0, &message);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "bit " << bit;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("from rank 0: contribution:0 was damaged"));
  }
}

TEST_F(MailboxTest, SizeThatMemoryHasNotIsResourceExhausted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the program that asks for so much";
#endif
  constexpr uint32_t kHuge = 0xffffffff;
  fault_ = [&](Transfer* transfer) {
    std::memcpy(&transfer->bytes[24], &kHuge, sizeof(kHuge));
    transfer->bytes[7] = SizeCheck(kHuge);
  };
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit small = {rlim_t{2} << 30, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  receiver_.Expect(0, MakeHeader(0), kHuge);
  Send(40);
  EXPECT_EQ(Take().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

TEST_F(MailboxTest, EveryDamagedBitOfTheHeaderIsAnErrorThatNamesThePeer) {
  for (int bit = 0; bit < 8 * kHeaderSize; ++bit) {
    const int i = bit / 8;
    InProcessNetwork network(2);
    network.SetFault(
        [i, bit](Transfer* transfer) { transfer->bytes[i] ^= 1 << (bit % 8); });
    Mailbox sender(network.transport(0), 5), receiver(network.transport(1), 5);
    receiver.Expect(0, MakeHeader(0), 1000);
    SendMessage({1}, MakeHeader(40), MakeMessage(40), &sender);
    Bytes message;
    const absl::Status status =
        receiver.Take(0, Phase::kContribution, 0, &message);
    EXPECT_EQ(status.code(), i == 4 ? absl::StatusCode::kFailedPrecondition
                                    : absl::StatusCode::kDataLoss)
        << "bit " << bit;
    EXPECT_THAT(std::string(status.message()), HasSubstr("from rank 0: "));
  }
}

// Its callbacks come after it was cancelled, and after the mailbox has gone if
// that does not wait for them.
class SlowTransport : public Transport {
 public:
  ~SlowTransport() override { canceller_.join(); }

  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string PeerName(int) const override { return "nobody"; }
  void Send(int, const std::string&, const Bytes&, Done done) override {
    dones_.push_back(std::move(done));
  }
  void Receive(int, const std::string&, const Bytes&, Done done) override {
    dones_.push_back(std::move(done));
  }
  void Cancel() override {
    canceller_ = std::thread([this] {
      mailbox_gone_.get_future().wait_for(std::chrono::milliseconds(10));
      for (const Done& done : dones_) {
        ++called_;
        done(absl::CancelledError("cancelled"));
      }
    });
  }

  // To be called when the mailbox has gone; the callbacks until then.
  int MailboxGone() {
    const int called = called_;
    mailbox_gone_.set_value();
    return called;
  }

 private:
  std::vector<Done> dones_;
  std::thread canceller_;
  std::promise<void> mailbox_gone_;
  std::atomic<int> called_{0};
};

TEST(MailboxDestructorTest, WaitsForEveryCallback) {
  SlowTransport transport;
  {
    Mailbox mailbox(&transport, 5);
    mailbox.Expect(1, MakeHeader(0), kMaxSize);
    SendMessage({1}, MakeHeader(600), MakeMessage(600), &mailbox);
  }
  EXPECT_EQ(transport.MailboxGone(), 3);
}

TEST(MailboxDestructorTest, EndsTransfersThatAreUnderWay) {
  InProcessNetwork network(2);
  network.SetFault([](Transfer* transfer) { transfer->dropped = true; });
  {
    Mailbox sender(network.transport(0), 5), receiver(network.transport(1), 5);
    receiver.Expect(0, MakeHeader(0), kMaxSize);
    SendMessage({1}, MakeHeader(600), MakeMessage(600), &sender);
  }
  SUCCEED() << "and nothing touches the mailboxes when the network goes";
}

}  // namespace
}  // namespace tf_gc
