// THC's all-reduce against the kernels that it is made of, and with ranks that
// are wrong.

#include "ops/collectives/thc_all_reduce.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/stochastic_quantize.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using Floats = std::vector<float>;
using kernels::Seed;
using kernels::SingleThread;
using kernels::ThcBlocks;
using ::testing::Contains;
using ::testing::Ne;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kTruncation = 2.15f;
constexpr Seed kSigns = {1, 2};

// One rank's variables.
struct Rank {
  std::vector<Floats> gradients, residuals;
};
using Ranks = std::vector<Rank>;

struct Options {
  std::vector<uint16_t> table = {0, 1, 3, 4};
  Topology topology = kSharded;
  float divisor = 1;
  std::vector<Floats> units = {};  // of each variable, or none
  std::vector<int64_t> rows = {};  // those of the units
  void (*round)(float*, int64_t) = nullptr;
  kernels::ParallelFor threads = SingleThread;
};

ThcScheme Scheme(const Options& options, int rank) {
  return {kernels::ThcTable(options.table), kTruncation, kSigns,
          Seed{3, static_cast<uint64_t>(rank)}};
}

Ranks MakeRanks(int ranks, const std::vector<int64_t>& sizes) {
  std::mt19937 generator(ranks);
  std::normal_distribution<float> normal;
  Ranks made(ranks);
  for (Rank& rank : made) {
    for (const int64_t size : sizes) {
      for (auto* values : {&rank.gradients, &rank.residuals}) {
        values->emplace_back(size);
        for (float& value : values->back()) value = normal(generator);
      }
    }
  }
  return made;
}

// ---- the code under test ----------------------------------------------------

// Rotates the buffers as the op's kernel does.
absl::Status RunRank(Rank* rank, const Options& options, Transport* transport) {
  std::vector<FeedbackVariable> variables;
  for (size_t v = 0; v < rank->gradients.size(); ++v) {
    Floats& gradient = rank->gradients[v];
    FeedbackVariable variable = {static_cast<int64_t>(gradient.size()),
                                 gradient.data(), rank->residuals[v].data(),
                                 gradient.data(), nullptr};
    variable.round = options.round;
    if (!options.units.empty()) {
      variable.units = options.units[v].data();
      variable.rows = options.rows[v];
    }
    variables.push_back(variable);
  }
  const auto commit = [&](const std::vector<bool>& non_finite) {
    for (size_t v = 0; v < variables.size(); ++v) {
      if (!non_finite[v]) std::swap(rank->gradients[v], rank->residuals[v]);
      variables[v].reduced = rank->gradients[v].data();
    }
    return absl::OkStatus();
  };
  Mailbox mailbox(transport, kTimeoutSeconds);
  ThcBucket bucket(&variables, Scheme(options, transport->rank()),
                   transport->size(), options.divisor, options.threads);
  int64_t bytes_sent = 0;
  JointHop companions({}, {});
  return ThcAllReduce(
      &bucket, commit, options.topology,
      {transport->rank(), transport->size(), /*round=*/4, &mailbox},
      options.threads, &companions, &bytes_sent);
}

std::vector<absl::Status> ExchangeUnderFault(
    Ranks* ranks, const Options& options,
    const InProcessNetwork::Fault& fault) {
  InProcessNetwork network(ranks->size());
  network.SetFault(fault);
  return RunRanks(ranks->size(), &network, [&](int rank) {
    return RunRank(&(*ranks)[rank], options, network.transport(rank));
  });
}

void Exchange(Ranks* ranks, const Options& options) {
  for (const absl::Status& status :
       ExchangeUnderFault(ranks, options, InAnyOrder)) {
    ASSERT_TRUE(status.ok()) << status;
  }
}

// ---- the reference ----------------------------------------------------------

Floats Joined(const std::vector<Floats>& variables) {
  Floats joined;
  for (const Floats& values : variables) {
    joined.insert(joined.end(), values.begin(), values.end());
  }
  return joined;
}

// None is below a tenth of the root mean square.
Floats Raised(Floats::const_iterator begin, Floats::const_iterator end) {
  double squares = 0;
  for (auto unit = begin; unit != end; ++unit) squares += double{*unit} * *unit;
  const float least = 0.1f * float(std::sqrt(squares / (end - begin)));
  Floats raised(begin, end);
  for (float& unit : raised) unit = std::max(unit, least);
  return raised;
}

Floats Units(const Options& options, int64_t n) {
  if (options.units.empty()) return Floats(n, 1);
  Floats units;
  for (size_t v = 0; v < options.units.size(); ++v) {
    const auto middle = options.units[v].begin() + options.rows[v];
    const Floats columns = Raised(middle, options.units[v].end());
    for (const float a : Raised(options.units[v].begin(), middle)) {
      for (const float b : columns) units.push_back(a * b);
    }
  }
  return units;
}

// Reduces what is finite: gradients become what is delivered.
void Reduce(Ranks* ranks, const Options& options) {
  const Floats first = Joined((*ranks)[0].gradients);
  const int64_t n = first.size();
  const ThcBlocks blocks = ThcBucketBlocks(n, ranks->size());
  const kernels::ThcTable table(options.table);
  const Floats units = Units(options, n);
  std::vector<Floats> x;
  Floats norms(blocks.count);
  for (const Rank& rank : *ranks) {
    const Floats g = Joined(rank.gradients), e = Joined(rank.residuals);
    x.emplace_back(blocks.padded());
    for (int64_t i = 0; i < n; ++i) x.back()[i] = (g[i] + e[i]) / units[i];
    for (int64_t b = 0; b < blocks.count; ++b) {
      const float norm = std::sqrt(kernels::SumOfSquares(
          x.back().data() + b * blocks.size, blocks.size));
      norms[b] = std::max(norms[b], norm);
    }
  }
  const float factor = kTruncation / std::sqrt(double(blocks.size));
  const auto limit = [&](int64_t i) { return factor * norms[i / blocks.size]; };
  const auto back = [&](Floats* rotated) {
    kernels::InverseRandomizedHadamard(rotated->data(), blocks.count,
                                       blocks.size, kSigns, rotated->data(),
                                       SingleThread);
    for (int64_t i = 0; i < n; ++i) (*rotated)[i] *= units[i];
  };
  Floats total(blocks.padded());
  std::vector<Floats> own;
  for (size_t r = 0; r < ranks->size(); ++r) {
    Floats rotated(blocks.padded());
    kernels::RandomizedHadamard(x[r].data(), blocks.count, blocks.size, kSigns,
                                rotated.data(), SingleThread);
    for (size_t i = 0; i < rotated.size(); ++i) {
      rotated[i] = limit(i) > 0 ? rotated[i] / limit(i) : 0;
    }
    std::vector<uint8_t> indices(rotated.size());
    kernels::StochasticQuantize(
        rotated.data(), rotated.size(), table.levels.data(),
        table.levels.size(), *Scheme(options, r).rounding, 0, indices.data());
    for (size_t i = 0; i < rotated.size(); ++i) {
      total[i] += table.integers[indices[i]];
      rotated[i] = limit(i) * table.levels[indices[i]];
    }
    back(&rotated);
    own.push_back(rotated);
  }
  const float step = 2.0f / table.granularity();
  for (size_t i = 0; i < total.size(); ++i) {
    total[i] = limit(i) * (total[i] * step - ranks->size());
  }
  back(&total);
  for (size_t r = 0; r < ranks->size(); ++r) {
    int64_t i = 0;
    for (size_t v = 0; v < (*ranks)[r].gradients.size(); ++v) {
      Floats& gradient = (*ranks)[r].gradients[v];
      Floats& residual = (*ranks)[r].residuals[v];
      for (size_t j = 0; j < gradient.size(); ++j, ++i) {
        residual[j] = gradient[j] + residual[j] - own[r][i];
        gradient[j] = total[i] / options.divisor;
        if (options.round == nullptr) continue;
        options.round(&gradient[j], 1);
        residual[j] +=
            1.0f / ranks->size() * (total[i] - options.divisor * gradient[j]);
      }
    }
  }
}

void ExpectReduces(int ranks, const std::vector<int64_t>& sizes,
                   const Options& options) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks");
  Ranks expected = MakeRanks(ranks, sizes), actual = expected;
  Reduce(&expected, options);
  Exchange(&actual, options);
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(actual[r].residuals, expected[r].residuals);
    if (options.round != nullptr) {
      for (Floats& values : actual[r].gradients) {
        options.round(values.data(), values.size());
      }
    }
    EXPECT_EQ(actual[r].gradients, expected[r].gradients);
  }
}

// As three threads may cut work, in another order than one.
void InParts(int64_t total, int64_t /*cost*/,
             const kernels::ParallelWork& work) {
  const int64_t cuts[] = {0, total / 3, total / 2, total};
  for (int i = 2; i >= 0; --i) {
    if (cuts[i] < cuts[i + 1]) work(cuts[i], cuts[i + 1]);
  }
}

TEST(ThcAllReduceTest, IsTheKernelsThatItIsMadeOf) {
  for (const int ranks : {1, 2, 3, 5}) {
    ExpectReduces(ranks, {1000, 0, 1, 4000, 77}, {});
  }
}

TEST(ThcAllReduceTest, BlocksGrowWithTheRanksWhoseNormsTheyHave) {
  const auto size = [](int ranks) {
    return ThcBucketBlocks(1 << 20, ranks).size;
  };
  EXPECT_EQ(size(2), 1 << 12);
  EXPECT_EQ(size(8), 1 << 12);
  EXPECT_EQ(size(9), 1 << 13);
  EXPECT_EQ(size(64), 1 << 15);
  EXPECT_EQ(size(1000), 1 << 16);
}

TEST(ThcAllReduceTest, BlocksMayBeLargeAndCutByShards) {
  ExpectReduces(3, {100000, 96000}, {.threads = InParts});
  ExpectReduces(9, {20000, 12000}, {.threads = InParts});
}

TEST(ThcAllReduceTest, RingAndTorusGiveTheSame) {
  ExpectReduces(4, {70000, 300}, {.topology = kRing});
  ExpectReduces(4, {5000}, {.topology = TorusOf(2)});
}

TEST(ThcAllReduceTest, SumsMayNeedMoreThanEightBits) {
  ExpectReduces(3, {5000}, {.table = {0, 40, 70, 100}});
  ExpectReduces(2, {5000}, {.table = {0, 1, 2, 32767}, .topology = kRing});
}

TEST(ThcAllReduceTest, QuantizesInUnits) {
  Floats units(30 + 40 + 2 + 500, 0.5f);
  for (size_t i = 0; i < units.size(); ++i) units[i] += i % 7;
  const Floats first(units.begin(), units.begin() + 70);
  const Floats second(units.begin() + 70, units.end());
  ExpectReduces(3, {30 * 40, 2 * 500},
                {.divisor = 3, .units = {first, second}, .rows = {30, 2}});
}

TEST(ThcAllReduceTest, PartsOfOneVariableAreDecodedWhereItIs) {
  Floats units(64 + 128, 0.5f);
  for (size_t i = 0; i < units.size(); ++i) units[i] += i % 7;
  for (const float divisor : {1.0f, 3.0f}) {
    ExpectReduces(3, {64 * 128},
                  {.divisor = divisor, .units = {units}, .rows = {64}});
    ExpectReduces(3, {300, 64 * 128}, {.divisor = divisor});
  }
}

TEST(ThcAllReduceTest, NoUnitIsFarBelowTheOthers) {
  Floats units(30 + 40, 1);
  units[7] = units[50] = 1e-3f;
  ExpectReduces(3, {30 * 40}, {.units = {units}, .rows = {30}});
}

TEST(ThcAllReduceTest, WhatRoundingTakesStaysInTheResiduals) {
  const auto round = [](float* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = std::round(8 * values[i]) / 8;
    }
  };
  ExpectReduces(3, {5000}, {.divisor = 3, .round = round});
}

TEST(ThcAllReduceTest, ThreadsThatFlushDenormalsChangeNothing) {
  Ranks ranks = MakeRanks(2, {3000});
  for (Rank& rank : ranks) {
    for (float& value : rank.gradients[0]) value *= 1e-38f;
    for (float& value : rank.residuals[0]) value *= 1e-38f;
  }
  InProcessNetwork network(ranks.size());
  for (const absl::Status& status :
       RunRanks(ranks.size(), &network, [&](int rank) {
         const unsigned flush = _MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK;
         if (rank == 0) _mm_setcsr(_mm_getcsr() | flush);
         return RunRank(&ranks[rank], Options(), network.transport(rank));
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(ranks[0].gradients, ranks[1].gradients);
  EXPECT_THAT(ranks[0].gradients[0], Contains(Ne(0)));
}

TEST(ThcAllReduceTest, EmptyBucketIsReduced) { ExpectReduces(3, {0, 0}, {}); }

// ---- values that are not finite ---------------------------------------------

void ExpectNaN(const Floats& values) {
  for (const float value : values) ASSERT_TRUE(std::isnan(value));
}

TEST(ThcAllReduceTest, NonFiniteVariableIsNaNEverywhereAndKeepsItsResidual) {
  for (const int64_t size : {800, 64 * 128}) {  // that has a part of its own
    Ranks ranks = MakeRanks(3, {900, size, 700});
    ranks[1].gradients[1][7] = kNaN;
    const Ranks before = ranks;
    // The others are as if this rank had zeros there.
    Ranks expected = ranks;
    expected[1].gradients[1] = expected[1].residuals[1] = Floats(size);
    Reduce(&expected, {});
    Exchange(&ranks, {});
    for (int r = 0; r < 3; ++r) {
      ExpectNaN(ranks[r].gradients[1]);
      EXPECT_EQ(ranks[r].residuals[1], before[r].residuals[1]);
      for (const int v : {0, 2}) {
        EXPECT_EQ(ranks[r].gradients[v], expected[r].gradients[v]);
        EXPECT_EQ(ranks[r].residuals[v], expected[r].residuals[v]);
      }
    }
  }
}

TEST(ThcAllReduceTest, SumThatMightOverflowIsNaNWhereItsBlockIs) {
  // Blocks of 64 values: the first one belongs to the first variable alone.
  Ranks ranks = MakeRanks(2, {640, 500});
  for (Rank& rank : ranks) rank.gradients[0][3] = 1.7e38f;
  const Ranks before = ranks;
  Exchange(&ranks, {});
  for (int r = 0; r < 2; ++r) {
    ExpectNaN(ranks[r].gradients[0]);
    EXPECT_EQ(ranks[r].residuals[0], before[r].residuals[0]);
    for (const float value : ranks[r].gradients[1]) {
      ASSERT_TRUE(std::isfinite(value));
    }
    EXPECT_NE(ranks[r].residuals[1], before[r].residuals[1]);
  }
}

// ---- what is wrong ----------------------------------------------------------

TEST(ThcAllReduceTest, SumsThatDoNotFitIn16BitsAreRefused) {
  Ranks ranks = MakeRanks(2, {100});
  for (const absl::Status& status :
       ExchangeUnderFault(&ranks, {.table = {0, 1, 2, 32768}}, nullptr)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("use a smaller granularity"));
  }
}

// What a bucket of two variables and two blocks makes of statistics.
absl::Status AgreeOn(const std::vector<uint8_t>& statistics) {
  Floats values(100);
  std::vector<FeedbackVariable> variables(
      2, {50, values.data(), values.data(), values.data(), values.data()});
  ThcBucket bucket(&variables, Scheme({}, 0), /*ranks=*/2, /*divisor=*/1,
                   SingleThread);
  Bytes peer(statistics.size());
  std::copy(statistics.begin(), statistics.end(), peer.data());
  return bucket.Agree({peer});
}

std::vector<uint8_t> Statistics(uint8_t flags, float norm) {
  std::vector<uint8_t> statistics(1 + 2 * sizeof(float));
  statistics[0] = flags;
  std::memcpy(statistics.data() + 5, &norm, sizeof(norm));
  return statistics;
}

TEST(ThcAllReduceTest, DamagedStatisticsAreDataLoss) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(AgreeOn(Statistics(3, 1)).ok());
  EXPECT_TRUE(AgreeOn(Statistics(0, kInfinity)).ok());
  ExpectDataLoss(AgreeOn({3}), "from rank 0: THC statistics");
  ExpectDataLoss(AgreeOn(Statistics(7, 1)), "padding");
  ExpectDataLoss(AgreeOn(Statistics(3, -1)), "the norm of block 1 is -1");
  ExpectDataLoss(AgreeOn(Statistics(3, kNaN)), "the norm of block 1 is nan");
}

TEST(ThcAllReduceTest, FailedExchangeKeepsResiduals) {
  Ranks ranks = MakeRanks(3, {5000});
  const Ranks before = ranks;
  const auto cut = [](Transfer* transfer) {
    if (transfer->source == 2) transfer->status = absl::UnavailableError("cut");
  };
  for (const absl::Status& status : ExchangeUnderFault(&ranks, {}, cut)) {
    EXPECT_FALSE(status.ok());
  }
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks[r].residuals, before[r].residuals);
  }
}

}  // namespace
}  // namespace tf_gc
