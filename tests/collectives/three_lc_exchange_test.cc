// The exchange compressed with 3LC, against a slow one of scalars.

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/three_lc_hop.h"
#include "ops/kernels/kernel_table.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using kernels::ThreeLcScaling;
using ::testing::HasSubstr;
using Of = ThreeLcScaling::Of;

using Floats = std::vector<float>;
using Variables = std::vector<Floats>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a rank holds of its variables. The exchange turns the gradients into
// the reduced gradients and the residuals into the new ones.
struct Rank {
  Variables gradients;
  Variables residuals;
};
using Ranks = std::vector<Rank>;

struct Options {
  ThreeLcScaling scaling = 1;
  float divisor = 1;
  int64_t piece_values = 1 << 20;
  // Of each variable, if there are any: a, then b, and the length of a; empty
  // for no units.
  Variables units = {};
  std::vector<int64_t> rows = {};
  bool are_small = false;  // what ranks know of their gradients
};

// Index of the first value whose bits differ, or -1.
int FirstDifference(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b.at(i), sizeof(float)) != 0) return i;
  }
  return -1;
}

// ---- the code under test ----------------------------------------------------

// Rotates the buffers as the op's kernel does: the gradient's takes the new
// residual, and whichever then is no residual takes the reduced gradient.
absl::Status RunRank(Rank* rank, const Options& options, uint32_t round,
                     Transport* transport) {
  std::vector<int64_t> sizes;
  std::vector<FeedbackVariable> variables;
  for (size_t v = 0; v < rank->gradients.size(); ++v) {
    Floats& gradient = rank->gradients[v];
    sizes.push_back(gradient.size());
    variables.push_back({sizes[v], gradient.data(), rank->residuals[v].data(),
                         gradient.data(), nullptr});
    variables[v].are_small = options.are_small;
    if (options.units.empty() || options.units[v].empty()) continue;
    variables[v].units = options.units[v].data();
    variables[v].rows = options.rows[v];
  }
  const auto commit = [&](const std::vector<bool>& non_finite) {
    for (size_t v = 0; v < variables.size(); ++v) {
      if (!non_finite[v]) std::swap(rank->gradients[v], rank->residuals[v]);
      variables[v].reduced = rank->gradients[v].data();
    }
    return absl::OkStatus();
  };
  InPieces<ThreeLcHop> hop(options.piece_values, &variables, options.scaling,
                           options.divisor, commit);
  return AllReduce(sizes, round, transport, &hop);
}

// As many of TensorFlow's threads do.
void FlushDenormals() {
  _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK);
}

std::vector<absl::Status> ExchangeUnderFault(
    Ranks* ranks, const Options& options,
    const InProcessNetwork::Fault& fault) {
  InProcessNetwork network(ranks->size());
  network.SetFault(fault);
  return RunRanks(ranks->size(), &network, [&](int rank) {
    return RunRank(&(*ranks)[rank], options, 0, network.transport(rank));
  });
}

void Exchange(Ranks* ranks, const Options& options) {
  for (const absl::Status& status :
       ExchangeUnderFault(ranks, options, InAnyOrder)) {
    ASSERT_TRUE(status.ok()) << status;
  }
}

// ---- the reference ----------------------------------------------------------

// The units of variable v.
class ReferenceUnits {
 public:
  ReferenceUnits(const Options& options, size_t v, int64_t size) {
    if (options.units.empty() || options.units[v].empty()) {
      rows_ = {1};
      columns_ = Floats(size, 1);
      return;
    }
    const auto middle = options.units[v].begin() + options.rows[v];
    rows_ = Floats(options.units[v].begin(), middle);
    columns_ = Floats(middle, options.units[v].end());
  }

  // factor times the unit of value i.
  float Times(float factor, int64_t i) const {
    const float row = factor * rows_[i / columns_.size()];
    return row * columns_[i % columns_.size()];
  }

  // `value` in the unit of value i.
  float Divide(float value, int64_t i) const {
    const float row = 1 / rows_[i / columns_.size()];
    return value * (row * (1 / columns_[i % columns_.size()]));
  }

 private:
  Floats rows_;
  Floats columns_;
};

// The scale of values that are measured segment by segment, of variable v; in
// units so many times as large.
float ReferenceScale(const Options& options, size_t v, float times,
                     const std::vector<Floats>& segments) {
  float largest = 0;
  double total = 0;
  int64_t count = 0;
  for (const Floats& values : segments) {
    Floats lanes(kernels::kMagnitudeLanes);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) return kNan;
      largest = std::fmax(largest, std::fabs(values[i]));
      lanes[i % lanes.size()] += std::fabs(values[i]);
    }
    total += std::accumulate(lanes.begin(), lanes.end(), 0.0);
    count += values.size();
  }
  if (count == 0) return 0;
  float multiplier = options.scaling.multiplier;
  Of of = options.scaling.of;
  if (of == Of::kUnit && (options.units.empty() || options.units[v].empty())) {
    multiplier = 3;
    of = Of::kMean;
  }
  if (of == Of::kUnit) {
    return std::fmin(multiplier * times, largest);
  }
  if (of == Of::kMean) {
    return std::fmin(static_cast<float>(multiplier * (total / count)), largest);
  }
  const float scale = multiplier * largest;
  return std::isfinite(scale) ? scale : kNan;
}

float Quantize(float value, float scale) {
  if (2 * std::fabs(static_cast<double>(value)) <= scale) return 0;
  return value > 0 ? 1 : -1;
}

// One value of the bucket, and who quantises the sum of it together with whom.
struct Place {
  int server;
  std::tuple<int, int64_t, int> segment;  // server, piece and variable
};

std::vector<std::vector<Place>> Places(const Variables& variables, int ranks,
                                       int64_t piece_values) {
  int64_t total = 0;
  for (const Floats& variable : variables) total += variable.size();
  // A shard begins at the multiple of 16 below its share.
  std::vector<int64_t> begins;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t share = total / ranks * rank;
    begins.push_back(share - share % 16);
  }
  std::vector<std::vector<Place>> places(variables.size());
  int64_t position = 0;
  for (size_t v = 0; v < variables.size(); ++v) {
    for (size_t i = 0; i < variables[v].size(); ++i, ++position) {
      int server = ranks - 1;
      while (begins[server] > position) --server;
      const int64_t piece = (position - begins[server]) / piece_values;
      places[v].push_back({server, {server, piece, static_cast<int>(v)}});
    }
  }
  return places;
}

// The five steps for one variable, value after value.
void ReferenceOfVariable(size_t v, const std::vector<Place>& places,
                         const Options& options, Ranks* ranks) {
  const size_t n = places.size();
  const int count = ranks->size();
  const ReferenceUnits units(options, v, n);
  // 1. Each rank adds its residual and finds the scale of what it will send.
  std::vector<Floats> t(count, Floats(n));
  Floats scales(count);
  bool finite = true;
  for (int r = 0; r < count; ++r) {
    std::vector<Floats> sent;  // by segment
    for (size_t i = 0; i < n; ++i) {
      t[r][i] = (*ranks)[r].gradients[v][i] + (*ranks)[r].residuals[v][i];
      finite = finite && std::isfinite(t[r][i]);
      if (places[i].server == r) continue;
      if (sent.empty() || i == 0 ||
          places[i].segment != places[i - 1].segment) {
        sent.emplace_back();
      }
      sent.back().push_back(units.Divide(t[r][i], i));
    }
    scales[r] = ReferenceScale(options, v, /*times=*/1, sent);
    finite = finite && !std::isnan(scales[r]);
  }
  if (!finite) {
    for (Rank& rank : *ranks) rank.gradients[v].assign(n, kNan);
    return;
  }
  // 2. It sends every server its quantised values and keeps the error.
  // 3. The server adds them to its own, which are exact.
  std::map<std::tuple<int, int64_t, int>, Floats> segments;
  Floats sums(n);
  for (size_t i = 0; i < n; ++i) {
    const int server = places[i].server;
    float sum = t[server][i];
    for (int d = 1; d < count; ++d) {
      const int r = (server + d) % count;
      const float scale = units.Times(scales[r], i);
      const float q = Quantize(t[r][i], scale);
      (*ranks)[r].residuals[v][i] = t[r][i] - scale * q;
      if (q != 0) sum += scale * q;
    }
    sums[i] = sum;
    segments[places[i].segment].push_back(units.Divide(sum, i));
  }
  // 4. It quantises the sum with the scale of the segment, keeps the error,
  // 5. and all decode what it sends.
  std::map<std::tuple<int, int64_t, int>, float> segment_scales;
  for (const auto& [segment, values] : segments) {
    const float times = 2 * std::sqrt(static_cast<float>(count));
    segment_scales[segment] = ReferenceScale(options, v, times, {values});
  }
  for (size_t i = 0; i < n; ++i) {
    const float scale = segment_scales.at(places[i].segment);
    Floats& residual = (*ranks)[places[i].server].residuals[v];
    float reduced = kNan;
    if (!std::isnan(scale)) {
      const float q = Quantize(sums[i], units.Times(scale, i));
      residual[i] = sums[i] - units.Times(scale, i) * q;
      reduced = units.Times(scale / options.divisor, i) * q;
    }
    for (Rank& rank : *ranks) rank.gradients[v][i] = reduced;
  }
}

void ReferenceExchange(Ranks* ranks, const Options& options) {
  const std::vector<std::vector<Place>> places =
      Places((*ranks)[0].gradients, ranks->size(), options.piece_values);
  for (size_t v = 0; v < places.size(); ++v) {
    ReferenceOfVariable(v, places[v], options, ranks);
  }
}

// ---- inputs and expectations ------------------------------------------------

const std::vector<int64_t> kSizes = {3, 100, 0, 1, 257, 40, 64, 1000, 7, 12};

// Units for most of them; some segments begin within a row.
Options InUnits(Options options) {
  options.rows = {1, 10, 0, 0, 257, 5, 0, 8, 7, 3};
  std::mt19937 generator(1);
  std::lognormal_distribution<float> lognormal(-1, 1);
  for (size_t v = 0; v < kSizes.size(); ++v) {
    const int64_t rows = options.rows[v];
    options.units.emplace_back(rows == 0 ? 0 : rows + kSizes[v] / rows);
    for (float& unit : options.units.back()) unit = lognormal(generator);
  }
  return options;
}

Ranks MakeRanks(int count, const std::vector<int64_t>& sizes = kSizes) {
  std::mt19937 generator(count);
  std::normal_distribution<float> normal;
  Ranks ranks(count);
  for (Rank& rank : ranks) {
    for (const int64_t size : sizes) {
      rank.gradients.emplace_back(size);
      rank.residuals.emplace_back(size);
      for (float& value : rank.gradients.back()) value = normal(generator);
      for (float& value : rank.residuals.back()) {
        value = normal(generator) / 4;
      }
    }
  }
  return ranks;
}

void NewGradients(uint32_t seed, Ranks* ranks) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (Rank& rank : *ranks) {
    for (Floats& gradient : rank.gradients) {
      for (float& value : gradient) value = normal(generator);
    }
  }
}

void ExpectSameBits(const Ranks& actual, const Ranks& expected) {
  for (size_t r = 0; r < actual.size(); ++r) {
    for (size_t v = 0; v < actual[r].gradients.size(); ++v) {
      EXPECT_EQ(
          FirstDifference(actual[r].gradients[v], expected[r].gradients[v]), -1)
          << "reduced, rank " << r << ", variable " << v;
      EXPECT_EQ(
          FirstDifference(actual[r].residuals[v], expected[r].residuals[v]), -1)
          << "residual, rank " << r << ", variable " << v;
    }
  }
}

void ExpectAgreement(const Ranks& ranks) {
  for (const Rank& rank : ranks) {
    for (size_t v = 0; v < rank.gradients.size(); ++v) {
      EXPECT_EQ(FirstDifference(rank.gradients[v], ranks[0].gradients[v]), -1);
    }
  }
}

// ---- the tests --------------------------------------------------------------

class ThreeLcExchangeTest
    : public testing::TestWithParam<
          std::tuple<int, ThreeLcScaling, int64_t, bool>> {
 protected:
  int count() const { return std::get<0>(GetParam()); }
  Options options(float divisor) const {
    const Options options = {std::get<1>(GetParam()), divisor,
                             std::get<2>(GetParam())};
    return std::get<3>(GetParam()) ? InUnits(options) : options;
  }
};

INSTANTIATE_TEST_SUITE_P(
    , ThreeLcExchangeTest,
    testing::Combine(testing::Values(1, 2, 3, 4),  // ranks
                     testing::Values(0.4f, 1.0f, 1.9f,
                                     ThreeLcScaling(2.5f, Of::kMean),
                                     ThreeLcScaling(1.5f, Of::kUnit)),
                     testing::Values(64, int64_t{1} << 20),  // piece_values
                     testing::Bool()                         // in units
                     ));

TEST_P(ThreeLcExchangeTest, IsBitForBitThatOfTheReference) {
  for (const float divisor : {1.0f, static_cast<float>(count())}) {
    Ranks ranks = MakeRanks(count());
    Ranks expected = ranks;
    for (uint32_t step = 0; step < 3; ++step) {
      NewGradients(step, &ranks);
      NewGradients(step, &expected);
      Exchange(&ranks, options(divisor));
      ReferenceExchange(&expected, options(divisor));
      ExpectAgreement(ranks);
      ExpectSameBits(ranks, expected);
    }
  }
}

TEST_P(ThreeLcExchangeTest, IsTheSameWhereGradientsAreKnownToBeSmall) {
  Ranks ranks = MakeRanks(count());
  Ranks expected = ranks;
  for (uint32_t step = 0; step < 3; ++step) {
    NewGradients(step, &ranks);
    NewGradients(step, &expected);
    // In the second step no value has the size that settles a scale in units.
    for (Ranks* all : {&ranks, &expected}) {
      for (Rank& rank : *all) {
        for (Floats& gradient : rank.gradients) {
          for (float& value : gradient) value *= step == 1 ? 1e-4f : 1;
        }
      }
    }
    Options small = options(1);
    small.are_small = true;
    Exchange(&ranks, small);
    ReferenceExchange(&expected, options(1));
    ExpectSameBits(ranks, expected);
  }
}

// Scales of contributions are settled soon; those of sums, of which only the
// last value of a shard is large enough, at the end.
TEST(ThreeLcExchangeOfManyTest, ScalesInUnitsAreThoseOfAllValues) {
  const int64_t n = 18000;  // more in a shard than are looked at first
  for (const float late : {3.0f, 10.0f}) {
    Options options = {ThreeLcScaling(2.5f, Of::kUnit)};
    options.units = {Floats(300 + n / 300, 1.0f)};
    options.rows = {300};
    Ranks ranks = MakeRanks(3, {n});
    for (Rank& rank : ranks) {
      for (float& value : rank.gradients[0]) value /= 2;
      for (float& value : rank.residuals[0]) value = 0;
      for (int64_t end = n / 3; end <= n; end += n / 3) {
        rank.gradients[0][end - 17] = late;
      }
    }
    Ranks expected = ranks;
    options.are_small = true;
    Exchange(&ranks, options);
    ReferenceExchange(&expected, options);
    ExpectSameBits(ranks, expected);
  }
}

TEST(ThreeLcExchangeOfManyTest, ThreadsThatFlushDenormalsChangeNothing) {
  Options options = {ThreeLcScaling(0.9f, Of::kMean)};
  options.units = {Floats(30 + 20, 1.0f)};
  options.rows = {30};
  Ranks ranks = MakeRanks(2, {600});
  for (Rank& rank : ranks) {
    for (float& value : rank.gradients[0]) value *= 1e-39f;
    for (float& value : rank.residuals[0]) value *= 1e-39f;
  }
  Ranks expected = ranks;
  InProcessNetwork network(ranks.size());
  for (const absl::Status& status :
       RunRanks(ranks.size(), &network, [&](int rank) {
         if (rank == 0) FlushDenormals();
         return RunRank(&ranks[rank], options, 0, network.transport(rank));
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  ReferenceExchange(&expected, options);
  ExpectSameBits(ranks, expected);
}

TEST_P(ThreeLcExchangeTest, InputsAndResidualsAreDeliveredOrStillResiduals) {
  const Ranks before = MakeRanks(count());
  Ranks after = before;
  Exchange(&after, options(1));
  for (size_t v = 0; v < kSizes.size(); ++v) {
    for (int64_t i = 0; i < kSizes[v]; ++i) {
      double in = 0, out = after[0].gradients[v][i];
      for (int r = 0; r < count(); ++r) {
        in += static_cast<double>(before[r].gradients[v][i]) +
              before[r].residuals[v][i];
        out += after[r].residuals[v][i];
      }
      ASSERT_NEAR(in, out, 1e-5) << "variable " << v << ", value " << i;
    }
  }
}

TEST(ThreeLcExchangeOfTwoTest, IsWhatAHandFinds) {
  // Rank 0 serves the values 0 ... 15, rank 1 the others.
  Ranks ranks(2);
  for (Rank& rank : ranks) {
    rank.gradients = {Floats(32)};
    rank.residuals = {Floats(32)};
  }
  ranks[0].gradients[0][0] = 1;
  ranks[0].gradients[0][31] = -3;
  ranks[0].residuals[0][31] = -1;  // t = -4, and M = 4 on rank 0
  ranks[1].gradients[0][0] = 2;    // M = 2 on rank 1
  ranks[1].gradients[0][1] = 0.5f;
  ranks[1].gradients[0][31] = 1;
  Exchange(&ranks, {1, 2, 1 << 20});
  // Rank 0 adds 1 + 2 = 3, and 0 + 0; M = 3. Rank 1 adds 1 - 4 = -3; M = 3.
  Floats reduced(32);
  reduced[0] = 1.5f;
  reduced[31] = -1.5f;
  EXPECT_EQ(ranks[0].gradients[0], reduced);
  EXPECT_EQ(ranks[1].gradients[0], reduced);
  EXPECT_EQ(ranks[0].residuals[0], Floats(32));
  Floats residual(32);
  residual[1] = 0.5f;
  EXPECT_EQ(ranks[1].residuals[0], residual);
}

TEST(ThreeLcExchangeOfNonFiniteTest, IsNanOnAllRanksAndKeepsTheResiduals) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const size_t v : {size_t{0}, size_t{3}, size_t{7}, size_t{9}}) {
      const Options options = {1.5f, 1, 64};
      Ranks ranks = MakeRanks(3);
      ranks[1].gradients[v].back() = bad;
      const Ranks before = ranks;
      Ranks expected = ranks;
      Exchange(&ranks, options);
      ReferenceExchange(&expected, options);
      ExpectSameBits(ranks, expected);
      for (int r = 0; r < 3; ++r) {
        const Floats nans(kSizes[v], kNan);
        EXPECT_EQ(FirstDifference(ranks[r].gradients[v], nans), -1);
        EXPECT_EQ(
            FirstDifference(ranks[r].residuals[v], before[r].residuals[v]), -1);
      }
    }
  }
}

TEST(ThreeLcExchangeOfNonFiniteTest, DifferentVariablesOfDifferentRanks) {
  Ranks ranks = MakeRanks(4);
  ranks[0].gradients[1][5] = kNan;
  ranks[3].gradients[4][200] = kInfinity;
  ranks[2].gradients[4][0] = kNan;
  Ranks expected = ranks;
  Exchange(&ranks, {1, 4, 64});
  ReferenceExchange(&expected, {1, 4, 64});
  ExpectSameBits(ranks, expected);
}

TEST(ThreeLcExchangeOfNonFiniteTest, SumThatOverflowsIsNanInItsSegment) {
  // Of the value 20, which rank 1 serves, alone.
  Ranks ranks = MakeRanks(2, {32, 5});
  for (Rank& rank : ranks) rank.gradients[0][20] = 2.5e38f;
  const Ranks before = ranks;
  Exchange(&ranks, {1, 1, 1 << 20});
  ExpectAgreement(ranks);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(std::isnan(ranks[0].gradients[0][i]), i >= 16) << i;
    for (const Rank& rank : ranks) {
      EXPECT_TRUE(std::isfinite(rank.residuals[0][i])) << i;
    }
  }
  for (int i = 16; i < 32; ++i) {
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(ranks[r].residuals[0][i], before[r].residuals[0][i]) << i;
    }
  }
  for (const float value : ranks[0].gradients[1]) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(ThreeLcExchangeOfZerosTest, IsZerosInAFewBytes) {
  Ranks ranks(3);
  for (Rank& rank : ranks) {
    rank.gradients = {Floats(2000), Floats(3)};
    rank.residuals = rank.gradients;
  }
  const Ranks before = ranks;
  int64_t bytes = 0;
  const std::vector<absl::Status> statuses = ExchangeUnderFault(
      &ranks, {}, [&](Transfer* transfer) { bytes += transfer->bytes.size(); });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok());
  ExpectSameBits(ranks, before);
  EXPECT_LE(bytes, 12 * 64);  // heads alone
}

TEST(ThreeLcExchangeOfStepTest, RanksOutOfStepAreDataLoss) {
  Ranks ranks = MakeRanks(3);
  InProcessNetwork network(3);
  const std::vector<absl::Status> statuses =
      RunRanks(3, &network, [&](int rank) {
        return RunRank(&ranks[rank], {}, rank == 1 ? 8 : 7,
                       network.transport(rank));
      });
  int losses = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    if (status.code() != absl::StatusCode::kDataLoss) continue;
    ++losses;
    EXPECT_THAT(std::string(status.message()), HasSubstr("round is"));
  }
  EXPECT_GT(losses, 0);
}

// Lets rank 0's message of this tag, which fits in a head, arrive with another
// size and body.
class DamagedBodyTest : public testing::TestWithParam<const char*> {
 protected:
  using Damage = std::function<void(int64_t* size, uint8_t* body)>;

  absl::Status StatusAfter(const Damage& damage) {
    Ranks ranks = MakeRanks(2, {100, 0, 60});
    // So sparse that no message is as long as it might be.
    return ExchangeUnderFault(&ranks, {1.9f}, [&](Transfer* transfer) {
      if (transfer->source != 0 || transfer->tag != GetParam()) {
        return;
      }
      int64_t size;
      uint8_t* const bytes = transfer->bytes.data();
      std::memcpy(&size, bytes + 24, sizeof(size));
      damage(&size, bytes + kHeaderSize);
      std::memcpy(bytes + 24, &size, sizeof(size));
      SealAgain(transfer);
    })[1];
  }
};

INSTANTIATE_TEST_SUITE_P(, DamagedBodyTest,
                         testing::Values("contribution:1", "sum:0"));

TEST_P(DamagedBodyTest, UndamagedIsOk) {
  EXPECT_TRUE(StatusAfter([](int64_t*, uint8_t*) {}).ok());
}

TEST_P(DamagedBodyTest, TruncatedAnywhereIsDataLoss) {
  int64_t whole = 0;
  ASSERT_TRUE(
      StatusAfter([&](int64_t* size, uint8_t*) { whole = *size; }).ok());
  for (int64_t shorter = 0; shorter < whole; ++shorter) {
    EXPECT_EQ(
        StatusAfter([&](int64_t* size, uint8_t*) { *size = shorter; }).code(),
        absl::StatusCode::kDataLoss)
        << shorter << " bytes";
  }
}

TEST_P(DamagedBodyTest, OverlongIsDataLoss) {
  for (const int64_t longer : {1, 2}) {
    EXPECT_EQ(
        StatusAfter([&](int64_t* size, uint8_t*) { *size += longer; }).code(),
        absl::StatusCode::kDataLoss);
  }
}

TEST_P(DamagedBodyTest, LongerThanAnyMessageIsResourceExhausted) {
  for (const int64_t longer : {100, 1 << 20}) {
    EXPECT_EQ(
        StatusAfter([&](int64_t* size, uint8_t*) { *size += longer; }).code(),
        absl::StatusCode::kResourceExhausted);
  }
}

TEST(ThreeLcExchangeOfManyTest, ScalesAboveTheirUnitsAreDataLoss) {
  const int64_t n = 60;  // a message is one transfer
  Options options = {ThreeLcScaling(2.5f, Of::kUnit)};
  options.units = {Floats(6 + n / 6, 1.0f)};
  options.rows = {6};
  options.are_small = true;  // so nobody looks whether a sum overflows
  for (const std::string tag : {"contribution:1", "sum:0"}) {
    const bool is_sum = tag == "sum:0";
    const int flags = is_sum ? 0 : 1;
    for (const float scale : {is_sum ? 5.2f * std::sqrt(2.0f) : 2.6f, 3e38f}) {
      Ranks ranks = MakeRanks(2, {n});
      const absl::Status status =
          ExchangeUnderFault(&ranks, options, [&](Transfer* transfer) {
            if (transfer->source != 0 || transfer->tag != tag) return;
            std::memcpy(transfer->bytes.data() + kHeaderSize + flags, &scale,
                        sizeof(scale));
            SealAgain(transfer);
          })[1];
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << tag << scale;
      EXPECT_THAT(
          std::string(status.message()),
          testing::HasSubstr("from rank 0: 3LC message: the scale of "));
    }
  }
}

TEST(ThreeLcExchangeOfManyTest, FlagsOfMoreVariablesAreDataLoss) {
  Ranks ranks = MakeRanks(2, {100, 60});
  const absl::Status status =
      ExchangeUnderFault(&ranks, {1.9f}, [&](Transfer* transfer) {
        if (transfer->source != 0 || transfer->tag != "contribution:1") return;
        transfer->bytes[kHeaderSize] |= 1 << 2;
        SealAgain(transfer);
      })[1];
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(
                  "from rank 0: 3LC message: the padding bits behind 2"));
}

TEST_P(DamagedBodyTest, RandomIsDataLossUnlessItHappensToBeAMessage) {
  int losses = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 generator(seed);
    const absl::Status status = StatusAfter([&](int64_t* size, uint8_t* body) {
      *size = kHeaderSize + generator() % (*size - kHeaderSize + 1);
      for (int64_t i = 0; i < *size - kHeaderSize; ++i) body[i] = generator();
    });
    if (status.ok()) continue;
    ++losses;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "seed " << seed;
  }
  EXPECT_GT(losses, 180);
}

TEST_P(DamagedBodyTest, ScaleThatIsNegativeOrInfiniteIsNamed) {
  for (const float scale : {-1.0f, kInfinity, -kInfinity}) {
    const absl::Status status = StatusAfter([&](int64_t*, uint8_t* body) {
      const int flags = GetParam()[0] == 'c' ? 1 : 0;  // bytes of them
      std::memcpy(body + flags, &scale, sizeof(scale));
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the scale of variable 0"));
  }
}

TEST(ThreeLcExchangeFaultTest, EveryRankEndsWhateverTransferFails) {
  // With 3 ranks, small pieces, and remainders.
  for (int failing = 0; failing < 100; failing += 3) {
    Ranks ranks = MakeRanks(3);
    int count = 0;
    const std::vector<absl::Status> statuses =
        ExchangeUnderFault(&ranks, {1, 1, 48}, [&](Transfer* transfer) {
          if (count++ == failing) {
            transfer->status = absl::UnavailableError("connection reset");
          }
        });
    int failures = 0;
    for (const absl::Status& status : statuses) {
      if (status.ok()) continue;
      ++failures;
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
    EXPECT_GE(failures, 2);  // both ends at least
  }
}

}  // namespace
}  // namespace tf_gc
