// Marsit's signs at the hops of an all-reduce.

#include "ops/collectives/sign_merge_hop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/collectives/topology.h"
#include "ops/kernels/signs.h"
#include "ops/wire/seeds.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using Bytes = std::vector<uint8_t>;
using kernels::Seed;
using kernels::SignPackedSize;

constexpr int64_t kUnit = 8 * kernels::kSignMergeUnit;

bool Bit(const Bytes& packed, int64_t i) { return packed[i / 8] >> i % 8 & 1; }

// The packed bits bit(i).
template <typename MakeBit>
Bytes MakeBits(int64_t n, MakeBit bit) {
  Bytes packed(SignPackedSize(n));
  for (int64_t i = 0; i < n; ++i) packed[i / 8] |= bit(i) << i % 8;
  return packed;
}

// What every rank gets of the signs of all.
std::vector<Bytes> MergeAll(const Group& group, int64_t n,
                            const std::vector<Bytes>& signs, Seed seed,
                            int64_t piece_values = int64_t{1} << 20,
                            const InProcessNetwork::Fault& fault = nullptr) {
  std::vector<Bytes> merged(group.ranks, Bytes(SignPackedSize(n), 0xaa));
  ExpectAllReduces(
      group, n,
      [&](int rank) {
        return std::make_unique<InPieces<SignMergeHop>>(
            piece_values, signs[rank].data(), seed, merged[rank].data());
      },
      fault);
  return merged;
}

std::vector<Bytes> RandomSigns(int ranks, int64_t n) {
  std::mt19937 generator(n);
  std::vector<Bytes> signs;
  for (int rank = 0; rank < ranks; ++rank) {
    signs.push_back(MakeBits(n, [&](int64_t) { return generator() & 1; }));
  }
  return signs;
}

TEST(SignMergeHopTest, AllRanksGetTheSameBitsWhateverComesFirst) {
  for (const Group& group : RingsAndTori()) {
    for (const int64_t n : {0, 1, 127, 128, 1003, 2000}) {
      SCOPED_TRACE(absl::StrCat(group.name, ", ", n, " values"));
      const std::vector<Bytes> signs = RandomSigns(group.ranks, n);
      const Bytes first = MergeAll(group, n, signs, {1, 2}, kUnit)[0];
      for (const Bytes& merged :
           MergeAll(group, n, signs, {1, 2}, kUnit, InAnyOrder)) {
        EXPECT_EQ(merged, first);
      }
    }
  }
}

TEST(SignMergeHopTest, ResultDoesNotDependOnHowItIsCutInPieces) {
  const std::vector<Bytes> signs = RandomSigns(3, 3000);
  EXPECT_EQ(MergeAll(Rings()[2], 3000, signs, {5, 0}, kUnit),
            MergeAll(Rings()[2], 3000, signs, {5, 0}));
}

TEST(SignMergeHopTest, BitsThatAllRanksShareStay) {
  constexpr int64_t kValues = 1003;
  for (const Group& group : RingsAndTori()) {
    SCOPED_TRACE(group.name);
    std::vector<Bytes> signs = RandomSigns(group.ranks, kValues);
    // In two of three values all ranks have the bit of the first.
    for (Bytes& sign : signs) {
      sign = MakeBits(kValues, [&](int64_t i) {
        return Bit(i % 3 == 0 ? sign : signs[0], i);
      });
    }
    const Bytes merged = MergeAll(group, kValues, signs, {3, 4}, kUnit)[0];
    for (int64_t i = 0; i < kValues; ++i) {
      if (i % 3 != 0) {
        EXPECT_EQ(Bit(merged, i), Bit(signs[0], i)) << i;
      }
    }
  }
}

TEST(SignMergeHopTest, PaddingStaysZero) {
  for (const Group& group : RingsAndTori()) {
    for (const int64_t n : {1, 1001, 1007}) {
      const std::vector<Bytes> signs(group.ranks,
                                     MakeBits(n, [](int64_t) { return true; }));
      for (const Bytes& merged : MergeAll(group, n, signs, {0, 0}, kUnit)) {
        EXPECT_EQ(merged, signs[0]);  // padding, too
      }
    }
  }
}

TEST(SignMergeHopTest, MeanOfTheResultIsTheMeanOfTheWorkersBits) {
  // Value i has the bits of i: worker w has bit w of it.
  constexpr int64_t kValues = 1 << 14;
  constexpr int kSeeds = 20;
  for (const Group& group : RingsAndTori()) {
    std::vector<Bytes> signs;
    for (int rank = 0; rank < group.ranks; ++rank) {
      signs.push_back(
          MakeBits(kValues, [&](int64_t i) { return i >> rank & 1; }));
    }
    const int patterns = 1 << group.ranks;
    std::vector<int> ones(patterns);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Bytes merged = MergeAll(group, kValues, signs, {seed, 7})[0];
      for (int64_t i = 0; i < kValues; ++i) {
        ones[i % patterns] += Bit(merged, i);
      }
    }
    const double draws = 1.0 * kValues * kSeeds / patterns;
    for (int pattern = 0; pattern < patterns; ++pattern) {
      const double mean = 1.0 * __builtin_popcount(pattern) / group.ranks;
      // Five standard deviations, and what merging itself is off, 2^-20 a hop.
      const double bound =
          5 * std::sqrt(mean * (1 - mean) / draws) + 5 * std::exp2(-20);
      EXPECT_NEAR(ones[pattern] / draws, mean, bound)
          << group.name << ", bits of the workers " << pattern;
    }
  }
}

// The transient vector that a rank draws: what it makes of its own zeros and
// ones that come. Where as many come as it has, half of its bits are 1.
Bytes TransientVector(Seed seed, int rank, int count, int piece) {
  constexpr int64_t kValues = 1 << 14;
  const Bytes own(2 * kValues / 8);
  const Bytes ones(kValues / 8, 0xff);
  Bytes merged(own.size());
  SignMergeHop hop(own.data(), seed, merged.data());
  hop.Prepare(BucketLayout({2 * kValues}, 2, kValues, hop.alignment()), rank);
  const int64_t begin = piece * kValues;
  const Piece place = {{{0, begin, kValues}}, kValues, begin, 0};
  hop.Start(place);
  hop.Anticipate(place, count, count);
  EXPECT_TRUE(
      hop.Merge(place, Aggregate::Partial(count), ones.data(), ones.size())
          .ok());
  return Bytes(merged.begin() + begin / 8,
               merged.begin() + begin / 8 + ones.size());
}

TEST(SignMergeHopTest, TransientVectorsAreIndependent) {
  std::vector<Bytes> vectors;
  for (const Seed seed : {Seed{1, 0}, Seed{1, 1}, Seed{2, 0}}) {
    for (const int rank : {0, 1, 2}) {
      for (const int count : {1, 2, 3}) {
        for (const int piece : {0, 1}) {
          vectors.push_back(TransientVector(seed, rank, count, piece));
        }
      }
    }
  }
  // Each, and the exclusive or of any two, is 1 in half of the bits, give or
  // take six standard deviations.
  vectors.insert(vectors.begin(), Bytes(vectors[0].size()));
  const double bits = 8.0 * vectors[0].size();
  for (size_t a = 0; a < vectors.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      int differing = 0;
      for (size_t i = 0; i < vectors[a].size(); ++i) {
        differing += __builtin_popcount(vectors[a][i] ^ vectors[b][i]);
      }
      EXPECT_NEAR(differing, bits / 2, 6 * std::sqrt(bits) / 2)
          << a << " and " << b;
    }
  }
}

TEST(SignMergeHopTest, SeedsOfRanksAndCountsDiffer) {
  std::vector<uint64_t> keys;
  for (int rank = 0; rank < 40; ++rank) {
    for (int count = 1; count < 40; ++count) {
      const Seed seed = HopSeed({12, 34}, rank, count);
      EXPECT_EQ(seed.stream, 34u);
      keys.push_back(seed.key);
    }
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

// Opens `drawn` when it draws; encodes only once `may_encode` is open.
class Drawing : public SignMergeHop {
 public:
  Drawing(const Bytes& own, Bytes* merged, std::promise<void>* drawn,
          std::future<void>* may_encode)
      : SignMergeHop(own.data(), {}, merged->data()),
        drawn_(drawn),
        may_encode_(may_encode) {}

  void Anticipate(const Piece& piece, int own, int incoming) override {
    SignMergeHop::Anticipate(piece, own, incoming);
    if (drawn_ != nullptr) drawn_->set_value();
  }
  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override {
    if (may_encode_ != nullptr) {
      EXPECT_EQ(may_encode_->wait_for(
                    std::chrono::duration<double>(kTimeoutSeconds / 2)),
                std::future_status::ready);
    }
    return SignMergeHop::Encode(piece, aggregate, body);
  }

 private:
  std::promise<void>* const drawn_;
  std::future<void>* const may_encode_;
};

TEST(SignMergeHopTest, TransientVectorIsDrawnBeforeTheMessageComes) {
  const Bytes own(32);
  std::vector<Bytes> merged(2, own);
  std::promise<void> drawn;
  std::future<void> may_encode = drawn.get_future();
  ExpectAllReduces({"ring", 2, kRing}, 256, [&](int rank) {
    return std::make_unique<Drawing>(own, &merged[rank],
                                     rank == 0 ? &drawn : nullptr,
                                     rank == 1 ? &may_encode : nullptr);
  });
}

TEST(SignMergeHopTest, DamagedBodyIsDataLoss) {
  constexpr int64_t kValues = 13;
  const Bytes own(2);
  Bytes merged(2);
  SignMergeHop hop(own.data(), {}, merged.data());
  const auto expect = [&](const Bytes& body, const char* message) {
    for (const absl::Status& status : {MergeBody(body, kValues, 3, 1, &hop),
                                       MergeBody(body, kValues, 3, 2, &hop),
                                       DecodeBody(body, kValues, 3, &hop)}) {
      ExpectDataLoss(status, message);
    }
  };
  for (const int64_t size : {0, 1, 3, 5000}) {
    expect(Bytes(size), "the body has");
  }
  expect({0xff, 0x20}, "padding bits behind 13 signs are not 0");
  EXPECT_TRUE(MergeBody({0xff, 0x1f}, kValues, 3, 2, &hop).ok());
  EXPECT_TRUE(DecodeBody({0xff, 0x1f}, kValues, 3, &hop).ok());
  EXPECT_EQ(merged, (Bytes{0xff, 0x1f}));
}

}  // namespace
}  // namespace tf_gc
