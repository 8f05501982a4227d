// Two buckets in one exchange.

#include "ops/collectives/joint_hop.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/three_lc_hop.h"
#include "tests/collectives/testing.h"

namespace tf_gc {
namespace {

using ::testing::Each;

using Floats = std::vector<float>;

const std::vector<int64_t> kSizes = {100, 0, 257, 5};
const std::vector<int64_t> kCompanions = {3, 1, 40};
constexpr float kDivisor = 2;

Floats Gaussian(int64_t size, int seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

// What a rank holds of the leader's bucket and of the companions', and what it
// has sent.
struct Rank {
  std::vector<Floats> gradients, residuals, floats;
  std::vector<Eigen::bfloat16> statistics;
  std::vector<VariableTraffic> traffic, companions_traffic;
};

std::vector<Rank> MakeRanks(int ranks) {
  std::vector<Rank> made(ranks);
  for (int r = 0; r < ranks; ++r) {
    for (const int64_t size : kSizes) {
      made[r].gradients.push_back(Gaussian(size, r));
      made[r].residuals.emplace_back(size);
    }
    for (int c = 0; c < 2; ++c) {
      made[r].floats.emplace_back(kCompanions[c], r + c + 1);
    }
    made[r].statistics.assign(kCompanions[2], Eigen::bfloat16(r + 1));
  }
  return made;
}

// Makes the leader of a rank.
using MakeLeader = std::function<std::unique_ptr<Hop>(
    Rank* rank, std::vector<FeedbackVariable>* variables, int64_t pieces)>;

std::unique_ptr<Hop> ThreeLcLeader(Rank* rank,
                                   std::vector<FeedbackVariable>* variables,
                                   int64_t piece_values) {
  for (size_t v = 0; v < kSizes.size(); ++v) {
    Floats& gradient = rank->gradients[v];
    variables->push_back({kSizes[v], gradient.data(), rank->residuals[v].data(),
                          gradient.data(), nullptr});
  }
  const auto commit = [=](const std::vector<bool>&) {
    for (size_t v = 0; v < kSizes.size(); ++v) {
      std::swap(rank->gradients[v], rank->residuals[v]);
      (*variables)[v].reduced = rank->gradients[v].data();
    }
    return absl::OkStatus();
  };
  return std::make_unique<InPieces<ThreeLcHop>>(piece_values, variables, 1.0f,
                                                1.0f, commit);
}

std::unique_ptr<Hop> ExactLeader(Rank* rank, std::vector<FeedbackVariable>*,
                                 int64_t piece_values) {
  std::vector<ExactVariable> variables;
  for (Floats& gradient : rank->gradients) {
    variables.push_back(Exact<float>{gradient.data(), gradient.data()});
  }
  return std::make_unique<InPieces<ExactHop>>(piece_values, variables);
}

std::vector<ExactVariable> CompanionsOf(Rank* rank) {
  std::vector<ExactVariable> variables;
  for (Floats& values : rank->floats) {
    variables.push_back(Exact<float>{values.data(), values.data(), kDivisor});
  }
  variables.push_back(Exact<Eigen::bfloat16>{rank->statistics.data(),
                                             rank->statistics.data(), 1, true});
  return variables;
}

std::vector<absl::Status> AllReduceJointly(
    std::vector<Rank>* ranks, const MakeLeader& make, int64_t piece_values,
    const Topology& topology, bool with_companions,
    const InProcessNetwork::Fault& fault = InAnyOrder) {
  InProcessNetwork network(ranks->size());
  network.SetFault(fault);
  return RunRanks(ranks->size(), &network, [&](int r) {
    Rank& rank = (*ranks)[r];
    std::vector<FeedbackVariable> variables;
    const std::unique_ptr<Hop> leader = make(&rank, &variables, piece_values);
    JointHop joint(
        with_companions ? CompanionsOf(&rank) : std::vector<ExactVariable>(),
        with_companions ? kCompanions : std::vector<int64_t>());
    Hop* const hop = joint.With(leader.get());
    EXPECT_EQ(hop == leader.get(), !with_companions);
    Mailbox mailbox(network.transport(r), kTimeoutSeconds);
    const absl::Status status =
        AllReduce(kSizes, topology,
                  {r, static_cast<int>(ranks->size()), /*round=*/0, &mailbox},
                  hop, &rank.traffic);
    rank.companions_traffic = joint.traffic();
    return status;
  });
}

// What the leader does is the same as without companions, bit for bit, and so
// is what is counted of it.
void ExpectTravelTogether(const MakeLeader& make, int ranks,
                          int64_t piece_values, const Topology& topology) {
  SCOPED_TRACE(absl::StrCat(ranks, " ranks, pieces of ", piece_values, ", ",
                            TopologyNames({topology.kind})));
  std::vector<Rank> alone = MakeRanks(ranks), joint = MakeRanks(ranks);
  for (const auto& [all, with_companions] :
       {std::pair(&alone, false), std::pair(&joint, true)}) {
    for (const absl::Status& status :
         AllReduceJointly(all, make, piece_values, topology, with_companions)) {
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  const float sum = ranks * (ranks + 1) / 2;
  const float divisor = ranks == 1 ? 1 : kDivisor;  // one rank is its own mean
  int64_t statistics_bytes = 0;
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(joint[r].gradients, alone[r].gradients);
    EXPECT_EQ(joint[r].residuals, alone[r].residuals);
    for (size_t v = 0; v < kSizes.size(); ++v) {
      EXPECT_EQ(joint[r].traffic[v].values, alone[r].traffic[v].values);
      EXPECT_EQ(joint[r].traffic[v].bytes, alone[r].traffic[v].bytes);
    }
    EXPECT_THAT(joint[r].floats[0], Each(sum / divisor));
    EXPECT_THAT(joint[r].floats[1], Each((sum + ranks) / divisor));
    EXPECT_THAT(joint[r].statistics, Each(Eigen::bfloat16(sum)));
    statistics_bytes += joint[r].companions_traffic[2].bytes;
  }
  // Once up and once down, on every topology.
  EXPECT_EQ(statistics_bytes, 2 * (ranks - 1) * 2 * kCompanions[2]);
}

TEST(JointHopTest, CompanionsTravelWith3LC) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int64_t piece_values : {16, 1 << 20}) {
      ExpectTravelTogether(ThreeLcLeader, ranks, piece_values, kSharded);
    }
  }
}

TEST(JointHopTest, CompanionsTravelOnEveryTopology) {
  for (const int64_t piece_values : {16, 1 << 20}) {
    for (const Topology& topology : {kSharded, kRing, kTree}) {
      for (int ranks = 1; ranks <= 5; ++ranks) {
        ExpectTravelTogether(ExactLeader, ranks, piece_values, topology);
      }
    }
    ExpectTravelTogether(ExactLeader, 6, piece_values, TorusOf(2));
  }
}

TEST(JointHopTest, AMessageWithoutCompanionsIsDataLoss) {
  const auto cut = [](Transfer* transfer) {
    if (transfer->bytes.size() <= kHeaderSize) return;
    int64_t size = kHeaderSize + 1;
    std::memcpy(transfer->bytes.data() + 24, &size, sizeof(size));
    SealAgain(transfer);
  };
  std::vector<Rank> ranks = MakeRanks(2);
  int damaged = 0;
  for (const absl::Status& status :
       AllReduceJointly(&ranks, ThreeLcLeader, 1 << 20, kSharded, true, cut)) {
    EXPECT_FALSE(status.ok());
    damaged += absl::IsDataLoss(status);
  }
  EXPECT_GE(damaged, 1);
}

TEST(JointHopTest, ABodyThatIsTooShortForItsCompanionsIsNamed) {
  std::vector<Rank> ranks = MakeRanks(1);
  std::vector<FeedbackVariable> variables;
  const std::unique_ptr<Hop> leader =
      ThreeLcLeader(&ranks[0], &variables, 1 << 20);
  JointHop joint(CompanionsOf(&ranks[0]), kCompanions);
  const BucketLayout layout(kSizes, 2,
                            joint.With(leader.get())->piece_values());
  joint.Plan(layout);
  joint.Prepare(layout, 0);
  const Piece& piece = layout.shard(0).front();
  joint.Start(piece);
  const std::vector<uint8_t> body(3);
  for (const absl::Status& status :
       {joint.Merge(piece, Aggregate::Contribution(), body.data(), 3),
        joint.Decode(piece, body.data(), 3)}) {
    ExpectDataLoss(status, "3LC message: the values of uncompressed variables");
  }
}

}  // namespace
}  // namespace tf_gc
