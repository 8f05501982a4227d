#include "ops/wire/buffer_pool.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tf_gc {
namespace {

constexpr int64_t kKiB = 1024, kMiB = kKiB * kKiB;

TEST(BufferPool, WhatIsGivenBackIsUsedAgain) {
  BufferPool pool(kMiB);
  auto first = pool.Allocate(100 * kKiB);
  const uint8_t* const memory = first.get();
  EXPECT_EQ(pool.idle_bytes(), 0);
  first.reset();
  EXPECT_GE(pool.idle_bytes(), 100 * kKiB);
  EXPECT_LE(pool.idle_bytes(), 125 * kKiB);
  const auto second = pool.Allocate(101 * kKiB);
  EXPECT_EQ(second.get(), memory);
  EXPECT_EQ(pool.idle_bytes(), 0);
  EXPECT_NE(pool.Allocate(101 * kKiB).get(), memory);
}

TEST(BufferPool, TheLastPointerGivesItBack) {
  BufferPool pool(kMiB);
  auto first = pool.Allocate(BufferPool::kSmallest);
  auto second = first;
  first.reset();
  EXPECT_EQ(pool.idle_bytes(), 0);
  second.reset();
  EXPECT_EQ(pool.idle_bytes(), BufferPool::kSmallest);
}

TEST(BufferPool, SmallBuffersAreNotKept) {
  BufferPool pool(kMiB);
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, BufferPool::kSmallest - 1}) {
    pool.Allocate(size).reset();
  }
  EXPECT_EQ(pool.idle_bytes(), 0);
}

TEST(BufferPool, TheOnesThatHaveWaitedLongestAreFreed) {
  BufferPool pool(3 * kMiB);
  auto a = pool.Allocate(kMiB), b = pool.Allocate(2 * kMiB);
  auto c = pool.Allocate(kMiB / 2);
  const uint8_t* const newer = b.get();
  a.reset();
  b.reset();
  EXPECT_EQ(pool.idle_bytes(), 3 * kMiB);
  c.reset();
  EXPECT_EQ(pool.idle_bytes(), 2 * kMiB + kMiB / 2);
  EXPECT_EQ(pool.Allocate(2 * kMiB).get(), newer);
}

TEST(BufferPool, WhatCannotWaitLeavesTheOthersThere) {
  BufferPool pool(3 * kMiB);
  pool.Allocate(kMiB).reset();
  pool.Allocate(4 * kMiB).reset();
  EXPECT_EQ(pool.idle_bytes(), kMiB);
}

TEST(BufferPool, AllBytesOfEverySizeCanBeWritten) {
  for (const int64_t max_idle : {int64_t{0}, 4 * kMiB}) {
    BufferPool pool(max_idle);
    for (int64_t size = 1; size < 3 * kMiB; size += size / 3 + 1) {
      const auto buffer = pool.Allocate(size);
      std::memset(buffer.get(), 1, size);
      EXPECT_EQ(buffer[size - 1], 1);
    }
    EXPECT_LE(pool.idle_bytes(), max_idle);
  }
}

TEST(BufferPool, ThreadsGetBuffersOfTheirOwn) {
  BufferPool pool(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const int64_t size = BufferPool::kSmallest * (1 + (i + t) % 3);
        const auto buffer = pool.Allocate(size);
        std::memset(buffer.get(), t, size);
        EXPECT_EQ(buffer[0], t);
        EXPECT_EQ(buffer[size - 1], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.idle_bytes(), kMiB);
}

}  // namespace
}  // namespace tf_gc
