#include "ops/collectives/wait_clock.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tf_gc {
namespace {

using ::testing::DoubleEq;
using ::testing::FieldsAre;

// Read by clocks, and advanced by the tests.
std::atomic<int64_t> milliseconds{0};

WaitClock::TimePoint Now() {
  return WaitClock::TimePoint(std::chrono::milliseconds(milliseconds));
}

auto Is(double waited, double total) {
  return FieldsAre(DoubleEq(waited), DoubleEq(total));
}

TEST(WaitClockTest, TimeBetweenWaitsIsOfTheTotalAlone) {
  WaitClock clock(Now);
  EXPECT_THAT(clock.Read(), Is(0, 0));
  milliseconds += 7;  // before the first wait
  clock.Begin();
  milliseconds += 20;
  clock.End();
  milliseconds += 50;
  clock.Begin();
  milliseconds += 30;
  clock.End();
  milliseconds += 7;  // after the last
  EXPECT_THAT(clock.Read(), Is(0.05, 0.1));
}

TEST(WaitClockTest, WaitsAtTheSameTimeCountOnce) {
  WaitClock clock(Now);
  clock.Begin();
  milliseconds += 10;
  clock.Begin();
  milliseconds += 10;
  clock.End();
  EXPECT_THAT(clock.Read(), Is(0, 0));  // one goes on
  milliseconds += 10;
  clock.End();
  EXPECT_THAT(clock.Read(), Is(0.03, 0.03));
}

TEST(WaitClockTest, ManyThreadsWaitNoLongerThanTheTotal) {
  WaitClock clock;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&clock] {
      for (int j = 0; j < 1000; ++j) {
        clock.Begin();
        clock.End();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const WaitClock::Seconds seconds = clock.Read();
  EXPECT_GT(seconds.waited, 0);
  EXPECT_LE(seconds.waited, seconds.total);
}

}  // namespace
}  // namespace tf_gc
