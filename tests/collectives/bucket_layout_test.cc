#include "ops/collectives/bucket_layout.h"

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace tf_gc {
namespace {

using Sizes = std::vector<int64_t>;

// Calls test(sizes, ranks, piece_values) for many of them.
template <typename Test>
void ForManyLayouts(Test test) {
  const std::vector<Sizes> buckets = {
      {},       {0},      {0, 0, 0},   {1},
      {3},      {15},     {16},        {17},
      {100},    {0, 5},   {5, 0},      {1, 1, 1, 1, 1, 1, 1},
      {64, 64}, {31, 33}, {1, 200, 1}, {7, 0, 93, 1, 1000, 0, 257, 16, 3}};
  for (const Sizes& sizes : buckets) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (const int64_t piece_values : {1, 7, 16, 100, 1 << 20}) {
        SCOPED_TRACE(absl::StrCat("sizes ", absl::StrJoin(sizes, ","),
                                  " ranks ", ranks, " piece_values ",
                                  piece_values));
        test(sizes, ranks, piece_values);
      }
    }
  }
}

int64_t Total(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t ShardSize(const BucketLayout& layout, int rank) {
  int64_t size = 0;
  for (const Piece& piece : layout.shard(rank)) size += piece.values;
  return size;
}

TEST(BucketLayoutTest, EveryValueIsInExactlyOneSegment) {
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values) {
    const BucketLayout layout(sizes, ranks, piece_values);
    std::vector<std::vector<int>> count;
    for (const int64_t size : sizes) count.emplace_back(size, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Piece& piece : layout.shard(rank)) {
        for (const Segment& segment : piece.segments) {
          for (int64_t i = 0; i < segment.length; ++i) {
            ++count.at(segment.variable).at(segment.begin + i);
          }
        }
      }
    }
    for (size_t v = 0; v < sizes.size(); ++v) {
      EXPECT_EQ(count[v], std::vector<int>(sizes[v], 1)) << "variable " << v;
    }
  });
}

TEST(BucketLayoutTest, PiecesHoldWhatTheirSegmentsDoAndNoMoreThanAllowed) {
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values) {
    const BucketLayout layout(sizes, ranks, piece_values);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(layout.shard(rank).empty());
      for (const Piece& piece : layout.shard(rank)) {
        int64_t values = 0;
        for (const Segment& segment : piece.segments) {
          EXPECT_GT(segment.length, 0);
          values += segment.length;
        }
        EXPECT_EQ(piece.values, values);
        EXPECT_LE(piece.values, piece_values);
      }
      if (layout.shard(rank).size() > 1) {
        EXPECT_GT(layout.shard(rank).back().values, 0);
      }
    }
  });
}

TEST(BucketLayoutTest, ShardsAreBalancedAndBeginAtCacheLines) {
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values) {
    const BucketLayout layout(sizes, ranks, piece_values);
    int64_t begin = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(begin % 16 == 0 || begin == Total(sizes));
      const int64_t size = ShardSize(layout, rank);
      EXPECT_LT(std::abs(size - Total(sizes) / ranks), 16 + ranks);
      begin += size;
    }
    EXPECT_EQ(begin, Total(sizes));
  });
}

TEST(BucketLayoutTest, FollowsTheVariablesInTheirOrder) {
  // 100 values; 100 / 3 = 33, so the shards begin at 0, 32 and 64.
  const BucketLayout layout({40, 0, 50, 10}, 3, 20);
  const auto describe = [&](int rank) {
    std::string text;
    for (const Piece& piece : layout.shard(rank)) {
      absl::StrAppend(&text, "|");
      for (const Segment& segment : piece.segments) {
        absl::StrAppend(&text, segment.variable, "[", segment.begin, "+",
                        segment.length, "]");
      }
    }
    return text;
  };
  EXPECT_EQ(describe(0), "|0[0+20]|0[20+12]");
  EXPECT_EQ(describe(1), "|0[32+8]2[0+12]|2[12+12]");
  EXPECT_EQ(describe(2), "|2[24+20]|2[44+6]3[0+10]");
}

}  // namespace
}  // namespace tf_gc
