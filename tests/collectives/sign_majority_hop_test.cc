// Majority votes of signs on the sharded server.

#include "ops/collectives/sign_majority_hop.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/signs.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> Vote(const Group& group, int64_t n,
                        const std::vector<Bytes>& signs, int64_t piece_values) {
  std::vector<Bytes> majority(group.ranks,
                              Bytes(kernels::SignPackedSize(n), 0xaa));
  ExpectAllReduces(
      group, n,
      [&](int rank) {
        return std::make_unique<InPieces<SignMajorityHop>>(
            piece_values, signs[rank].data(), majority[rank].data());
      },
      InAnyOrder);
  return majority;
}

TEST(SignMajorityHopTest, IsOneWhereHalfOfTheWorkersHaveOne) {
  for (const Group& group : ShardedServers()) {
    for (const int64_t n : {0, 1, 16, 333, 1000}) {
      SCOPED_TRACE(absl::StrCat(group.name, ", ", n, " values"));
      std::mt19937 generator(n);
      std::vector<Bytes> signs(group.ranks, Bytes(kernels::SignPackedSize(n)));
      Bytes expected(kernels::SignPackedSize(n));
      for (int64_t i = 0; i < n; ++i) {
        int ones = 0;
        for (Bytes& sign : signs) {
          const int bit = generator() & 1;
          ones += bit;
          sign[i / 8] |= bit << i % 8;
        }
        expected[i / 8] |= (2 * ones >= group.ranks) << i % 8;
      }
      for (const int64_t piece_values : {64, 1 << 20}) {
        for (const Bytes& majority : Vote(group, n, signs, piece_values)) {
          EXPECT_EQ(majority, expected);
        }
      }
    }
  }
}

TEST(SignMajorityHopTest, TieIsOne) {
  const std::vector<Bytes> signs = {{0b1100}, {0b1010}};
  EXPECT_EQ(Vote(ShardedServers()[1], 4, signs, 64)[1], Bytes{0b1110});
}

TEST(SignMajorityHopTest, CountsMoreWorkersThanAByte) {
  constexpr int kRanks = 1001;
  const Bytes zero = {0b01}, one = {0b11};  // the second value is the one
  Bytes majority(1);
  for (const int ones : {500, 501}) {
    SignMajorityHop hop(one.data(), majority.data());
    const Piece piece = WholePiece(2);
    hop.Prepare(BucketLayout({2}, kRanks, 64), kRanks - 1);
    hop.Start(piece);
    for (int count = 1; count < kRanks; ++count) {
      const Bytes& body = count < ones ? one : zero;
      ASSERT_TRUE(
          hop.Merge(piece, Aggregate::Contribution(), body.data(), 1).ok());
    }
    Bytes result(1);
    EXPECT_EQ(hop.Encode(piece, {Content::kResult, kRanks}, result.data()), 1);
    EXPECT_EQ(result, ones == 501 ? one : zero);
  }
}

TEST(SignMajorityHopTest, DamagedBodyIsDataLoss) {
  constexpr int64_t kValues = 13;
  const Bytes own(2);
  Bytes majority(2);
  SignMajorityHop hop(own.data(), majority.data());
  const auto expect = [&](const Bytes& body, const char* message) {
    for (const absl::Status& status : {MergeBody(body, kValues, 3, 1, &hop),
                                       DecodeBody(body, kValues, 3, &hop)}) {
      ExpectDataLoss(status, message);
    }
  };
  for (const int64_t size : {0, 1, 3, 5000}) {
    expect(Bytes(size), "the body has");
  }
  expect({0xff, 0x20}, "padding bits behind 13 signs are not 0");
  EXPECT_TRUE(DecodeBody({0xff, 0x1f}, kValues, 3, &hop).ok());
  EXPECT_EQ(majority, (Bytes{0xff, 0x1f}));
}

}  // namespace
}  // namespace tf_gc
