// Whole trainings, in which everything happens in a random order: workers come,
// pull, push, die and start again, pushes and answers to them get lost, and
// somebody writes to the variables. What must hold all the time: a worker has
// the published values of its version, bit for bit, and no gradient is lost.

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/server.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr char kUnits[] = "three_lc rows=15 decay=0.9";
constexpr char kThc4[] =
    "thc bits=4 truncation=2.15 headroom=1.2 seed=7 "
    "table=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15";

struct Setting {
  std::string name;
  ServerOptions options;
  std::string push, pull;
  int64_t start_step = 0;
};

// Sums of many values, to which rounding adds nothing.
using Doubles = std::vector<double>;

void AddTo(const Floats& values, double factor, Doubles* sum) {
  sum->resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) (*sum)[i] += factor * values[i];
}

class Training {
 public:
  Training(const Setting& setting, uint32_t seed)
      : generator_(seed),
        variables_({MakeVariable(1, {150}, setting.push, setting.pull,
                                 setting.start_step),
                    MakeVariable(2, {5}),
                    MakeVariable(3, {6, 2}, "float32", setting.pull)}),
        server_(new Server(setting.options, clock_)),
        balance_(variables_.size()) {
    for (const VariableInfo& variable : variables_) {
      ExpectOk(server_->AddVariable(variable, {}));
      values_[variable.id] =
          ToTensor(Gaussian(variable.size(), variable.id), {variable.size()});
    }
    Refresh(values_, server_.get());
    Observe();
    for (int i = 0; i < 3; ++i) Join();
  }

  void Step() {
    const int worker = Random(workers_.size());
    const int event = Random(100);
    if (event < 35) {
      Pull(worker);
    } else if (event < 75) {
      Push(worker);
    } else if (event < 80) {
      Push(worker, Fate::kNeverArrives);
    } else if (event < 85) {
      Push(worker, Fate::kNeverAnswered);
    } else if (event < 90) {
      Restart(worker);
    } else if (event < 93) {
      Join();
    } else if (event < 96) {
      Write();
    } else {
      Overtake(worker);
    }
  }

  // Gradients, less what was delivered, is what is in residuals and rounds.
  void ExpectNothingIsLost() {
    // So that no worker waits for an answer.
    for (size_t worker = 0; worker < workers_.size(); ++worker) Push(worker);
    std::vector<Doubles> balance = balance_;
    for (size_t v = 0; v < variables_.size(); ++v) {
      for (const Worker& worker : workers_) {
        AddTo(worker.Residual(v), -1, &balance[v]);
      }
      AddTo(Round(v), -1, &balance[v]);
      for (const double lost : balance[v]) ASSERT_NEAR(lost, 0, 1e-3);
    }
  }

  const Server& server() const { return *server_; }

 private:
  enum class Fate { kAnswered, kNeverAnswered, kNeverArrives };

  int Random(int64_t below) { return static_cast<int>(generator_() % below); }

  Floats RandomGradient(int64_t n) {
    return Gaussian(n, generator_(), Random(5) == 0 ? 10.0f : 0.1f);
  }

  Floats Round(size_t v) const {
    tensorflow::Tensor sum;
    ExpectOk(server_->ReadRound(variables_[v].id, SingleThread, &sum));
    return OrZeros(sum, variables_[v].size());
  }

  // What a worker that comes now would get is what others must have.
  void Observe() {
    Refresh(values_, server_.get());
    Worker observer(variables_);
    const int64_t version = observer.Follow(server_.get());
    for (size_t v = 0; v < variables_.size(); ++v) {
      published_[version].push_back(observer.Copy(v));
    }
    published_[version].resize(variables_.size());
  }

  void ExpectPublished(const Worker& worker) {
    const std::vector<Floats>& expected =
        published_.at(worker.Request().version);
    for (size_t v = 0; v < variables_.size(); ++v) {
      ASSERT_EQ(worker.Copy(v), expected[v]) << "variable " << v;
    }
  }

  void Join() {
    workers_.emplace_back(variables_);
    Pull(workers_.size() - 1);
  }

  void Pull(int worker) {
    Observe();
    workers_[worker].Follow(server_.get());
    ExpectPublished(workers_[worker]);
  }

  // A pull that arrives after the next one has been applied.
  void Overtake(int worker) {
    const Buffer message = workers_[worker].PullFrom(server_.get());
    Pull(worker);
    ExpectOk(workers_[worker].Apply(message));
    ExpectPublished(workers_[worker]);
  }

  void Restart(int worker) {
    Push(worker);  // so that it does not wait for an answer
    // Its residual is gone.
    for (size_t v = 0; v < variables_.size(); ++v) {
      AddTo(workers_[worker].Residual(v), -1, &balance_[v]);
    }
    workers_[worker] = Worker(variables_);
    Pull(worker);
  }

  void Write() {
    const uint32_t id = variables_[Random(variables_.size())].id;
    values_[id] = ToTensor(Gaussian(values_[id].NumElements(), generator_()));
    for (size_t v = 0; v < variables_.size(); ++v) {
      AddTo(Round(v), -1, &balance_[v]);  // it is forgotten
    }
    ExpectOk(server_->PublishWhole({id}, {id}, ReadFrom(&values_)));
    Observe();
  }

  void Push(int index, Fate fate = Fate::kAnswered) {
    Worker& worker = workers_[index];
    std::vector<DenseGradient> dense;
    for (size_t v = 0; v < 2; ++v) {
      const VariableInfo& variable = variables_[v];
      const Floats gradient = RandomGradient(variable.size());
      AddTo(gradient, 1, &balance_[v]);
      dense.push_back({variable.id, &variable.push, /*multiplier=*/1.5f,
                       variable.start_step, ToTensor(gradient)});
    }
    const Rows rows = {2, {Random(6), Random(6)}, RandomGradient(4)};
    Floats gradient(12, 0);
    AddRows(rows, gradient.data());
    AddTo(gradient, 1, &balance_[2]);
    const Buffer push = worker.Push(
        dense, {{3, Indices(rows.indices), ToTensor(rows.values, {2, 2})}});
    if (fate == Fate::kNeverArrives) return;
    const Answer outcome = Accumulate(push, server_.get());
    if (fate == Fate::kNeverAnswered) return;
    if (outcome.ready) Update(push);
    worker.Settle(push, outcome.accepted, outcome.counted);
  }

  void Update(const Buffer& push) {
    const ServerStatistics before = server_->Statistics();
    const int64_t pushes =
        server_->options().synchronous ? before.pushes_in_round : 1;
    Gradients gradients;
    ExpectOk(server_->TakeGradients(push.data(), push.size(), {1, 2}, {3},
                                    SingleThread, &gradients));
    std::vector<Floats> means = {ToFloats(gradients.dense[0]),
                                 ToFloats(gradients.dense[1]), Floats(12, 0)};
    AddRows(gradients.sparse[0], means[2].data());
    for (size_t v = 0; v < variables_.size(); ++v) {
      AddTo(means[v], -static_cast<double>(pushes), &balance_[v]);
      const uint32_t id = variables_[v].id;
      values_[id] = ToTensor(Sum(ToFloats(values_[id]), means[v]));
    }
    EndUpdate(values_, server_.get());
    Observe();
  }

  std::mt19937 generator_;
  const std::vector<VariableInfo> variables_;
  FakeClock clock_;  // updates take no time, and so have no lease
  const Resource<Server> server_;
  Values values_;
  std::vector<Worker> workers_;
  std::map<int64_t, std::vector<Floats>> published_;  // by version
  std::vector<Doubles> balance_;                      // by variable
};

class TrainingTest : public testing::TestWithParam<Setting> {};

TEST_P(TrainingTest, WorkersHavePublishedValuesAndNothingIsLost) {
  int64_t late = 0;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Training training(GetParam(), seed);
    for (int step = 0; step < 250 && !HasFatalFailure(); ++step) {
      training.Step();
      if (step % 10 == 0) training.ExpectNothingIsLost();
    }
    EXPECT_GT(training.server().Statistics().version, 10);
    late += training.server().Statistics().pushes_dropped;
  }
  // Any push on whatever version is in time if it may be as old as it likes.
  const ServerOptions& options = GetParam().options;
  EXPECT_EQ(late > 0, options.synchronous || options.max_staleness >= 0);
}

ServerOptions Rounds(int64_t pushes) {
  ServerOptions options;
  options.pushes_per_round = pushes;
  return options;
}

ServerOptions Asynchronous(int64_t max_staleness, int64_t updates) {
  ServerOptions options;
  options.synchronous = false;
  options.max_staleness = max_staleness;
  options.updates_per_version = updates;
  return options;
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const std::string codec :
       {"float32", "float16", "bfloat16", "int8", "three_lc"}) {
    settings.push_back({codec, Rounds(2), codec, codec});
  }
  settings.push_back({"units", Rounds(2), kUnits, "three_lc"});
  settings.push_back(
      {"means", Rounds(2), "three_lc scale=mean", "three_lc scale=mean"});
  settings.push_back({"unit_scale", Rounds(2),
                      absl::StrCat(kUnits, " scale=unit"),
                      "three_lc scale=unit"});
  settings.push_back({"units_warm_up", Rounds(3), kUnits, "three_lc", 6});
  settings.push_back({"units_async", Asynchronous(1, 1), kUnits, "three_lc"});
  settings.push_back({"warm_up", Rounds(2), "three_lc", "int8", 6});
  settings.push_back({"thc", Rounds(3), kThc4, "int8"});
  settings.push_back({"thc_warm_up", Rounds(2), kThc4, "three_lc", 5});
  settings.push_back({"thc_async", Asynchronous(-1, 2), kThc4, "float16"});
  settings.push_back({"async", Asynchronous(-1, 3), "three_lc", "three_lc"});
  settings.push_back({"async_bounded", Asynchronous(1, 1), "int8", "int8"});
  return settings;
}

INSTANTIATE_TEST_SUITE_P(, TrainingTest, testing::ValuesIn(Settings()),
                         [](const testing::TestParamInfo<Setting>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace tf_gc::parameter_server
