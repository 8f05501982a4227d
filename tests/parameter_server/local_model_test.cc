#include "ops/parameter_server/local_model.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/push_body.h"
#include "ops/parameter_server/server.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr char kUnits[] = "three_lc rows=4 decay=0.5";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A server of some variables, and their values.
class Fixture {
 public:
  explicit Fixture(const std::vector<VariableInfo>& variables,
                   const ServerOptions& options = {})
      : variables_(variables), server_(new Server(options)) {
    for (const VariableInfo& variable : variables_) {
      ExpectOk(server_->AddVariable(variable, {}));
      Set(variable.id, Gaussian(variable.size(), variable.id));
    }
    Refresh(values_, server());
  }

  Server* server() { return server_.get(); }

  void Set(uint32_t id, const Floats& values) {
    values_[id] = ToTensor(values);
  }
  void EndUpdate() { parameter_server::EndUpdate(values_, server()); }
  void PublishWhole(uint32_t id) {
    ExpectOk(server_->PublishWhole({id}, {id}, ReadFrom(&values_)));
  }
  Floats Round(uint32_t id) {
    tensorflow::Tensor sum;
    ExpectOk(server_->ReadRound(id, SingleThread, &sum));
    return OrZeros(sum, values_[id].NumElements());
  }

 private:
  const std::vector<VariableInfo> variables_;
  const Resource<Server> server_;
  Values values_;
};

// Statistics with their weight.
Floats With(Floats statistics, float weight) {
  statistics.push_back(weight);
  return statistics;
}

std::vector<VariableInfo> OneVariable(const std::string& push,
                                      int64_t start_step = 0, int64_t n = 100) {
  return {MakeVariable(1, {n}, push, "int8", start_step)};
}

// A server whose rounds have two pushes, so that one leaves the round open.
ServerOptions TwoPushes() {
  ServerOptions options;
  options.pushes_per_round = 2;
  return options;
}

TEST(LocalModelTest, RequestsNameWhatIsNotThereOrOfAnotherVersion) {
  const std::vector<VariableInfo> both = {MakeVariable(1, {2}),
                                          MakeVariable(2, {3})};
  Fixture fixture(both);
  const Resource<LocalModel> model(new LocalModel);
  EXPECT_EQ(model->Request({1, 2}).ToVector(),
            (std::vector<int64_t>{0, 0, 1, 0, 2, 0}));
  const auto pull = [&](const std::vector<uint32_t>& ids,
                        const std::vector<PulledVariable>& pulled) {
    int64_t version, step;
    const Buffer message = Pull(model->Request(ids), ids, fixture.server());
    ExpectOk(model->Apply(message.data(), message.size(), pulled, SingleThread,
                          &version, &step));
    return version;
  };
  const PulledVariable first = {1, both[0].shape}, second = {2, both[1].shape};
  EXPECT_EQ(pull({1}, {first}), 1);
  EXPECT_EQ(model->Request({1, 2}).ToVector(),
            (std::vector<int64_t>{1, 0, 2, 0}));
  EXPECT_EQ(pull({1, 2}, {first, second}), 1);
  EXPECT_EQ(model->Request({1, 2}).ToVector(), (std::vector<int64_t>{1, 0}));
  fixture.Set(1, {5, 6});
  fixture.EndUpdate();
  EXPECT_EQ(pull({1}, {first}), 2);
  EXPECT_EQ(model->Request({1, 2}).ToVector(),
            (std::vector<int64_t>{2, 0, 2, 1}));
}

TEST(LocalModelTest, CopiesAreTheServersValues) {
  Fixture fixture({MakeVariable(1, {2, 3}), MakeVariable(2, {})});
  Worker worker({MakeVariable(1, {2, 3}), MakeVariable(2, {})});
  EXPECT_EQ(worker.Follow(fixture.server()), 1);
  EXPECT_EQ(worker.Copy(0), Gaussian(6, 1));
  EXPECT_EQ(worker.Copy(1), Gaussian(1, 2));
}

TEST(LocalModelTest, ReadingWhatWasNotPulledNamesIt) {
  const Resource<LocalModel> model(new LocalModel);
  tensorflow::Tensor value;
  const absl::Status status = model->Read(7, {}, &value);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("variable 7 was not pulled"));
}

TEST(LocalModelTest, ReadingInAnotherShapeIsInvalid) {
  Fixture fixture({MakeVariable(1, {6})});
  Worker worker({MakeVariable(1, {6})});
  worker.Follow(fixture.server());
  tensorflow::Tensor value;
  ExpectOk(worker.model().Read(1, tensorflow::TensorShape({3, 2}), &value));
  ExpectInvalid(worker.model().Read(1, tensorflow::TensorShape({4}), &value),
                "has 6 values");
}

TEST(LocalModelTest, WhoHasReadACopyKeepsIt) {
  const std::vector<VariableInfo> variables = OneVariable("int8");
  Fixture fixture(variables);
  Worker worker(variables);
  worker.Follow(fixture.server());
  tensorflow::Tensor value, again;
  ExpectOk(worker.model().Read(1, variables[0].shape, &value));
  ExpectOk(worker.model().Read(1, variables[0].shape, &again));
  EXPECT_EQ(FloatsOf(value), FloatsOf(again));  // not copied
  const Floats before = ToFloats(value);
  fixture.Set(1, Gaussian(100, 9));
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  EXPECT_EQ(ToFloats(value), before);
  EXPECT_NE(worker.Copy(0), before);
}

TEST(LocalModelTest, PullsThatHaveBeenOvertakenChangeNothing) {
  const std::vector<VariableInfo> variables = OneVariable("int8");
  Fixture fixture(variables);
  Worker worker(variables), other(variables);
  worker.Follow(fixture.server());
  other.Follow(fixture.server());
  fixture.Set(1, Gaussian(100, 9));
  fixture.EndUpdate();
  const Buffer overtaken = worker.PullFrom(fixture.server());
  fixture.Set(1, Gaussian(100, 10));
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  other.Follow(fixture.server());
  ExpectOk(worker.Apply(overtaken));
  EXPECT_EQ(worker.Copy(0), other.Copy(0));
  EXPECT_EQ(worker.Request().version, 3);
}

TEST(LocalModelTest, DamagedPullsChangeNothingOrAreWhole) {
  const std::vector<VariableInfo> variables = {
      MakeVariable(1, {20}, "int8", "three_lc"),
      MakeVariable(2, {65}, kThc, "int8")};
  Fixture fixture(variables);
  Worker worker(variables);
  const Buffer whole = worker.PullFrom(fixture.server());
  ExpectOk(worker.Apply(whole));
  const Buffer push = worker.Push({Gaussian(20, 5), Gaussian(65, 6)});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  fixture.Set(1, Gaussian(20, 9));
  fixture.Set(2, Gaussian(65, 9));
  fixture.EndUpdate();
  const Buffer message = worker.PullFrom(fixture.server());
  int64_t applied = 0;
  ForEachDamage(message, [&](Buffer damaged) {
    SealIfMessage(&damaged);
    Worker other(variables);
    ExpectOk(other.Apply(whole));
    const absl::Status status = other.Apply(damaged);
    if (status.ok() && other.Request().version != 1) {
      // Another version, or wrong values in the right form.
      EXPECT_EQ(damaged.size(), message.size());
      ++applied;
      return;
    }
    EXPECT_TRUE(status.ok() || absl::IsDataLoss(status) ||
                absl::IsFailedPrecondition(status))
        << status;
    EXPECT_EQ(other.Copy(0), worker.Copy(0));
    EXPECT_EQ(other.Copy(1), worker.Copy(1));
  });
  EXPECT_GT(applied, 0);
}

TEST(LocalModelTest, PushesDeliverWhatTheyTakeFromTheResidual) {
  for (const std::string push :
       {"float32", "float16", "bfloat16", "int8", "three_lc", kUnits}) {
    const std::vector<VariableInfo> variables = OneVariable(push);
    Fixture fixture(variables, TwoPushes());
    Worker worker(variables);
    worker.Follow(fixture.server());
    const Floats gradient = Gaussian(100, 3), residual = Gaussian(100, 4);
    worker.model().WriteResidual(1, ToTensor(residual));
    const Buffer bytes = worker.Push({gradient});
    EXPECT_TRUE(Accumulate(bytes, fixture.server()).accepted);
    ExpectNear(Sum(fixture.Round(1), worker.Residual(0)),
               Sum(gradient, residual), 1e-6);
    EXPECT_EQ(push == "float32", worker.Residual(0) == Floats(100, 0));
  }
}

TEST(LocalModelTest, WithoutFeedbackNothingIsKept) {
  const std::vector<VariableInfo> variables = OneVariable("int8 feedback=0");
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  worker.model().WriteResidual(1, ToTensor(Gaussian(100, 4)));
  Accumulate(worker.Push({Gaussian(100, 3)}), fixture.server());
  EXPECT_EQ(worker.Residual(0), Floats(100, 0));
  ExpectNear(fixture.Round(1), Sum(Gaussian(100, 3), Gaussian(100, 4)), 0.03f);
}

TEST(LocalModelTest, DroppedPushesGoBackIntoTheResidual) {
  for (const std::string push : {"float32", "float16", "int8",
                                 "int8 feedback=0", "three_lc", kUnits, kThc}) {
    const std::vector<VariableInfo> variables = OneVariable(push);
    Fixture fixture(variables);
    Worker worker(variables);
    worker.Follow(fixture.server());
    for (int i = 0; i < 2; ++i) {  // the second time with scales
      Floats residual = worker.Residual(0);
      const Floats gradient = Gaussian(100, 3);
      const Buffer bytes = worker.Push({gradient});
      worker.Settle(bytes, false);
      const float lost = push == "int8 feedback=0" ? 0.03f : 1e-5f;
      ExpectNear(worker.Residual(0), Sum(residual, gradient), lost);
      EXPECT_TRUE(Accumulate(bytes, fixture.server()).ready);
      fixture.EndUpdate();
      worker.Follow(fixture.server());
    }
  }
}

TEST(LocalModelTest, AcceptedPushesStayAway) {
  const std::vector<VariableInfo> variables = OneVariable("float32");
  Worker worker(variables);
  worker.Settle(worker.Push({Gaussian(100, 3)}), true);
  EXPECT_EQ(worker.Residual(0), Floats(100, 0));
}

TEST(LocalModelTest, PushesThatNeverArriveAreTakenBack) {
  for (const std::string push :
       {"float32", "float16", "int8", "three_lc", kUnits, kThc}) {
    const std::vector<VariableInfo> variables = OneVariable(push);
    Fixture fixture(variables);
    Worker worker(variables);
    Floats left(100, 0);
    for (int i = 0; i < 2; ++i) {  // the second time with scales
      worker.Follow(fixture.server());
      const Floats first = Gaussian(100, 3), second = Gaussian(100, 4);
      worker.Push({first});
      const Buffer bytes = worker.Push({second});
      const Answer answer = Accumulate(bytes, fixture.server());
      worker.Settle(bytes, answer.accepted, answer.counted);
      const Floats expected = Sum(left, Sum(first, second));
      left = worker.Residual(0);
      ExpectNear(Sum(fixture.Round(1), left), expected, 1e-4f);
      fixture.EndUpdate();
    }
  }
}

TEST(LocalModelTest, PushesFromBeforeARestoreAreForgotten) {
  Worker worker(OneVariable("three_lc"));
  worker.Push({Gaussian(100, 3)});
  const Floats restored = Gaussian(100, 4), gradient = Gaussian(100, 5);
  worker.model().WriteResidual(1, ToTensor(restored));
  worker.Settle(worker.Push({gradient}), false);
  ExpectNear(worker.Residual(0), Sum(restored, gradient), 1e-5f);
}

TEST(LocalModelTest, ForgottenVariablesLeaveNothing) {
  std::vector<VariableInfo> variables = OneVariable("three_lc");
  variables.push_back(MakeVariable(2, {100}, "three_lc", "int8"));
  Fixture fixture(variables);
  Worker worker(variables);
  worker.Follow(fixture.server());
  const Floats gradient = Gaussian(100, 3);
  const Buffer both = worker.Push({gradient, gradient});
  worker.Push({{2, &variables[1].push, 1, 0, ToTensor(gradient)}}, {});
  worker.model().Forget({2});
  EXPECT_EQ(worker.model().UnsettledPushes().size(), 3);  // `both`, for 1
  worker.Settle(both, false);
  ExpectNear(worker.Residual(0), gradient, 1e-6f);
  EXPECT_EQ(worker.Residual(1), Floats(100, 0));
  tensorflow::Tensor copy;
  EXPECT_TRUE(absl::IsFailedPrecondition(
      worker.model().Read(2, variables[1].shape, &copy)));
  // Pulls that name it make it anew only where the server still has it.
  fixture.server()->Forget({2}, {});
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      worker.model().Read(2, variables[1].shape, &copy)));
}

// What a checkpoint does to know a residual.
void AskForUnsettled(Server* server, Worker* worker) {
  const std::vector<int64_t> unsettled = worker->model().UnsettledPushes();
  std::vector<int64_t> counted;
  ExpectOk(server->CountedPushes(unsettled, &counted));
  worker->model().SettleUnsettled(unsettled, {counted.begin(), counted.end()});
}

TEST(LocalModelTest, ResidualsHavePushesThatHaveNotCounted) {
  const std::vector<VariableInfo> variables = OneVariable("float32");
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  const Floats arrived = Gaussian(100, 3), lost = Gaussian(100, 4);
  Accumulate(worker.Push({arrived}), fixture.server());
  worker.Push({lost});
  EXPECT_EQ(worker.model().UnsettledPushes().size(), 5);
  AskForUnsettled(fixture.server(), &worker);
  EXPECT_EQ(worker.Residual(0), lost);
  EXPECT_EQ(fixture.Round(1), arrived);
  EXPECT_EQ(worker.model().UnsettledPushes().size(), 3);
  std::vector<int64_t> counted;
  ExpectInvalid(fixture.server()->CountedPushes({1, 2}, &counted), "pairs");
}

TEST(LocalModelTest, ReadingAResidualChangesNothingOfAPushUnderWay) {
  for (const bool synchronous : {false, true}) {
    ServerOptions options = TwoPushes();
    options.synchronous = synchronous;
    const std::vector<VariableInfo> variables = {MakeVariable(1, {2}),
                                                 MakeVariable(2, {3, 1})};
    Fixture fixture(variables, options);
    Worker worker(variables);
    worker.Follow(fixture.server());
    const Buffer push =
        worker.Push({{1, &variables[0].push, 1, 0, ToTensor({4, 5})}},
                    {{2, Indices({1}), ToTensor({6}, {1, 1})}});
    if (synchronous) AskForUnsettled(fixture.server(), &worker);
    EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
    if (!synchronous) AskForUnsettled(fixture.server(), &worker);
    EXPECT_EQ(worker.Residual(0), (Floats{4, 5}));
    EXPECT_EQ(worker.Residual(1), (Floats{0, 6, 0}));
    Gradients gradients;
    ExpectOk(fixture.server()->TakeGradients(push.data(), push.size(), {1}, {2},
                                             SingleThread, &gradients));
    EXPECT_EQ(ToFloats(gradients.dense[0]), (Floats{4, 5}));
    worker.Settle(push, true);
    EXPECT_EQ(worker.Residual(0), (Floats{0, 0}));
    EXPECT_EQ(worker.Residual(1), (Floats{0, 0, 0}));
  }
}

TEST(LocalModelTest, PushesWithoutMemoryAreTakenBack) {
  Worker worker(OneVariable("three_lc"));
  const CodecSpec codec = Spec("three_lc");
  const Floats gradient = Gaussian(100, 3);
  const auto refuse = [](int64_t, uint8_t**) {
    return absl::ResourceExhaustedError("no memory");
  };
  EXPECT_TRUE(absl::IsResourceExhausted(worker.model().EncodePush(
      0, {{1, &codec, 1, 0, ToTensor(gradient)}}, {}, SingleThread, refuse)));
  ExpectNear(worker.Residual(0), gradient, 1e-6f);
}

#ifndef TF_GC_NEEDS_ADDRESS_SPACE

// Of a push of two variables, of which there is memory for the first one.
TEST(LocalModelTest, WithoutMemoryForAPushNothingThatHasWaitedIsLost) {
  const int64_t n = 1 << 24;
  for (const std::string push : {"float32", kThc}) {
    Worker worker({MakeVariable(1, {2}, push), MakeVariable(2, {n}, push)});
    worker.model().WriteResidual(2, ToTensor(Floats(n, 3)));
    const CodecSpec codec = Spec(push);
    const std::vector<DenseGradient> gradients = {
        {1, &codec, 1, 0, ToTensor({1, 2})},
        {2, &codec, 1, 0, ToTensor(Floats(n, 4))}};
    Buffer message;
    absl::Status status;
    {
      const WithoutMemory without_memory;
      status = worker.model().EncodePush(0, gradients, {}, SingleThread,
                                         To(&message));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_EQ(worker.Residual(0), (Floats{1, 2}));
    EXPECT_EQ(worker.Residual(1).front(), 3);
    worker.Settle(worker.Push(gradients, {}), false);
    EXPECT_EQ(worker.Residual(0), (Floats{2, 4}));
    EXPECT_EQ(worker.Residual(1).front(), 7);
  }
}

TEST(LocalModelTest, WithoutMemoryForAPushOfRowsNothingThatHasWaitedIsLost) {
  const int64_t n = 1 << 24;
  Worker worker({MakeVariable(1, {n / 2, 2})});
  worker.model().WriteResidual(1, ToTensor(Floats(n, 3)));
  const std::vector<SparseGradient> gradients = {
      {1, Indices({0}), ToTensor({1, 2}, {1, 2}), n / 2}};
  Buffer message;
  {
    const WithoutMemory without_memory;
    EXPECT_TRUE(absl::IsResourceExhausted(worker.model().EncodePush(
        0, {}, gradients, SingleThread, To(&message))));
  }
  EXPECT_EQ(worker.Residual(0).front(), 3);
}

#endif

TEST(LocalModelTest, GradientsThatAreNotFiniteLeaveTheResidual) {
  for (const std::string push :
       {"float32", "float16", "int8", "three_lc", kUnits, kThc}) {
    const std::vector<VariableInfo> variables = OneVariable(push);
    Fixture fixture(variables);
    Worker worker(variables);
    for (int i = 0; i < 2; ++i) {  // the second time with scales
      worker.Follow(fixture.server());
      const Floats residual = Gaussian(100, 4);
      worker.model().WriteResidual(1, ToTensor(residual));
      Floats gradient = Gaussian(100, 3);
      gradient[50] = kNan;
      const Buffer bytes = worker.Push({gradient});
      EXPECT_EQ(worker.Residual(0), residual);
      worker.Settle(bytes, false);
      EXPECT_EQ(worker.Residual(0), residual);
      EXPECT_TRUE(Accumulate(bytes, fixture.server()).ready);
      Gradients mean;
      ExpectOk(fixture.server()->TakeGradients(bytes.data(), bytes.size(), {1},
                                               {}, SingleThread, &mean));
      EXPECT_TRUE(std::isnan(ToFloats(mean.dense[0])[50]));
      EXPECT_EQ(fixture.Round(1), Floats(100, 0));
      fixture.EndUpdate();
      worker.Follow(fixture.server());
      // Norms for the next time.
      const Buffer good = worker.Push({Gaussian(100, 3)});
      EXPECT_TRUE(Accumulate(good, fixture.server()).ready);
      worker.Settle(good, true);
      fixture.EndUpdate();
    }
  }
}

TEST(LocalModelTest, WarmUpIsExact) {
  const std::vector<VariableInfo> variables = OneVariable("int8", 1);
  Fixture fixture(variables);
  Worker worker(variables);
  worker.Follow(fixture.server());
  const Floats gradient = Gaussian(100, 3);
  Accumulate(worker.Push({gradient}), fixture.server());
  EXPECT_EQ(fixture.Round(1), gradient);
  EXPECT_EQ(worker.Residual(0), Floats(100, 0));
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  Accumulate(worker.Push({gradient}), fixture.server());
  EXPECT_NE(fixture.Round(1), gradient);
}

// ---- Statistics

TEST(LocalModelTest, StatisticsFollowTheGradients) {
  const std::vector<VariableInfo> variables = OneVariable(kUnits);
  Worker worker(variables);
  EXPECT_EQ(worker.SecondMoment(0, 4), Floats(30, 0));
  Floats expected(29);
  float weight = 0;
  for (int step = 0; step < 5; ++step) {
    const Floats gradient = Gaussian(100, step, 0.1f * (step + 1));
    const Floats squares = MeanSquares(gradient, 4);
    weight += 0.5f * (1 - weight);
    for (int i = 0; i < 29; ++i) {
      expected[i] += 0.5f / weight * (squares[i] - expected[i]);
    }
    const Buffer push = worker.Push({gradient});
    worker.Settle(push, true);
    ExpectNear(worker.SecondMoment(0, 4), With(expected, weight), 1e-6f);
    // Behind the header, and the id, codec and size of the only entry.
    ExpectNear(DecodeStatistics(push.data() + kMessageHeaderSize + 3, 4, 100),
               expected, 0.004f * 0.5f);
  }
}

TEST(LocalModelTest, ResidualsAreNoPartOfStatistics) {
  Worker worker(OneVariable(kUnits));
  worker.model().WriteResidual(1, ToTensor(Gaussian(100, 4)));
  worker.Push({Gaussian(100, 3)});
  ExpectNear(worker.SecondMoment(0, 4),
             With(MeanSquares(Gaussian(100, 3), 4), 0.5f), 1e-6f);
}

TEST(LocalModelTest, GradientsThatAreNotFiniteLeaveTheStatistics) {
  Worker worker(OneVariable(kUnits));
  worker.Push({Gaussian(100, 3)});
  const Floats statistics = worker.SecondMoment(0, 4);
  Floats gradient = Gaussian(100, 4);
  for (const float value : {kNan, 1e30f}) {  // the square of which is infinite
    gradient[50] = value;
    worker.Push({gradient});
    EXPECT_EQ(worker.SecondMoment(0, 4), statistics);
  }
}

TEST(LocalModelTest, PushesBeforeTheStartStepHaveStatisticsToo) {
  const std::vector<VariableInfo> variables = OneVariable(kUnits, 1);
  Fixture fixture(variables);
  Worker worker(variables);
  worker.Follow(fixture.server());
  const Floats gradient = Gaussian(100, 3);
  const Buffer push = worker.Push({gradient});
  Accumulate(push, fixture.server());
  EXPECT_EQ(fixture.Round(1), gradient);
  EXPECT_EQ(worker.Residual(0), Floats(100, 0));
  const int64_t entry = kMessageHeaderSize + 1 + 1 + 2;  // id, codec, 458
  EXPECT_EQ(push.size(), entry + 29 * 2 + 100 * 4);
  ExpectNear(DecodeStatistics(push.data() + entry, 4, 100),
             MeanSquares(gradient, 4), 0.004f * 2);
}

TEST(LocalModelTest, StatisticsAreWrittenAndGoOn) {
  Worker worker(OneVariable(kUnits));
  worker.model().WriteSecondMoment(1, ToTensor(With(Floats(29, 2), 1)));
  EXPECT_EQ(worker.SecondMoment(0, 4), With(Floats(29, 2), 1));
  worker.Push({Floats(100, 0)});
  EXPECT_EQ(worker.SecondMoment(0, 4), With(Floats(29, 1), 1));
}

TEST(LocalModelTest, TheScaleMayBeOfTheMean) {
  const CodecSpec mean = Spec("three_lc scale=mean");
  Worker worker({MakeVariable(1, {4}, "three_lc scale=mean")});
  const Buffer push =
      worker.Push({{1, &mean, 1.5, 0, ToTensor({1, -2, 0, 5})}}, {});
  EXPECT_EQ(worker.Residual(0), (Floats{1, 1, 0, 2}));  // M = 3
  worker.Settle(push, false);
  EXPECT_EQ(worker.Residual(0), (Floats{1, -2, 0, 5}));
}

TEST(LocalModelTest, ThcTakesTheNormsOfTheRoundBefore) {
  const std::vector<VariableInfo> variables = OneVariable(kThc, 0, 300);
  Fixture fixture(variables, TwoPushes());
  Worker first(variables), second(variables);
  Floats residuals(300, 0);
  for (int round = 0; round < 5; ++round) {
    first.Follow(fixture.server());
    second.Follow(fixture.server());
    const Floats a = Gaussian(300, 2 * round), b = Gaussian(300, 2 * round + 1);
    const Buffer push = first.Push({a});
    // float32 and norms at first, then norms and two bits a value.
    EXPECT_EQ(push.size() > 4 * 300, round == 0);
    EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
    EXPECT_TRUE(Accumulate(second.Push({b}), fixture.server()).ready);
    const Floats left = Sum(first.Residual(0), second.Residual(0));
    ExpectNear(Sum(fixture.Round(1), left), Sum(Sum(a, b), residuals), 1e-4f);
    EXPECT_EQ(left == Floats(300, 0), round == 0);
    residuals = left;
    fixture.EndUpdate();
  }
}

// Values are finite whose norm is not.
TEST(LocalModelTest, ThcDeliversLargeValuesOnce) {
  const std::vector<VariableInfo> variables = OneVariable(kThc, 0, 64);
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  worker.model().WriteResidual(1, ToTensor(Floats(64, 1e38f)));
  Accumulate(worker.Push({Floats(64, 1e38f)}), fixture.server());
  EXPECT_EQ(fixture.Round(1), Floats(64, 2e38f));
  EXPECT_EQ(worker.Residual(0), Floats(64, 0));
}

// ---- Rows

SparseGradient RowsGradient(const Rows& rows) {
  return {1, Indices(rows.indices),
          ToTensor(rows.values, {rows.count(), rows.length})};
}

TEST(LocalModelTest, DroppedRowsAreAddedToTheNext) {
  const std::vector<VariableInfo> variables = {MakeVariable(1, {4, 2})};
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  const Rows first = {2, {3, 1}, {1, 2, 3, 4}}, second = {2, {1}, {5, 6}};
  worker.Settle(worker.Push({}, {RowsGradient(first)}), false);
  EXPECT_EQ(worker.Residual(0), (Floats{0, 0, 3, 4, 0, 0, 1, 2}));
  const Buffer push = worker.Push({}, {RowsGradient(second)});
  EXPECT_EQ(worker.Residual(0), Floats(8, 0));
  Accumulate(push, fixture.server());
  Gradients gradients;
  ExpectOk(fixture.server()->TakeGradients(push.data(), push.size(), {}, {1},
                                           SingleThread, &gradients));
  EXPECT_EQ(gradients.sparse[0].indices, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(gradients.sparse[0].values, (Floats{8, 10, 1, 2}));
}

TEST(LocalModelTest, RowsThatWaitGoWithADenseGradient) {
  for (const std::string codec : {"float32", kThc}) {
    const std::vector<VariableInfo> variables = {
        MakeVariable(1, {4, 2}, codec)};
    Fixture fixture(variables, TwoPushes());
    Worker worker(variables);
    worker.Follow(fixture.server());
    const auto drop = [&](const Rows& rows) {
      worker.Settle(worker.Push({}, {RowsGradient(rows)}), false);
    };
    drop({2, {3, 1}, {1, 2, 3, 4}});
    Accumulate(worker.Push({Floats(8, 1)}), fixture.server());
    EXPECT_EQ(fixture.Round(1), (Floats{1, 1, 4, 5, 1, 1, 2, 3}));
    EXPECT_EQ(worker.Residual(0), Floats(8, 0));
  }
}

TEST(LocalModelTest, RowsThatWaitOfAnotherShapeAreRefused) {
  const std::vector<VariableInfo> variables = {MakeVariable(1, {4, 2})};
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  worker.Settle(worker.Push({}, {RowsGradient({2, {3}, {1, 2}})}), false);
  for (const int64_t n : {6, 7}) {
    const CodecSpec codec;
    const DenseGradient gradient = {1, &codec, 1, 0, ToTensor(Floats(n, 1))};
    Buffer push;
    ExpectInvalid(
        worker.model().EncodePush(0, {gradient}, {}, SingleThread, To(&push)),
        "a row 3 of 2 values that waits");
  }
}

TEST(LocalModelTest, RowsWithoutValuesLeaveNothingThatWaits) {
  Worker worker({MakeVariable(1, {4, 0})});
  SparseGradient rows = {1, Indices({3}), ToTensor({}, {1, 0})};
  rows.rows = 4;
  worker.Settle(worker.Push({}, {rows}), false);
  const CodecSpec codec;
  worker.Push({{1, &codec, 1, 0, ToTensor({}, {4, 0})}}, {});
  EXPECT_EQ(worker.Residual(0), Floats());
}

TEST(LocalModelTest, PushesHaveNoMoreRowsThanTheTable) {
  Worker worker({MakeVariable(1, {4, 2})});
  SparseGradient gradient = RowsGradient({2, {3, 1}, {1, 2, 3, 4}});
  gradient.rows = 4;
  Buffer push = worker.Push({}, {gradient});
  const size_t size = push.size();
  for (int i = 0; i < 9; ++i) {  // those of a worker that is always late
    worker.Settle(push, false);
    push = worker.Push({}, {gradient});
    EXPECT_EQ(push.size(), size);
  }
  worker.Settle(push, false);
  EXPECT_EQ(worker.Residual(0), (Floats{0, 0, 30, 40, 0, 0, 10, 20}));
  worker.model().WriteResidual(1, Zeros(8));
  SparseGradient often = RowsGradient({2, {1, 3, 1, 3, 1}, Floats(10, 1)});
  often.rows = 4;
  EXPECT_EQ(worker.Push({}, {often}).size(), size);
}

TEST(LocalModelTest, DroppedPackedRowsAreAddedToTheNext) {
  const std::vector<VariableInfo> variables = {MakeVariable(1, {4, 2})};
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  const auto packed = [](const Rows& rows, int bits, int64_t start_step) {
    SparseGradient gradient = RowsGradient(rows);
    gradient.rows = 4;
    gradient.bits = bits;
    gradient.start_step = start_step;
    return gradient;
  };
  // Before the start step values are exact.
  const Rows first = {2, {3, 1}, {1, 2, 3, 4}}, second = {2, {1}, {5, 6}};
  worker.Settle(worker.Push({}, {packed(first, 2, 100)}), false);
  EXPECT_EQ(worker.Residual(0), (Floats{0, 0, 3, 4, 0, 0, 1, 2}));
  const Buffer push = worker.Push({}, {packed(second, 32, 0)});
  EXPECT_EQ(worker.Residual(0), Floats(8, 0));
  Accumulate(push, fixture.server());
  Gradients gradients;
  ExpectOk(fixture.server()->TakeGradients(push.data(), push.size(), {}, {1},
                                           SingleThread, &gradients));
  EXPECT_EQ(gradients.sparse[0].indices, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(gradients.sparse[0].values, (Floats{8, 10, 1, 2}));
}

TEST(LocalModelTest, PushesAreTakenBackAsTheyWereMade) {
  const std::vector<VariableInfo> variables = {MakeVariable(1, {4, 2})};
  const SparseGradient sparse = RowsGradient({2, {3, 1}, {1, 2, 3, 4}});
  const DenseGradient dense = {1, &variables[0].push, 1, 0,
                               ToTensor({1, 1, 1, 1, 1, 1, 1, 1}, {4, 2})};
  const Floats both = {1, 1, 4, 5, 1, 1, 2, 3};
  for (const bool is_sparse_first : {true, false}) {
    Worker worker(variables);
    is_sparse_first ? worker.Push({}, {sparse}) : worker.Push({dense}, {});
    const Buffer push =
        is_sparse_first ? worker.Push({dense}, {}) : worker.Push({}, {sparse});
    worker.Settle(push, false);
    EXPECT_EQ(worker.Residual(0), both);
  }
}

TEST(LocalModelTest, DroppedRowsThatAreNotFiniteAreLost) {
  Worker worker({MakeVariable(1, {4, 2})});
  worker.Settle(worker.Push({}, {RowsGradient({2, {3, 1}, {1, kNan, 3, 4}})}),
                false);
  EXPECT_EQ(worker.Residual(0), (Floats{0, 0, 3, 4, 0, 0, 0, 0}));
}

TEST(LocalModelTest, RowsThatAreNotFiniteLeaveWhatWaitsForThem) {
  for (const int bits : {0, 32}) {
    Worker worker({MakeVariable(1, {4, 2})});
    const auto drop = [&](const Rows& rows) {
      SparseGradient gradient = RowsGradient(rows);
      gradient.rows = 4;
      gradient.bits = bits;
      worker.Settle(worker.Push({}, {gradient}), false);
    };
    drop({2, {3, 1}, {1, 2, 3, 4}});
    drop({2, {1, 2}, {kNan, 5, 6, 7}});
    EXPECT_EQ(worker.Residual(0), (Floats{0, 0, 3, 4, 6, 7, 1, 2}));
  }
}

TEST(LocalModelTest, RestoredResidualsOfRowsAreRows) {
  const std::vector<VariableInfo> variables = {MakeVariable(1, {4, 2})};
  Fixture fixture(variables, TwoPushes());
  Worker worker(variables);
  worker.Follow(fixture.server());
  worker.model().WriteResidual(1, ToTensor({0, 0, 0, 5, 0, 0, 0, 0}, {4, 2}));
  const Buffer push = worker.Push({}, {RowsGradient({2, {3}, {1, 2}})});
  Accumulate(push, fixture.server());
  EXPECT_EQ(fixture.Round(1), (Floats{0, 0, 0, 5, 0, 0, 1, 2}));
  EXPECT_EQ(worker.Residual(0), Floats(8, 0));
}

// ---- The example of docs/wire_format.md

TEST(LocalModelTest, MessagesAreThoseOfTheDocumentation) {
  const std::vector<VariableInfo> variables = {
      MakeVariable(5, {4}, "int8", "three_lc")};
  Fixture fixture(variables);
  Worker worker(variables);
  fixture.Set(5, Floats(4, 0));
  fixture.EndUpdate();
  fixture.PublishWhole(5);
  worker.Follow(fixture.server());
  Buffer push = worker.Push({{1, -0.5f, 0.5f, 0}});
  const uint64_t number = 123456789;  // the worker's is random
  std::memcpy(push.data() + 48, &number, sizeof(number));
  SealMessage(push.data(), push.size());
  EXPECT_EQ(push, (Buffer{'T',  'F',  'G',  'C',  11,   0x20, 0,    0,  //
                          1,    0,    0,    0,                          //
                          0,    0,    0,    0,                          //
                          3,    0,    0,    0,    0,    0,    0,    0,  //
                          1,    0,    0,    0,    0,    0,    0,    0,  //
                          0x4b, 0,    0,    0,    0,    0,    0,    0,  //
                          0x54, 0xa7, 0xd1, 0xf0, 0,    0,    0,    0,  //
                          0x15, 0xcd, 0x5b, 0x07, 0,    0,    0,    0,  //
                          1,    0,    0,    0,    0,    0,    0,    0,  //
                          5,    10,   8,                                //
                          0,    0,    0x80, 0x3f, 0x7f, 0xc0, 0x40, 0}));
  fixture.Set(5, {0.5f, -0.5f, 0.2f, 0});
  fixture.EndUpdate();
  EXPECT_EQ(worker.PullFrom(fixture.server()),
            (Buffer{'T',  'F',  'G',  'C',  11,  0x21, 0, 0,  //
                    1,    0,    0,    0,                      //
                    0xc1, 0x5c, 0x02, 0x89,                   //
                    4,    0,    0,    0,    0,   0,    0, 0,  //
                    2,    0,    0,    0,    0,   0,    0, 0,  //
                    0x48, 0,    0,    0,    0,   0,    0, 0,  //
                    0xcc, 0x82, 0x2f, 0xaf, 0,   0,    0, 0,  //
                    0,    0,    0,    0,    0,   0,    0, 0,  //
                    0,    0,    0,    0,    0,   0,    0, 0,  //
                    5,    3,    5,                            //
                    0,    0,    0,    0x3f, 0xae}));
  worker.Follow(fixture.server());
  EXPECT_EQ(worker.Copy(0), (Floats{0.5f, -0.5f, 0, 0}));
}

// ---- Patience

TEST(LocalModelTest, PatienceIsThatOfTheLastStepOnThisModel) {
  const VariableInfo variable = MakeVariable(1, {2});
  Fixture fixture({variable});
  FakeClock clock;
  const Resource<LocalModel> model(new LocalModel(/*worker=*/0, clock));
  const auto pull = [&] {
    int64_t version, step;
    const Buffer message = Pull(model->Request({1}), {1}, fixture.server());
    ExpectOk(model->Apply(message.data(), message.size(), {{1, variable.shape}},
                          SingleThread, &version, &step));
  };
  const auto push = [&](bool accepted) {
    Buffer message;
    ExpectOk(model->EncodePush(0, {{1, &variable.push, 1, 0, ToTensor({1, 2})}},
                               {}, SingleThread, To(&message)));
    EXPECT_EQ(model->Request({1}).patience_micros, 0);
    clock.now += 1000;
    ExpectOk(model->SettlePush(message.data(), message.size(), accepted, {},
                               SingleThread));
  };
  const auto patience = [&] { return model->Request({1}).patience_micros; };
  EXPECT_EQ(patience(), 0);
  pull();
  EXPECT_EQ(patience(), 0);
  clock.now += 3000;
  push(true);
  clock.now += 500;
  EXPECT_EQ(patience(), 4000);
  pull();  // nothing new, after some waiting
  EXPECT_EQ(patience(), 0);
  clock.now += 2000;
  push(false);
  EXPECT_EQ(patience(), 3000);
  fixture.Set(1, {5, 6});
  fixture.EndUpdate();
  pull();
  EXPECT_EQ(patience(), 0);
}

// ---- Wrong arguments

TEST(LocalModelTest, WrongGradientsAreInvalidAndChangeNothing) {
  const Resource<LocalModel> model(new LocalModel);
  const CodecSpec codec = Spec("three_lc");
  const auto encode = [&](const std::vector<DenseGradient>& dense,
                          const std::vector<SparseGradient>& sparse) {
    Buffer push;
    return model->EncodePush(0, dense, sparse, SingleThread, To(&push));
  };
  const DenseGradient good = {1, &codec, 1, 0, ToTensor({1, 2})};
  DenseGradient bad = good;
  bad.multiplier = 2;
  ExpectInvalid(encode({bad}, {}),
                "multipliers: that of variable 1 must be in (0, 2), got 2");
  const CodecSpec mean = Spec("three_lc scale=mean");
  ExpectInvalid(encode({{1, &mean, 64, 0, ToTensor({1, 2})}}, {}),
                "must be in (0, 64), got 64");
  ExpectInvalid(encode({good, good}, {}), "variable 1 comes twice");
  ExpectInvalid(encode({}, {{1, Indices({1, 2}), ToTensor({1}, {1, 1})}}),
                "sparse_values");
  ExpectInvalid(encode({}, {{1, Indices({-1}), ToTensor({1}, {1, 1})}}),
                "sparse_indices");
  model->WriteResidual(1, ToTensor({1, 2, 3}));
  ExpectInvalid(encode({good}, {}), "residual of 3 values");
  ExpectInvalid(encode({}, {{1, Indices({0}), ToTensor({1, 2}, {1, 2})}}),
                "rows of another length");
  // Behind the table's rows is nothing that packed rows can say.
  model->WriteResidual(1, Zeros(2000000));
  ExpectInvalid(encode({}, {{1, Indices({0}), ToTensor({1, 2}, {1, 2}),
                             /*rows=*/2, /*bits=*/8}}),
                "residual of 1000000 rows, got 2");
  model->WriteResidual(1, ToTensor({1, 2, 3}));
  const CodecSpec units = Spec("three_lc rows=3 decay=0.5");
  ExpectInvalid(encode({{2, &units, 1, 0, ToTensor({1, 2})}}, {}),
                "variable 2 has 3 rows");
  model->WriteSecondMoment(2, ToTensor({1, 2, 1}));
  ExpectInvalid(encode({{2, &units, 1, 0, ToTensor({1, 2, 3})}}, {}),
                "variable 2 has 2 statistics");
  tensorflow::Tensor statistics;
  ExpectInvalid(model->ReadSecondMoment(2, {4}, &statistics),
                "variable 2 has 2 statistics");
  tensorflow::Tensor residual;
  ExpectOk(model->ReadResidual(9, tensorflow::TensorShape({2}), &residual));
  EXPECT_EQ(residual.shape(), tensorflow::TensorShape({0}));
  ExpectInvalid(model->ReadResidual(1, tensorflow::TensorShape({2}), &residual),
                "does not fit");
  ExpectOk(model->ReadResidual(1, tensorflow::TensorShape({3}), &residual));
  EXPECT_EQ(ToFloats(residual), (Floats{1, 2, 3}));
  model->WriteResidual(1, ToTensor({}));
  ExpectOk(model->ReadResidual(1, tensorflow::TensorShape({3}), &residual));
  EXPECT_EQ(residual.NumElements(), 0);
}

// Else what a push carried could not be taken back into the residual.
TEST(LocalModelTest, GradientsHaveTheSizeOfThoseWithoutAnAnswer) {
  const Resource<LocalModel> model(new LocalModel);
  const CodecSpec codec = Spec("float32");
  Buffer first, second;
  ExpectOk(model->EncodePush(0, {{1, &codec, 1, 0, ToTensor({1, 2})}},
                             {{2, Indices({3}), ToTensor({1, 2}, {1, 2})}},
                             SingleThread, To(&first)));
  ExpectInvalid(model->EncodePush(0, {{1, &codec, 1, 0, ToTensor({1, 2, 3})}},
                                  {}, SingleThread, To(&second)),
                "variable 1 has a push without an answer of 2 values");
  ExpectInvalid(
      model->EncodePush(0, {}, {{2, Indices({3}), ToTensor({1}, {1, 1})}},
                        SingleThread, To(&second)),
      "variable 2 has a push without an answer of rows of 2 values");
  ExpectOk(
      model->SettlePush(first.data(), first.size(), false, {}, SingleThread));
  ExpectOk(model->EncodePush(0, {{1, &codec, 1, 0, ToTensor({1, 2})}}, {},
                             SingleThread, To(&second)));
}

TEST(LocalModelTest, SettlingWhatWasNotPushedIsDataLoss) {
  Worker worker({MakeVariable(1, {2})}), other({MakeVariable(1, {2})});
  const Buffer push = worker.Push({{1, 2}});
  ExpectDataLoss(other.model().SettlePush(push.data(), push.size(), false, {},
                                          SingleThread),
                 "it is not of this worker");
  ForEachDamage(push, [&](const Buffer& damaged) {
    const absl::Status status = worker.model().SettlePush(
        damaged.data(), damaged.size(), false, {}, SingleThread);
    EXPECT_TRUE((status.ok() && damaged.size() == push.size()) ||
                absl::IsDataLoss(status) || absl::IsFailedPrecondition(status))
        << status;
  });
}

}  // namespace
}  // namespace tf_gc::parameter_server
