// Cascading SSDM on a ring.

#include "ops/collectives/cascading_sign_hop.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using kernels::Seed;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What every rank gets; in place, so that a value which is read too late is
// seen.
std::vector<Floats> Cascade(const Group& group,
                            const std::vector<Floats>& values, Seed seed,
                            int64_t piece_values = int64_t{1} << 20,
                            const InProcessNetwork::Fault& fault = nullptr) {
  std::vector<Floats> reduced = values;
  ExpectAllReduces(
      group, values[0].size(),
      [&](int rank) {
        return std::make_unique<InPieces<CascadingSignHop>>(
            piece_values, reduced[rank].data(), seed, reduced[rank].data());
      },
      fault);
  return reduced;
}

std::vector<Floats> RandomValues(int ranks, int64_t n) {
  std::mt19937 generator(n);
  std::normal_distribution<float> normal;
  std::vector<Floats> values(ranks, Floats(n));
  for (Floats& rank : values) {
    for (float& value : rank) value = normal(generator);
  }
  return values;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.empty() ||
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CascadingSignHopTest, AllRanksGetTheSameBitsWhateverComesFirst) {
  for (const Group& group : Rings()) {
    for (const int64_t n : {0, 1, 15, 333, 1000}) {
      SCOPED_TRACE(absl::StrCat(group.name, ", ", n, " values"));
      const std::vector<Floats> values = RandomValues(group.ranks, n);
      const Floats first = Cascade(group, values, {1, 2}, 64)[0];
      for (const Floats& reduced :
           Cascade(group, values, {1, 2}, 64, InAnyOrder)) {
        EXPECT_TRUE(SameBits(reduced, first));
      }
    }
  }
}

TEST(CascadingSignHopTest, ValuesAndResultMayBeSeparate) {
  const std::vector<Floats> values = RandomValues(3, 100);
  std::vector<Floats> reduced(3, Floats(100));
  ExpectAllReduces(Rings()[2], 100, [&](int rank) {
    return std::make_unique<CascadingSignHop>(values[rank].data(), Seed{1, 2},
                                              reduced[rank].data());
  });
  EXPECT_EQ(reduced, Cascade(Rings()[2], values, {1, 2}));
}

// One compression of `values` and back.
Floats Compress(const Floats& values, Seed seed) {
  const Piece piece = WholePiece(values.size());
  Floats decoded(values.size());
  CascadingSignHop hop(values.data(), seed, decoded.data());
  hop.Prepare(BucketLayout({piece.values}, 2, 64), 0);
  Bytes body(hop.MaxBodySize(piece, Content::kContribution));
  EXPECT_EQ(hop.Encode(piece, Aggregate::Contribution(), body.data()),
            static_cast<int64_t>(body.size()));
  EXPECT_TRUE(hop.Decode(piece, body.data(), body.size()).ok());
  return decoded;
}

TEST(CascadingSignHopTest, OneHopIsTheNormWithASignOfTheRightMean) {
  const Floats values = {3, -4, 0, 12, 0.5f, -0.5f, 1e-3f, -6, 2};
  double squares = 0;
  for (const float value : values) squares += value * value;
  const float norm = static_cast<float>(std::sqrt(squares));
  constexpr int kDraws = 20000;
  std::vector<double> sums(values.size());
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Floats decoded = Compress(values, {draw, 0});
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::fabs(decoded[i]), norm);
      sums[i] += decoded[i];
    }
  }
  // Five standard deviations, and what the quantiser itself is off.
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(sums[i] / kDraws, values[i],
                5 * norm / std::sqrt(kDraws) + norm * std::exp2(-16))
        << i;
  }
}

TEST(CascadingSignHopTest, MeanOfTheResultIsTheSum) {
  for (const int ranks : {2, 3}) {
    const Group group = Rings()[ranks - 1];
    const std::vector<Floats> values = RandomValues(ranks, 16 * ranks);
    constexpr int kDraws = 500;
    std::vector<double> sums(values[0].size()), squares(sums.size());
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const Floats reduced = Cascade(group, values, {draw, 3})[0];
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += reduced[i];
        squares[i] += reduced[i] * reduced[i];
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      double expected = 0;
      for (const Floats& rank : values) expected += rank[i];
      const double mean = sums[i] / kDraws;
      const double deviation = std::sqrt(squares[i] / kDraws - mean * mean);
      EXPECT_NEAR(mean, expected, 5 * deviation / std::sqrt(kDraws))
          << group.name << ", value " << i;
    }
  }
}

TEST(CascadingSignHopTest, ValueThatIsTheWholeNormIsExact) {
  // One per shard, so that all probabilities are 0 or 1 but those of zeros.
  Floats values(16);
  values[5] = -3;
  EXPECT_EQ(Compress(values, {4, 4})[5], -3);
}

TEST(CascadingSignHopTest, ZerosGiveZeros) {
  for (const Group& group : Rings()) {
    std::vector<Floats> values(group.ranks, Floats(100));
    values[0].assign(100, -0.0f);
    for (const Floats& reduced : Cascade(group, values, {1, 1})) {
      EXPECT_TRUE(SameBits(reduced, Floats(100)));
    }
  }
}

TEST(CascadingSignHopTest, NormThatOverflowsIsNanInItsPieceOnAllRanks) {
  std::vector<Floats> values(3, Floats(96, 1.0f));
  values[1][40] = 3e38f;
  const std::vector<Floats> reduced = Cascade(Rings()[2], values, {1, 1});
  for (const Floats& rank : reduced) {
    EXPECT_TRUE(SameBits(rank, reduced[0]));
    for (int i = 0; i < 96; ++i) {
      EXPECT_EQ(std::isnan(rank[i]), i >= 32 && i < 64) << i;
    }
  }
}

TEST(CascadingSignHopTest, DamagedBodyIsDataLoss) {
  constexpr int64_t kValues = 13;
  Floats values(kValues);
  CascadingSignHop hop(values.data(), {}, values.data());
  const auto body = [](float norm, const Bytes& signs) {
    Bytes bytes(sizeof(norm));
    std::memcpy(bytes.data(), &norm, sizeof(norm));
    bytes.insert(bytes.end(), signs.begin(), signs.end());
    return bytes;
  };
  const auto expect = [&](const Bytes& bytes, const char* message) {
    for (const absl::Status& status : {MergeBody(bytes, kValues, 3, 1, &hop),
                                       MergeBody(bytes, kValues, 3, 2, &hop),
                                       DecodeBody(bytes, kValues, 3, &hop)}) {
      ExpectDataLoss(status, message);
    }
  };
  for (const int64_t size : {0, 1, 4, 5, 7, 5000}) {
    expect(Bytes(size), "the body has");
  }
  for (const float norm : {-1.0f, kInfinity, -kInfinity}) {
    expect(body(norm, {0, 0}), "the norm is");
  }
  expect(body(1, {0xff, 0x20}), "padding bits behind 13 signs are not 0");
  EXPECT_TRUE(DecodeBody(body(2, {0xff, 0x0f}), kValues, 3, &hop).ok());
  Floats expected(kValues, 2.0f);
  expected[12] = -2;
  EXPECT_EQ(values, expected);
}

}  // namespace
}  // namespace tf_gc
