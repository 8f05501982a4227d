#include "ops/collectives/link_monitor.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Read by monitors, and advanced by the tests.
std::atomic<int64_t> milliseconds{0};

LinkMonitor::TimePoint Now() {
  return LinkMonitor::TimePoint(std::chrono::milliseconds(milliseconds));
}

auto Is(int64_t bytes, double seconds, int64_t transfers,
        bool is_asked_for = true) {
  return FieldsAre(bytes, DoubleEq(seconds), transfers, is_asked_for);
}

TEST(LinkMonitorTest, ATransferAloneIsASample) {
  LinkMonitor monitor(Now);
  const auto first = monitor.Begin();
  milliseconds += 20;
  monitor.End(first, 1000);
  milliseconds += 100;  // the link is idle
  const auto second = monitor.Begin();
  milliseconds += 5;
  monitor.End(second, 7);
  EXPECT_THAT(monitor.Take(), ElementsAre(Is(1000, 0.020, 1), Is(7, 0.005, 1)));
}

TEST(LinkMonitorTest, TransfersAtTheSameTimeAreOneBusyInterval) {
  LinkMonitor monitor(Now);
  const auto first = monitor.Begin();
  milliseconds += 10;
  const auto second = monitor.Begin();
  milliseconds += 10;
  monitor.End(first, 100);
  const auto third = monitor.Begin();
  milliseconds += 10;
  monitor.End(second, 200);
  EXPECT_THAT(monitor.Take(), IsEmpty()) << "one is under way";
  milliseconds += 3;
  monitor.End(third, 300);
  EXPECT_THAT(monitor.Take(), ElementsAre(Is(600, 0.033, 3)));
}

// As the message of the next hop, whose sender has had the last one earlier.
TEST(LinkMonitorTest, OneThatIsAskedForWhenTheOthersAreNearlyThereIsByItself) {
  LinkMonitor monitor(Now);
  const auto first = monitor.Begin();
  const auto second = monitor.Begin();
  milliseconds += 80;
  const auto third = monitor.Begin();
  milliseconds += 19;
  monitor.End(second, 100);
  milliseconds += 1;
  monitor.End(first, 1000);
  milliseconds += 89;
  monitor.End(third, 500);
  EXPECT_THAT(monitor.Take(),
              ElementsAre(Is(1100, 0.100, 2), Is(500, 0.109, 1)));
}

TEST(LinkMonitorTest, SamplesAreTakenOnce) {
  LinkMonitor monitor(Now);
  monitor.End(monitor.Begin(), 1);
  EXPECT_THAT(monitor.Take(), SizeIs(1));
  EXPECT_THAT(monitor.Take(), IsEmpty());
}

// Two are always under way, of which the older one ends.
TEST(LinkMonitorTest, ALinkThatIsNeverIdleGivesSamplesToo) {
  LinkMonitor monitor(Now);
  auto older = monitor.Begin();
  constexpr int kTransfers = LinkMonitor::kMaxTransfers;
  for (int i = 0; i < 2 * kTransfers + 1; ++i) {
    const auto newer = monitor.Begin();
    milliseconds += i < kTransfers ? 1 : 2;
    monitor.End(older, 10);
    older = newer;
  }
  // In the second interval one is from before.
  EXPECT_THAT(
      monitor.Take(),
      ElementsAre(Is(10 * kTransfers, 0.001 * kTransfers, kTransfers),
                  Is(10 * kTransfers, 0.002 * (kTransfers + 1), kTransfers)));
}

TEST(LinkMonitorTest, WhatIsUnderWayWhenAnIntervalEndsMakesNoQuickSample) {
  LinkMonitor monitor(Now);
  constexpr int kTransfers = LinkMonitor::kMaxTransfers, kMore = 6;
  const auto begin = monitor.Begin();
  for (int i = 1; i < kTransfers + kMore; ++i) monitor.Begin();
  milliseconds += 100;
  for (int i = 0; i < kTransfers; ++i) monitor.End(begin, 1000);
  milliseconds += 1;
  for (int i = 0; i < kMore; ++i) monitor.End(begin, 1000);
  EXPECT_THAT(monitor.Take(),
              ElementsAre(Is(1000 * kTransfers, 0.1, kTransfers)));
}

TEST(LinkMonitorTest, AnIntervalWithATransferThatFailedIsDropped) {
  LinkMonitor monitor(Now);
  for (const bool fails_first : {true, false}) {
    const auto begin = monitor.Begin();
    monitor.Begin();
    milliseconds += 3;
    monitor.End(begin, fails_first ? std::nullopt : std::optional<int64_t>(5));
    monitor.End(begin, fails_first ? std::optional<int64_t>(5) : std::nullopt);
  }
  EXPECT_THAT(monitor.Take(), IsEmpty());
  const auto begin = monitor.Begin();
  milliseconds += 4;
  monitor.End(begin, 6);
  EXPECT_THAT(monitor.Take(), ElementsAre(Is(6, 0.004, 1)));
}

// Its time begins with a request or not as that of its first transfer does.
TEST(LinkMonitorTest, ASampleIsAskedForIfItsFirstTransferIs) {
  LinkMonitor monitor(Now);
  for (const bool is_asked_for : {false, true}) {
    const auto first = monitor.Begin();
    milliseconds += 1;
    const auto second = monitor.Begin();
    milliseconds += 1;
    monitor.End(second, 5, !is_asked_for);
    monitor.End(first, 6, is_asked_for);
  }
  EXPECT_THAT(monitor.Take(),
              ElementsAre(Is(11, 0.002, 2, false), Is(11, 0.002, 2, true)));
}

// As what measures latency, while gradients come.
TEST(LinkMonitorTest, TransfersOfAFewBytesAreByThemselves) {
  LinkMonitor monitor(Now);
  const auto few = monitor.Begin();
  milliseconds += 1;
  const auto many = monitor.Begin();
  milliseconds += 30;
  monitor.End(many, 1000, /*is_asked_for=*/false);
  milliseconds += 70;
  monitor.End(few, LinkMonitor::kFewBytes);
  EXPECT_THAT(monitor.Take(),
              ElementsAre(Is(1000, 0.030, 1, false), Is(64, 0.101, 1)));
}

TEST(TransferClockTest, TellsOfATransferFromItsBeginToItsEnd) {
  LinkMonitor monitor(Now);
  TransferClock clock(&monitor, /*is_asked_for=*/false);
  clock.Begin();
  milliseconds += 3;
  clock.End(70);
  EXPECT_THAT(monitor.Take(), ElementsAre(Is(70, 0.003, 1, false)));
}

TEST(TransferClockTest, TellsNothingOfATransferThatHasEndedBeforeItBegins) {
  LinkMonitor monitor(Now);
  TransferClock late(&monitor, false);
  late.End(70);
  late.Begin();
  monitor.End(monitor.Begin(), 5);  // would be in the interval of the other
  EXPECT_THAT(monitor.Take(), ElementsAre(Is(5, 0, 1)));
}

TEST(LinkMonitorTest, TheLatestSamplesAreKept) {
  LinkMonitor monitor(Now);
  for (int i = 0; i < LinkMonitor::kMaxSamples + 3; ++i) {
    monitor.End(monitor.Begin(), i);
  }
  const std::vector<LinkMonitor::Sample> samples = monitor.Take();
  ASSERT_THAT(samples, SizeIs(LinkMonitor::kMaxSamples));
  for (int i = 0; i < LinkMonitor::kMaxSamples; ++i) {
    ASSERT_EQ(samples[i].bytes, i + 3);
  }
}

TEST(LinkMonitorTest, CountsAllThatThreadsTellIt) {
  // Fewer than kMaxSamples in all, so that none is overwritten.
  constexpr int kThreads = 4, kTransfers = LinkMonitor::kMaxSamples / 4;
  LinkMonitor monitor;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kTransfers; ++j) monitor.End(monitor.Begin(), 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t transfers = 0;
  for (const LinkMonitor::Sample& sample : monitor.Take()) {
    EXPECT_EQ(sample.bytes, 3 * sample.transfers);
    EXPECT_GE(sample.seconds, 0);
    transfers += sample.transfers;
  }
  // Of each interval that ends with kMaxTransfers, others may be under way.
  constexpr int kAll = kThreads * kTransfers;
  constexpr int kFull = kAll / LinkMonitor::kMaxTransfers;
  EXPECT_LE(transfers, kAll);
  EXPECT_GE(transfers, kAll - kFull * (kThreads - 1));
}

// A mailbox's transfers: each takes a millisecond for every 10 bytes.
TEST(MailboxMonitorTest, SeesWhatFollowsTheHeads) {
  InProcessNetwork network(2);
  network.SetFault(
      [](Transfer* transfer) { milliseconds += transfer->bytes.size() / 10; });
  Mailbox sender(network.transport(0), kTimeoutSeconds);
  LinkMonitor monitor(Now);
  Mailbox receiver(network.transport(1), Patience(kTimeoutSeconds), nullptr,
                   /*step=*/0, &monitor);
  for (const int64_t size : {60, 64, 264, 1064}) {
    Header header{};
    header.codec = Codec::kBytes;
    header.piece = size;
    receiver.Expect(0, header, size);
    milliseconds += 1000;  // it waits for the head
    header.size = size;
    sender.Send({1}, header, sender.Seal(header, Bytes(size)));
    Bytes message;
    ASSERT_TRUE(receiver.Take(0, header.phase, header.piece, &message).ok());
  }
  EXPECT_THAT(monitor.Take(),
              ElementsAre(Is(200, 0.020, 1), Is(1000, 0.100, 1)));
}

// What a receiver sees of messages of these sizes, one in each step.
std::vector<LinkMonitor::Sample> Measured(LinkMeasurement measurement,
                                          const std::vector<int64_t>& sizes) {
  InProcessNetwork network(2);
  network.SetFault(
      [](Transfer* transfer) { milliseconds += transfer->bytes.size() / 10; });
  LinkMonitor monitor(Now);
  SizeHistory histories[2];
  uint32_t step = 0;
  for (const int64_t size : sizes) {
    for (SizeHistory& history : histories) history.BeginStep();
    Mailbox sender(network.transport(0), Patience(kTimeoutSeconds), nullptr,
                   step, nullptr, &histories[0], measurement);
    Mailbox receiver(network.transport(1), Patience(kTimeoutSeconds), nullptr,
                     step, &monitor, &histories[1], measurement);
    Header header{};
    header.codec = Codec::kBytes;
    header.step = step++;
    receiver.Expect(0, header, size);
    milliseconds += 1000;  // it waits for the sender
    header.size = size;
    sender.Send({1}, header, sender.Seal(header, Bytes(size)));
    Bytes message;
    EXPECT_TRUE(receiver.Take(0, header.phase, 0, &message).ok());
    EXPECT_TRUE(sender.Flush().ok());
    EXPECT_TRUE(receiver.Flush().ok());
  }
  return monitor.Take();
}

// There is no history of the first message, and the third one is longer.
TEST(MailboxMonitorTest, SeesOpeningsFromWhatComesJustBeforeThem) {
  EXPECT_THAT(Measured(LinkMeasurement::kBandwidth, {1000, 1000, 1300}),
              ElementsAre(Is(64, 0.006, 1, false), Is(936, 0.093, 1),
                          Is(1000, 0.100, 1, false), Is(1000, 0.100, 1, false),
                          Is(300, 0.030, 1)));
}

TEST(MailboxMonitorTest, SeesWhatIsAskedForWhenAnOpeningHasCome) {
  EXPECT_THAT(
      Measured(LinkMeasurement::kLatency, {1000, 1000}),
      ElementsAre(Is(32, 0.003, 1), Is(936, 0.093, 1), Is(32, 0.003, 1)));
}

TEST(MailboxMonitorTest, SeesPartsOfAMessageAsOneInterval) {
  constexpr int64_t kSize = Mailbox::kHeadSize + 20 * Mailbox::kPartSize;
  InProcessNetwork network(2);
  LinkMonitor monitor(Now);
  Mailbox sender(network.transport(0), kTimeoutSeconds);
  Mailbox receiver(network.transport(1), Patience(kTimeoutSeconds), nullptr,
                   /*step=*/0, &monitor);
  Header header{};
  header.codec = Codec::kBytes;
  receiver.Expect(0, header, kSize);
  header.size = kSize;
  const Bytes message(kSize);
  sender.Send({1}, header, sender.Seal(header, message));
  Bytes taken;
  ASSERT_TRUE(receiver.Take(0, header.phase, 0, &taken).ok());
  int64_t bytes = 0, transfers = 0;
  for (const LinkMonitor::Sample& sample : monitor.Take()) {
    bytes += sample.bytes;
    transfers += sample.transfers;
  }
  EXPECT_EQ(bytes, kSize - Mailbox::kHeadSize);
  EXPECT_EQ(transfers, 20);
}

// What is seen of an exchange after one in which the transfer of this tag
// fails.
std::vector<LinkMonitor::Sample> AfterAFailure(const std::string& tag,
                                               int64_t size,
                                               LinkMeasurement measurement) {
  LinkMonitor monitor(Now);
  for (const bool fails : {true, false}) {
    InProcessNetwork network(2);
    network.SetFault([&](Transfer* transfer) {
      milliseconds += 1;
      if (fails && transfer->tag == tag) {
        transfer->status = absl::UnavailableError("gone");
      }
    });
    Mailbox sender(network.transport(0), Patience(kTimeoutSeconds), nullptr,
                   /*step=*/0, nullptr, nullptr, measurement);
    Mailbox receiver(network.transport(1), Patience(kTimeoutSeconds), nullptr,
                     /*step=*/0, &monitor, nullptr, measurement);
    Header header{};
    header.codec = Codec::kBytes;
    receiver.Expect(0, header, size);
    header.size = size;
    sender.Send({1}, header, sender.Seal(header, Bytes(size)));
    Bytes message;
    EXPECT_EQ(receiver.Take(0, header.phase, 0, &message).ok(), !fails);
  }
  return monitor.Take();
}

TEST(MailboxMonitorTest, AnExchangeThatFailsLeavesNoIntervalOpen) {
  EXPECT_THAT(
      AfterAFailure("contribution:0:rest:0", 1000, LinkMeasurement::kNone),
      ElementsAre(Is(936, 0.001, 1)));
  EXPECT_THAT(AfterAFailure("contribution:0", 64, LinkMeasurement::kBandwidth),
              ElementsAre(Is(64, 0.001, 1, false)))
      << "its opening fails behind the stamp";
}

}  // namespace
}  // namespace tf_gc
