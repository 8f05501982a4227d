// Sums of table values at the hops of an all-reduce.

#include "ops/collectives/lane_hop.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/bit_packing.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Pack(const Bytes& indices, int bits) {
  const int64_t n = indices.size();
  Bytes packed(kernels::PackedSize(n, bits));
  kernels::PackBits(indices.data(), n, bits, packed.data());
  return packed;
}

// As threads may cut work: two parts, the second one first.
void InUnevenParts(int64_t total, int64_t /*cost*/,
                   const kernels::ParallelWork& work) {
  if (total > 1) work(1, total);
  if (total > 0) work(0, 1);
}

template <typename Lane>
class LaneHopTest : public testing::Test {
 protected:
  using Table = std::vector<Lane>;

  static constexpr int kMaxRanks = 6;

  // Values so large that the sums of kMaxRanks reach the end of a Lane.
  static constexpr int kLargest = Lane(-1) / kMaxRanks;

  static Table MakeTable(int bits, int largest = kLargest) {
    Table table(int64_t{1} << bits);
    const int last = static_cast<int>(table.size()) - 1;
    for (int z = 0; z <= last; ++z) table[z] = largest * z / last;
    return table;
  }

  static void ExpectSums(const Group& group, int64_t n, int bits,
                         int64_t piece_values, int largest = kLargest) {
    SCOPED_TRACE(absl::StrCat(group.name, ", ", n, " values of ", bits,
                              " bits in pieces of ", piece_values));
    const Table table = MakeTable(bits, largest);
    std::mt19937 generator(n + bits);
    std::vector<Bytes> packed;
    std::vector<int64_t> expected(n);
    for (int rank = 0; rank < group.ranks; ++rank) {
      Bytes indices(n);
      for (int64_t i = 0; i < n; ++i) {
        // Every seventh is the largest everywhere.
        indices[i] = (i % 7 == 0 ? ~0u : generator()) % table.size();
        expected[i] += table[indices[i]];
      }
      packed.push_back(Pack(indices, bits));
    }
    std::vector<std::vector<Lane>> sums(group.ranks, std::vector<Lane>(n, 77));
    ExpectAllReduces(
        group, n,
        [&](int rank) {
          return std::make_unique<InPieces<LaneHop<Lane>>>(
              piece_values, packed[rank].data(), table, bits, group.ranks,
              sums[rank].data(), InUnevenParts);
        },
        InAnyOrder);
    for (const std::vector<Lane>& sum : sums) {
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], expected[i]) << "value " << i;
      }
    }
  }
};

using Lanes = testing::Types<uint8_t, uint16_t>;
TYPED_TEST_SUITE(LaneHopTest, Lanes);

TYPED_TEST(LaneHopTest, ShardedServerGivesAllRanksTheSums) {
  for (const Group& group : ShardedServers()) {
    for (const int64_t n : {0, 1, 17, 700}) {
      this->ExpectSums(group, n, 4, 64);
    }
  }
}

TYPED_TEST(LaneHopTest, RingAndTorusGiveAllRanksTheSums) {
  for (const Group& group : RingsAndTori()) {
    for (const int64_t n : {0, 1, 17, 700}) {
      this->ExpectSums(group, n, 4, 64);
    }
  }
}

TYPED_TEST(LaneHopTest, IndicesHaveAnyWidth) {
  for (const int bits : {2, 3, 5, 8}) {
    this->ExpectSums(ShardedServers()[2], 3001, bits, 1 << 20);
    this->ExpectSums(Rings()[2], 3001, bits, 1 << 20);
  }
}

TYPED_TEST(LaneHopTest, LanesHaveAnyWidth) {
  for (const int largest : {1, 2, 10, 20, this->kLargest}) {
    this->ExpectSums(ShardedServers()[3], 9001, 4, 1 << 20, largest);
    this->ExpectSums(Rings()[3], 700, 4, 64, largest);
  }
}

TYPED_TEST(LaneHopTest, BodyIsPackedIndicesOfOneRankAndLanesOfMore) {
  using Lane = TypeParam;
  const Bytes packed = Pack({3, 0, 1, 2, 3}, 2);
  std::vector<Lane> sums(5);
  LaneHop<Lane> hop(packed.data(), {0, 10, 20, 42}, 2, 3, sums.data());
  const Piece piece = WholePiece(5);
  ASSERT_TRUE(MergeBody(packed, 5, 3, 1, &hop).ok());
  Bytes own(hop.MaxBodySize(piece, Content::kContribution));
  EXPECT_EQ(hop.Encode(piece, Aggregate::Contribution(), own.data()), 2);
  EXPECT_EQ(own, packed);
  Bytes sum(hop.MaxBodySize(piece, Content::kPartialSum));
  // Lanes of 7 bits: three ranks have no more than 126.
  EXPECT_EQ(hop.Encode(piece, Aggregate::Partial(2), sum.data()), 5);
  EXPECT_EQ(sum, (Bytes{0x54, 0x00, 0x05, 0x45, 0x05}));
}

// What three ranks, of which each has at most 20, make of a damaged body.
template <typename Lane>
class DamagedLanes {
 public:
  absl::Status Merge(const Bytes& body, int incoming) {
    return MergeBody(body, kValues, 3, incoming, &hop_);
  }
  absl::Status Decode(const Bytes& body) {
    return DecodeBody(body, kValues, 3, &hop_);
  }

 private:
  static constexpr int64_t kValues = 5;

  const Bytes packed_ = Pack(Bytes(kValues), 2);
  std::vector<Lane> sums_ = std::vector<Lane>(kValues);
  LaneHop<Lane> hop_ =
      LaneHop<Lane>(packed_.data(), {0, 5, 10, 20}, 2, 3, sums_.data());
};

TYPED_TEST(LaneHopTest, BodyOfAnotherSizeIsDataLoss) {
  DamagedLanes<TypeParam> ranks;
  for (const int64_t size : {0, 1, 3, 5000}) {
    ExpectDataLoss(ranks.Merge(Bytes(size), 1), "the body has");
  }
  // 60 takes 6 bits: 4 bytes.
  for (const int64_t size : {0, 3, 5}) {
    ExpectDataLoss(ranks.Merge(Bytes(size), 2), "the body has");
    ExpectDataLoss(ranks.Decode(Bytes(size)), "the body has");
  }
}

TYPED_TEST(LaneHopTest, PaddingOfIndicesThatIsNotZeroIsDataLoss) {
  DamagedLanes<TypeParam> ranks;
  EXPECT_TRUE(ranks.Merge({0xff, 0x03}, 1).ok());
  ExpectDataLoss(ranks.Merge({0xff, 0x07}, 1), "padding bits");
}

TYPED_TEST(LaneHopTest, PaddingOfLanesThatIsNotZeroIsDataLoss) {
  DamagedLanes<TypeParam> ranks;
  EXPECT_TRUE(ranks.Decode({0, 0, 0, 0x3c}).ok());
  ExpectDataLoss(ranks.Decode({0, 0, 0, 0x7c}), "5 lanes of 6 bits are not 0");
}

TYPED_TEST(LaneHopTest, LaneThatNoWorkersCanHaveIsDataLoss) {
  DamagedLanes<TypeParam> ranks;
  Bytes body(4);
  body[0] = 40;
  EXPECT_TRUE(ranks.Merge(body, 2).ok());
  body[0] = 41;
  ExpectDataLoss(ranks.Merge(body, 2), "a lane is 41, but 2 workers");
  EXPECT_TRUE(ranks.Decode(body).ok());
  body[0] = 61;
  ExpectDataLoss(ranks.Decode(body), "a lane is 61, but 3 workers");
}

}  // namespace
}  // namespace tf_gc
