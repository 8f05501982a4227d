#include "ops/collectives/size_history.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace tf_gc {
namespace {

constexpr SizeHistory::Message kMessage = {Codec::kThreeLc,
                                           Phase::kContribution, 0, 1, true};

// A step of one exchange with one message.
void Step(int64_t size, SizeHistory* history) {
  history->BeginStep();
  history->EndExchange({{kMessage, size}});
}

int64_t LongestNow(SizeHistory* history) {
  history->BeginStep();
  return history->Longest(kMessage);
}

TEST(SizeHistoryTest, ThereIsNoneAtFirst) {
  SizeHistory history;
  EXPECT_EQ(LongestNow(&history), 0);
}

TEST(SizeHistoryTest, LongestOfTheLastStepsIsRemembered) {
  SizeHistory history;
  Step(300, &history);
  for (int step = 1; step < SizeHistory::kSteps; ++step) {
    EXPECT_EQ(LongestNow(&history), 300);
    Step(100 + step, &history);
  }
  EXPECT_EQ(LongestNow(&history), 300);
  Step(50, &history);
  EXPECT_EQ(LongestNow(&history), 100 + SizeHistory::kSteps - 1);
}

TEST(SizeHistoryTest, ExchangesOfAStepAreKeptApart) {
  SizeHistory history;
  for (int step = 0; step < 2; ++step) {
    history.BeginStep();
    EXPECT_EQ(history.Longest(kMessage), step == 0 ? 0 : 80);
    history.EndExchange({{kMessage, 80}});
    EXPECT_EQ(history.Longest(kMessage), step == 0 ? 0 : 9000);
    history.EndExchange({{kMessage, 9000}});
  }
}

TEST(SizeHistoryTest, OfAStepThatDoesNotEndOnlySoManyAreKept) {
  SizeHistory history;
  history.BeginStep();
  for (int i = 0; i <= SizeHistory::kMaxExchanges; ++i) {
    history.EndExchange({{kMessage, 80}});
  }
  EXPECT_EQ(history.Longest(kMessage), 0);
}

TEST(SizeHistoryTest, MessagesAreKeptApart) {
  SizeHistory history;
  Step(80, &history);
  history.BeginStep();
  const SizeHistory::Message others[] = {
      {Codec::kBytes, Phase::kContribution, 0, 1, true},
      {Codec::kThreeLc, Phase::kSum, 0, 1, true},
      {Codec::kThreeLc, Phase::kContribution, 1, 1, true},
      {Codec::kThreeLc, Phase::kContribution, 0, 2, true},
      {Codec::kThreeLc, Phase::kContribution, 0, 1, false},
  };
  for (const SizeHistory::Message& other : others) {
    EXPECT_EQ(history.Longest(other), 0);
  }
}

}  // namespace
}  // namespace tf_gc
