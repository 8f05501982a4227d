#include "ops/collectives/bucket_layout.h"

#include <algorithm>
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

// Calls test(sizes, ranks, piece_values, alignment) for many of them.
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
        for (const int64_t alignment : {1, 16, 128}) {
          SCOPED_TRACE(absl::StrCat("sizes ", absl::StrJoin(sizes, ","),
                                    " ranks ", ranks, " piece_values ",
                                    piece_values, " alignment ", alignment));
          test(sizes, ranks, piece_values, alignment);
        }
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
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values,
                    int64_t alignment) {
    const BucketLayout layout(sizes, ranks, piece_values, alignment);
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
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values,
                    int64_t alignment) {
    const BucketLayout layout(sizes, ranks, piece_values, alignment);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(layout.shard(rank).empty());
      for (const Piece& piece : layout.shard(rank)) {
        int64_t values = 0;
        for (const Segment& segment : piece.segments) {
          EXPECT_GT(segment.length, 0);
          values += segment.length;
        }
        EXPECT_EQ(piece.values, values);
        EXPECT_LE(piece.values, std::max(piece_values, alignment));
        EXPECT_TRUE(piece.begin % alignment == 0 ||
                    piece.begin == Total(sizes));
      }
      if (layout.shard(rank).size() > 1) {
        EXPECT_GT(layout.shard(rank).back().values, 0);
      }
    }
  });
}

TEST(BucketLayoutTest, ShardsAreBalancedAndAligned) {
  ForManyLayouts([](const Sizes& sizes, int ranks, int64_t piece_values,
                    int64_t alignment) {
    const BucketLayout layout(sizes, ranks, piece_values, alignment);
    int64_t begin = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(begin % alignment == 0 || begin == Total(sizes));
      const int64_t size = ShardSize(layout, rank);
      EXPECT_LT(std::abs(size - Total(sizes) / ranks), alignment + ranks);
      begin += size;
    }
    EXPECT_EQ(begin, Total(sizes));
  });
}

TEST(BucketLayoutTest, FollowsTheVariablesInTheirOrder) {
  // 100 values; 100 / 3 = 33, so the shards begin at 0, 32 and 64, and pieces
  // of at most 20 values, being aligned, have 16.
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
  EXPECT_EQ(describe(0), "|0[0+16]|0[16+16]");
  EXPECT_EQ(describe(1), "|0[32+8]2[0+8]|2[8+16]");
  EXPECT_EQ(describe(2), "|2[24+16]|2[40+10]3[0+6]|3[6+4]");
}

}  // namespace
}  // namespace tf_gc
