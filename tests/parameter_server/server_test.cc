#include "ops/parameter_server/server.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <future>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/parameter_server/parked_calls.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

ServerOptions Rounds(int64_t pushes, double lease_seconds = 10) {
  ServerOptions options;
  options.pushes_per_round = pushes;
  options.lease_seconds = lease_seconds;
  return options;
}

ServerOptions Asynchronous(int64_t max_staleness, int64_t updates = 1) {
  ServerOptions options;
  options.synchronous = false;
  options.max_staleness = max_staleness;
  options.updates_per_version = updates;
  return options;
}

// A server, its variables, and what these hold.
class Fixture {
 public:
  Fixture(const std::vector<VariableInfo>& variables,
          const ServerOptions& options)
      : variables_(variables), server_(new Server(options, clock_)) {
    for (const VariableInfo& variable : variables_) {
      ExpectOk(server_->AddVariable(variable, {}));
      values_[variable.id] = Zeros(variable.size());
    }
    Refresh();
  }

  Server* operator->() { return server_.get(); }
  Server* server() { return server_.get(); }
  FakeClock& clock() { return clock_; }

  Worker MakeWorker() {
    Worker worker(variables_);
    worker.Follow(server());
    return worker;
  }

  void Set(uint32_t id, const Floats& values) {
    values_[id] = ToTensor(values);
  }

  Gradients Take(const Buffer& push, const std::vector<uint32_t>& ids) {
    Gradients gradients;
    ExpectOk(server_->TakeGradients(push.data(), push.size(), ids, {},
                                    SingleThread, &gradients));
    return gradients;
  }
  Floats Mean(const Buffer& push, uint32_t id = 1) {
    return ToFloats(Take(push, {id}).dense[0]);
  }
  Floats SecondMoment(const Buffer& push, uint32_t id = 1) {
    return ToFloats(Take(push, {id}).second_moments[0]);
  }

  Floats Round(uint32_t id) {
    tensorflow::Tensor sum;
    ExpectOk(server_->ReadRound(id, SingleThread, &sum));
    return OrZeros(sum, values_[id].NumElements());
  }

  int64_t EndUpdate(uint32_t channel = 0) {
    return parameter_server::EndUpdate(values_, server(), channel);
  }

  // Whether its update has begun or not.
  int64_t EndRound(int64_t round) {
    int64_t version = 0;
    ExpectOk(server_->EndUpdate(0, round, {}, ReadFrom(&values_), SingleThread,
                                &version));
    return version;
  }

  void PublishWhole(const std::vector<uint32_t>& ids) {
    ExpectOk(server_->PublishWhole(ids, ids, ReadFrom(&values_)));
  }
  void PublishFromAStep(const std::vector<uint32_t>& ids) {
    ExpectOk(server_->PublishWhole(ids, {}, ReadFrom(&values_)));
  }

  // As a pull does.
  void Refresh() { parameter_server::Refresh(values_, server()); }

 private:
  const std::vector<VariableInfo> variables_;
  FakeClock clock_;
  const Resource<Server> server_;
  Values values_;
};

std::vector<VariableInfo> OneVariable() { return {MakeVariable(1, {2})}; }

TEST(ServerTest, RoundsAreMeansOfTheirPushes) {
  Fixture fixture({MakeVariable(1, {2}), MakeVariable(2, {1})}, Rounds(3));
  Worker worker = fixture.MakeWorker();
  Answer outcome;
  Buffer push;
  for (const float value : {1, 2, 6}) {
    EXPECT_FALSE(outcome.ready);
    push = worker.Push({{value, -value}, {0.5f}});
    outcome = Accumulate(push, fixture.server());
    EXPECT_TRUE(outcome.accepted);
  }
  EXPECT_TRUE(outcome.ready);
  for (int i = 0; i < 2; ++i) {  // it may be taken again
    EXPECT_EQ(fixture.Mean(push, 1), (Floats{3, -3}));
    EXPECT_EQ(fixture.Mean(push, 2), Floats{0.5f});
  }
}

TEST(ServerTest, PushesOnOtherVersionsOrWhileAnUpdateIsUnderWayAreDropped) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  const Buffer push = worker.Push({{1, 2}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  const Answer late = Accumulate(worker.Push({{1, 2}}), fixture.server());
  EXPECT_FALSE(late.accepted);
  EXPECT_FALSE(late.ready);
  EXPECT_EQ(fixture.EndUpdate(), 2);
  EXPECT_FALSE(Accumulate(worker.Push({{1, 2}}), fixture.server()).accepted);
  worker.Follow(fixture.server());
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).accepted);
  EXPECT_EQ(fixture->Statistics().pushes_accepted, 2);
  EXPECT_EQ(fixture->Statistics().pushes_dropped, 2);
}

TEST(ServerTest, OnlyTheMasterSaysWhenARoundIsComplete) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  Buffer push;
  int64_t round = -1;
  for (int i = 0; i < 2; ++i) {
    push = worker.Push({{1, 2}});
    const Answer outcome = Accumulate(push, fixture.server(), /*master=*/false);
    EXPECT_TRUE(outcome.accepted);
    EXPECT_FALSE(outcome.ready);
    round = outcome.round;
  }
  EXPECT_TRUE(fixture->BeginUpdate(0, round));
  EXPECT_EQ(fixture.Mean(push), (Floats{1, 2}));  // of two
  push = worker.Push({{1, 2}});
  EXPECT_FALSE(Accumulate(push, fixture.server(), false).accepted);
  fixture.EndUpdate();
  EXPECT_EQ(fixture.Mean(push), (Floats{0, 0}));  // of none
}

TEST(ServerTest, LeasesArePassedOn) {
  Fixture fixture(OneVariable(), Rounds(1, /*lease_seconds=*/2));
  Worker worker = fixture.MakeWorker();
  const Buffer push = worker.Push({{1, 2}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  Buffer late;
  const auto is_ready = [&](bool master) {
    late = worker.Push({{5, 5}});
    const Answer outcome = Accumulate(late, fixture.server(), master);
    EXPECT_FALSE(outcome.accepted);
    return outcome.ready;
  };
  fixture.clock().now += 1999999;
  EXPECT_FALSE(is_ready(true));
  fixture.clock().now += 1;
  EXPECT_FALSE(is_ready(false));
  EXPECT_TRUE(is_ready(true));
  EXPECT_FALSE(is_ready(true));  // a new lease
  EXPECT_EQ(fixture.Mean(late), (Floats{1, 2}));
  EXPECT_EQ(fixture->Statistics().leases_passed_on, 1);
  fixture.clock().now += 2000000;
  EXPECT_TRUE(is_ready(true));
  EXPECT_EQ(fixture.EndUpdate(), 2);
}

TEST(ServerTest, ALeaseIsOfOneRound) {
  Fixture fixture(OneVariable(), Rounds(1, /*lease_seconds=*/2));
  Worker slow = fixture.MakeWorker(), other = fixture.MakeWorker();
  const Answer first = Accumulate(slow.Push({{1, 2}}), fixture.server());
  EXPECT_TRUE(first.ready);
  fixture.clock().now += 2000000;
  const Answer second = Accumulate(other.Push({{5, 5}}), fixture.server());
  EXPECT_TRUE(second.ready);
  EXPECT_EQ(second.round, first.round);
  // The slow one ends after all, and the next round begins.
  EXPECT_EQ(fixture.EndRound(first.round), 2);
  EXPECT_FALSE(fixture->BeginUpdate(0, second.round));
  EXPECT_EQ(fixture.EndRound(second.round), 2);
  slow.Follow(fixture.server());
  const Answer next = Accumulate(slow.Push({{3, 4}}), fixture.server());
  EXPECT_TRUE(next.accepted);
  EXPECT_GT(next.round, first.round);
  EXPECT_EQ(fixture->Statistics().updates, 1);
  EXPECT_EQ(fixture.Round(1), (Floats{3, 4}));
}

TEST(ServerTest, LeasesAreThreeTimesTheLongestUpdate) {
  Fixture fixture(OneVariable(), Rounds(1, /*lease_seconds=*/2));
  Worker worker = fixture.MakeWorker();
  for (const int seconds : {6, 1}) {
    const Answer answer = Accumulate(worker.Push({{1, 2}}), fixture.server());
    EXPECT_TRUE(answer.ready);
    EXPECT_TRUE(fixture->BeginUpdate(0, answer.round));
    fixture.clock().now += seconds * 1000000;
    fixture.EndRound(answer.round);
    worker.Follow(fixture.server());
  }
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
  fixture.clock().now += 17999999;
  EXPECT_FALSE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
  fixture.clock().now += 1;
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
}

TEST(ServerTest, APassedOnLeaseDoesNotShortenAnUpdate) {
  Fixture fixture(OneVariable(), Rounds(1, /*lease_seconds=*/2));
  Worker worker = fixture.MakeWorker();
  const Answer answer = Accumulate(worker.Push({{1, 2}}), fixture.server());
  EXPECT_TRUE(fixture->BeginUpdate(0, answer.round));
  fixture.clock().now += 5000000;
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
  fixture.clock().now += 1000000;
  const Values none;
  int64_t version;
  ExpectOk(fixture->EndUpdate(0, answer.round, {}, ReadFrom(&none),
                              SingleThread, &version));
  worker.Follow(fixture.server());
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
  fixture.clock().now += 17999999;
  EXPECT_FALSE(Accumulate(worker.Push({{1, 2}}), fixture.server()).ready);
}

TEST(ServerTest, PushesCountOnceAndNotAfterLaterOnes) {
  for (const ServerOptions& options : {Rounds(3), Asynchronous(-1)}) {
    Fixture fixture(OneVariable(), options);
    Worker worker = fixture.MakeWorker();
    const Buffer lost = worker.Push({{1, 2}}), push = worker.Push({{3, 4}});
    EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
    fixture.Mean(push);
    const Answer again = Accumulate(push, fixture.server());
    EXPECT_TRUE(again.accepted);
    EXPECT_FALSE(again.ready);
    EXPECT_FALSE(Accumulate(lost, fixture.server()).accepted);
    if (options.synchronous) {
      EXPECT_EQ(fixture.Round(1), (Floats{3, 4}));
    } else {
      Gradients gradients;
      EXPECT_TRUE(absl::IsAborted(fixture->TakeGradients(
          lost.data(), lost.size(), {1}, {}, SingleThread, &gradients)));
    }
  }
}

TEST(ServerTest, AnswersTellOfEarlierPushes) {
  for (const ServerOptions& options : {Rounds(100), Asynchronous(-1)}) {
    Fixture fixture(OneVariable(), options);
    Worker worker = fixture.MakeWorker();
    const Buffer arrived = worker.Push({{1, 2}});
    EXPECT_TRUE(Accumulate(arrived, fixture.server()).accepted);
    fixture.Mean(arrived);
    worker.Push({{3, 4}});
    const Buffer push = worker.Push({{5, 6}}), next = worker.Push({{7, 8}});
    const std::vector<uint64_t> first = {1};
    EXPECT_EQ(Accumulate(push, fixture.server()).counted, first);
    EXPECT_EQ(Accumulate(push, fixture.server()).counted, first);  // repeated
    fixture.Mean(push);
    const std::vector<uint64_t> both = {1, 3};
    EXPECT_EQ(Accumulate(next, fixture.server()).counted, both);
    worker.Settle(next, true, both);
    EXPECT_EQ(worker.Residual(0), (Floats{3, 4}));
    worker.Settle(push, false);  // that is known better
    EXPECT_EQ(worker.Residual(0), (Floats{3, 4}));
    EXPECT_TRUE(
        Accumulate(worker.Push({{1, 1}}), fixture.server()).counted.empty());
  }
}

TEST(ServerTest, ChannelsHaveRoundsOfTheirOwn) {
  Fixture fixture({MakeVariable(1, {1}), MakeVariable(2, {1})}, Rounds(2));
  Worker worker = fixture.MakeWorker(), slow = fixture.MakeWorker();
  const auto push = [&](Worker* from, uint32_t channel, float value) {
    return from->Push({{value}, {value}}, channel);
  };
  EXPECT_FALSE(Accumulate(push(&worker, 0, 1), fixture.server()).ready);
  EXPECT_FALSE(Accumulate(push(&worker, 7, 10), fixture.server()).ready);
  const Buffer last = push(&worker, 7, 20);
  EXPECT_TRUE(Accumulate(last, fixture.server()).ready);
  EXPECT_EQ(fixture.Mean(last), Floats{15});
  EXPECT_EQ(fixture.EndUpdate(7), 2);
  // The other channel's round goes on, for pushes on either version.
  EXPECT_FALSE(Accumulate(push(&slow, 7, 1), fixture.server()).accepted);
  const Buffer other = push(&slow, 0, 3);
  EXPECT_TRUE(Accumulate(other, fixture.server()).ready);
  EXPECT_EQ(fixture.Mean(other), Floats{2});
  EXPECT_EQ(fixture.EndUpdate(0), 3);
  worker.Follow(fixture.server());
  EXPECT_TRUE(Accumulate(push(&worker, 7, 1), fixture.server()).accepted);
  EXPECT_TRUE(Accumulate(push(&worker, 0, 1), fixture.server()).accepted);
  EXPECT_EQ(fixture->Statistics().pushes_in_round, 2);
}

TEST(ServerTest, ARoundGoesOnWhereAnotherChannelsHasChangedItsScales) {
  const int64_t n = 300;
  Fixture fixture({MakeVariable(1, {n}, kThc)}, Rounds(2));
  Worker worker = fixture.MakeWorker();
  const auto push = [&](uint32_t channel) {
    return Accumulate(worker.Push({Gaussian(n, 1)}, channel), fixture.server());
  };
  const auto end_round = [&](uint32_t channel) {
    EXPECT_TRUE(push(channel).ready);
    fixture.EndUpdate(channel);
    worker.Follow(fixture.server());
  };
  EXPECT_TRUE(push(7).accepted);
  end_round(7);  // there are scales now
  EXPECT_TRUE(push(0).accepted);
  EXPECT_TRUE(push(7).accepted);
  end_round(7);
  end_round(0);
}

TEST(ServerTest, PublishWholeForgetsOpenRounds) {
  Fixture fixture(OneVariable(), Rounds(2));
  Worker worker = fixture.MakeWorker();
  const Buffer push = worker.Push({{1, 2}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
  fixture.Set(1, {7, 8});
  fixture.PublishWhole({1});
  EXPECT_EQ(fixture->Statistics().version, 2);
  EXPECT_EQ(fixture->Statistics().pushes_in_round, 0);
  EXPECT_FALSE(Accumulate(Again(push), fixture.server()).accepted);
  // Nor by a channel that is new.
  EXPECT_FALSE(Accumulate(worker.Push({{1, 2}}, 3), fixture.server()).accepted);
  worker.Follow(fixture.server());
  EXPECT_EQ(worker.Copy(0), (Floats{7, 8}));
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).accepted);
}

TEST(ServerTest, PublishWholeForgetsNoRoundOfOtherVariables) {
  Fixture fixture({MakeVariable(1, {2}), MakeVariable(2, {2})}, Rounds(2));
  Worker worker({MakeVariable(1, {2})});
  worker.Follow(fixture.server());
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).accepted);
  fixture.PublishWhole({2});
  const Buffer push = worker.Push({{3, 4}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  EXPECT_EQ(fixture.Mean(push), (Floats{2, 3}));
}

TEST(ServerTest, AStepThatWritesForgetsNoRound) {
  Fixture fixture(OneVariable(), Rounds(2));
  Worker worker = fixture.MakeWorker();
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}), fixture.server()).accepted);
  fixture.Set(1, {7, 8});
  fixture.PublishFromAStep({1});
  const Buffer push = worker.Push({{3, 4}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  EXPECT_EQ(fixture.Mean(push), (Floats{2, 3}));
}

TEST(ServerTest, PublishWholeForgetsARoundWhoseUpdateHasNotBegun) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  const Answer closing = Accumulate(worker.Push({{1, 2}}), fixture.server());
  EXPECT_TRUE(closing.ready);
  fixture.PublishWhole({1});
  EXPECT_FALSE(fixture->BeginUpdate(0, closing.round));
  fixture.EndRound(closing.round);
  EXPECT_EQ(fixture->Statistics().updates, 0);
  worker.Follow(fixture.server());
  const Buffer push = worker.Push({{3, 4}});
  const Answer next = Accumulate(push, fixture.server());
  EXPECT_TRUE(next.ready);
  EXPECT_TRUE(fixture->BeginUpdate(0, next.round));
  EXPECT_EQ(fixture.Mean(push), (Floats{3, 4}));
}

TEST(ServerTest, PublishWholeLeavesAnUpdateThatIsUnderWay) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  const Buffer push = worker.Push({{1, 2}});
  const Answer closing = Accumulate(push, fixture.server());
  EXPECT_TRUE(fixture->BeginUpdate(0, closing.round));
  fixture.Set(1, {7, 8});
  fixture.PublishWhole({1});
  EXPECT_EQ(fixture.Mean(push), (Floats{1, 2}));
  EXPECT_EQ(fixture.EndRound(closing.round), 3);
}

// ---- Asynchronously

TEST(ServerTest, AsynchronousPushesMayBeStaleToABound) {
  Fixture fixture(OneVariable(), Asynchronous(1));
  Worker worker = fixture.MakeWorker();
  Buffer push = worker.Push({{1, 2}});
  for (const bool is_fresh : {true, true, false}) {
    push = Again(push);
    const Answer outcome = Accumulate(push, fixture.server());
    EXPECT_EQ(outcome.accepted, is_fresh);
    EXPECT_EQ(outcome.ready, is_fresh);
    EXPECT_EQ(fixture.Mean(push), (Floats{1, 2}));
    fixture.EndUpdate();
    fixture.Refresh();
  }
  EXPECT_EQ(fixture->Statistics().version, 4);
  Fixture unbounded(OneVariable(), Asynchronous(-1));
  for (int i = 0; i < 5; ++i) {
    push = Again(push);
    EXPECT_TRUE(Accumulate(push, unbounded.server()).accepted);
    unbounded.EndUpdate();
    unbounded.Refresh();
  }
}

TEST(ServerTest, WhatStepsWriteMakesNoPushStale) {
  Fixture fixture(OneVariable(), Asynchronous(0));
  Buffer push = fixture.MakeWorker().Push({{1, 2}});
  for (int i = 0; i < 3; ++i) fixture.PublishFromAStep({1});
  EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
  fixture.PublishWhole({1});
  push = Again(push);
  EXPECT_FALSE(Accumulate(push, fixture.server()).accepted);
}

TEST(ServerTest, AsynchronousVersionsAreMadeOnDemand) {
  Fixture fixture(OneVariable(), Asynchronous(-1, /*updates=*/2));
  fixture.Set(1, {3, 4});
  EXPECT_EQ(fixture.EndUpdate(), 1);
  fixture.Refresh();
  EXPECT_EQ(fixture->Statistics().version, 1);
  EXPECT_EQ(fixture.EndUpdate(), 1);
  fixture.Refresh();
  fixture.Refresh();  // of another pull, at the same time
  EXPECT_EQ(fixture->Statistics().version, 2);
  EXPECT_EQ(fixture->Statistics().updates, 2);
  EXPECT_EQ(fixture.MakeWorker().Copy(0), (Floats{3, 4}));
}

TEST(ServerTest, PullsOfOneVersionShareABuffer) {
  Fixture fixture(OneVariable(), Rounds(1));
  const auto pull = [&](int64_t version) {
    PullRequest request;
    request.version = version;
    tensorflow::Tensor message;
    ExpectOk(fixture->Pull(request, {1}, &message));
    return message;
  };
  fixture.Set(1, {3, 4});
  fixture.EndUpdate();
  const tensorflow::Tensor first = pull(1);
  EXPECT_TRUE(pull(1).SharesBufferWith(first));
  EXPECT_FALSE(pull(2).SharesBufferWith(first));
  const auto expect_another = [&] {
    EXPECT_FALSE(pull(1).SharesBufferWith(first));
  };
  fixture->SetStep(7);
  expect_another();
  fixture.PublishWhole({1});
  expect_another();
  EXPECT_EQ(fixture->Statistics().pulls, 5);
}

// Asynchronously every worker is at another version, and a pull in float32 has
// the whole model.
TEST(ServerTest, FewWholeModelsAreKeptToBeShared) {
  const int64_t n = 1000;
  Fixture fixture({MakeVariable(1, {n})}, Asynchronous(-1));
  const int versions = 16;
  for (int version = 0; version < versions; ++version) {
    fixture.Set(1, Floats(n, version));
    fixture.EndUpdate();
    fixture.Refresh();
  }
  std::vector<tensorflow::Tensor> messages(versions);
  for (int version = 0; version < versions; ++version) {
    PullRequest request;
    request.version = version;
    ExpectOk(fixture->Pull(request, {1}, &messages[version]));
    EXPECT_GT(messages[version].NumElements(), 4 * n);
  }
  const int kept = std::count_if(
      messages.begin(), messages.end(),
      [](const auto& message) { return !message.RefCountIsOne(); });
  EXPECT_GE(kept, 1);
  EXPECT_LE(kept, 3);
}

TEST(ServerTest, APullOfFewVariablesLeavesLargeMessagesShared) {
  Fixture fixture({MakeVariable(1, {1000}), MakeVariable(2, {1})}, Rounds(1));
  const auto pull = [&](uint32_t id) {
    tensorflow::Tensor message;
    ExpectOk(fixture->Pull({}, {id}, &message));
    return message;
  };
  const tensorflow::Tensor large = pull(1);
  pull(2);
  EXPECT_TRUE(pull(1).SharesBufferWith(large));
}

#ifndef TF_GC_NEEDS_ADDRESS_SPACE

TEST(ServerTest, PushesWithoutMemoryDoNotCount) {
  const int64_t n = 1 << 24;
  for (const ServerOptions& options : {Rounds(2), Asynchronous(-1)}) {
    Fixture fixture({MakeVariable(1, {n})}, options);
    Worker worker = fixture.MakeWorker();
    const Buffer push = worker.Push({Floats(n, 1)});
    if (!options.synchronous) Accumulate(push, fixture.server());
    Answer answer;
    Gradients gradients;
    absl::Status status;
    {
      const WithoutMemory without_memory;
      status = options.synchronous
                   ? fixture->AccumulatePush(push.data(), push.size(), true,
                                             SingleThread, &answer)
                   : fixture->TakeGradients(push.data(), push.size(), {1}, {},
                                            SingleThread, &gradients);
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("use more servers, or machines with more"));
    const Buffer next = worker.Push({Floats(n, 2)});
    answer = Accumulate(next, fixture.server());
    EXPECT_TRUE(answer.accepted);
    EXPECT_TRUE(answer.ready);  // nobody waits for what was not added
    EXPECT_EQ(fixture.Mean(next).front(), options.synchronous ? 1 : 2);
    worker.Settle(next, true, answer.counted);
    EXPECT_EQ(worker.Residual(0).front(), 1);
  }
}

TEST(ServerTest, ARoundWhoseLastPushHasNoMemoryIsEndedByTheNextWorker) {
  const int64_t n = 1 << 24;
  Fixture fixture({MakeVariable(1, {n})}, Rounds(1));
  Worker worker = fixture.MakeWorker();
  const Buffer push = worker.Push({Floats(n, 1)});
  Answer answer;
  {
    const WithoutMemory without_memory;
    EXPECT_TRUE(absl::IsResourceExhausted(fixture->AccumulatePush(
        push.data(), push.size(), true, SingleThread, &answer)));
  }
  EXPECT_FALSE(answer.ready);
  answer = Accumulate(worker.Push({Floats(n, 1)}), fixture.server());
  EXPECT_TRUE(answer.ready);
  EXPECT_FALSE(answer.accepted);
  EXPECT_EQ(fixture.EndUpdate(), 2);
}

TEST(ServerTest, APullWithoutMemoryIsNotTheLast) {
  const int64_t n = 1 << 24;
  Fixture fixture({MakeVariable(1, {n})}, Rounds(1));
  tensorflow::Tensor message;
  {
    const WithoutMemory without_memory;
    EXPECT_TRUE(absl::IsResourceExhausted(fixture->Pull({}, {1}, &message)));
  }
  ExpectOk(fixture->Pull({}, {1}, &message));
  EXPECT_GT(message.NumElements(), n);
}

#endif

TEST(ServerTest, VersionsComeWhereNoVariableIsPulled) {
  FakeClock clock;
  const Resource<Server> server(new Server(Asynchronous(-1), clock));
  const Values none;
  ExpectOk(server->AddVariable(OneVariable()[0], {}));
  EXPECT_EQ(server->Statistics().version, 1);
  EndUpdate(none, server.get());
  ExpectOk(server->Refresh({}, ReadFrom(&none), SingleThread));
  EXPECT_EQ(server->Statistics().version, 2);
}

TEST(ServerTest, AVariableThatHasGoneUnpulledLeavesMessagesShared) {
  FakeClock clock;
  const Resource<Server> server(new Server(Asynchronous(-1), clock));
  const VariableInfo here = OneVariable()[0];
  VariableInfo gone = here;
  gone.id = 2;
  for (const VariableInfo& variable : {here, gone}) {
    ExpectOk(server->AddVariable(variable, {}));
  }
  const Values values = {{here.id, Zeros(here.size())}};
  tensorflow::Tensor messages[2];
  for (tensorflow::Tensor& message : messages) {
    ExpectOk(
        server->Refresh({here.id, gone.id}, ReadFrom(&values), SingleThread));
    ExpectOk(server->Pull({}, {here.id}, &message));
  }
  EXPECT_EQ(messages[0].data(), messages[1].data());
}

TEST(ServerTest, PullsDoNotWaitForAnEncodingBecauseOfAVariableThatHasGone) {
  Fixture fixture(OneVariable(), Asynchronous(-1));
  ExpectOk(fixture->AddVariable(MakeVariable(2, {1}), {}));
  const Values none;
  fixture.EndUpdate();
  ExpectOk(fixture->Refresh(
      {1},
      [&](const std::vector<Server::Handle>&, Values*) {
        std::thread other([&] {
          ExpectOk(fixture->Refresh({1, 2}, ReadFrom(&none), SingleThread));
        });
        other.join();
        return absl::OkStatus();
      },
      SingleThread));
}

// Reading stands for encoding, which comes after it.
TEST(ServerTest, PullsAndUpdatesDoNotWaitForAnEncoding) {
  Fixture fixture(OneVariable(), Asynchronous(-1, /*updates=*/0));
  Worker worker = fixture.MakeWorker();
  const auto refresh = [&](const Server::Read& read) {
    ExpectOk(fixture->Refresh({1}, read, SingleThread));
    return fixture->Statistics().version;
  };
  const Values none;
  fixture.EndUpdate();
  const auto encode_while_two_updates_are_made =
      [&](const std::vector<Server::Handle>&, Values*) {
        fixture.clock().now += 100;
        const int64_t version = fixture->Statistics().version;
        std::thread others([&] {
          for (int i = 0; i < 2; ++i) {
            const Buffer push = worker.Push({{1, 2}});
            EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
            EXPECT_EQ(fixture.Mean(push), (Floats{1, 2}));
            fixture.EndUpdate();
            EXPECT_EQ(refresh(ReadFrom(&none)), version);
            EXPECT_EQ(worker.Follow(fixture.server()), version);
          }
        });
        others.join();
        return absl::OkStatus();
      };
  EXPECT_EQ(refresh(encode_while_two_updates_are_made), 2);
  // Four times as many make the next version, and one the version after it.
  for (int updates = 3; updates < 8; ++updates) {
    fixture.EndUpdate();
    EXPECT_EQ(refresh(ReadFrom(&none)), 2);
  }
  fixture.EndUpdate();
  EXPECT_EQ(refresh(ReadFrom(&none)), 3);
  fixture.EndUpdate();
  EXPECT_EQ(refresh(encode_while_two_updates_are_made), 4);
  // Nor does a version wait longer than three times as long as that took.
  fixture.clock().now += 299;
  EXPECT_EQ(refresh(ReadFrom(&none)), 4);
  fixture.clock().now += 1;
  EXPECT_EQ(refresh(ReadFrom(&none)), 5);
  fixture.clock().now += 1000;
  EXPECT_EQ(refresh(ReadFrom(&none)), 5);  // nothing has changed
}

TEST(ServerTest, WhoNeedsAFirstValueWaitsForWhoPublishes) {
  Fixture fixture(OneVariable(), Asynchronous(-1));
  ExpectOk(fixture->AddVariable(MakeVariable(2, {1}), {}));
  fixture.EndUpdate();
  const Values values = {{1, ToTensor({1, 2})}, {2, ToTensor({3})}};
  std::thread other;
  ExpectOk(fixture->Refresh(
      {1},
      [&](const std::vector<Server::Handle>&, Values* read) {
        other = std::thread([&] { Refresh(values, fixture.server()); });
        *read = {{1, ToTensor({5, 6})}};
        return absl::OkStatus();
      },
      SingleThread));
  other.join();
  Worker worker({MakeVariable(1, {2}), MakeVariable(2, {1})});
  EXPECT_EQ(worker.Follow(fixture.server()), 2);
  EXPECT_EQ(worker.Copy(0), (Floats{5, 6}));
  EXPECT_EQ(worker.Copy(1), Floats{3});
}

TEST(ServerTest, AsynchronousThcDecodesWithTheScalesOfThePush) {
  const int64_t n = 300;
  Fixture fixture({MakeVariable(1, {n}, kThc, "int8")}, Asynchronous(-1));
  Worker worker = fixture.MakeWorker(), slow = fixture.MakeWorker();
  const auto step = [&](Worker* from, uint32_t seed, float deviation) {
    const Floats gradient = Gaussian(n, seed, deviation);
    const Floats before = from->Residual(0);
    const Buffer push = from->Push({gradient});
    EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
    ExpectNear(Sum(fixture.Mean(push), from->Residual(0)),
               Sum(gradient, before), 1e-4f * deviation);
    fixture.EndUpdate();
    fixture.Refresh();
    return push.size();
  };
  EXPECT_GT(step(&worker, 1, 1), 4 * n);  // no scales yet
  worker.Follow(fixture.server());
  slow.Follow(fixture.server());
  for (int i = 2; i < 6; ++i) {
    EXPECT_LT(step(&worker, i, 10), n);
    worker.Follow(fixture.server());
  }
  EXPECT_LT(step(&slow, 9, 1), n);
}

TEST(ServerTest, AcceptedThcPushesMayWaitForTheirUpdateWhileOthersAreMade) {
  Fixture fixture({MakeVariable(1, {2}, kThc, "int8")}, Asynchronous(-1));
  Worker worker = fixture.MakeWorker(), slow = fixture.MakeWorker();
  const auto update = [&] {
    const Buffer push = worker.Push({{1, 2}});
    EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
    fixture.Mean(push);
    fixture.EndUpdate();
    fixture.Refresh();
    worker.Follow(fixture.server());
  };
  update();
  slow.Follow(fixture.server());
  const Buffer push = slow.Push({{1, 2}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).accepted);
  for (int i = 0; i < 100; ++i) update();
  ExpectNear(Sum(fixture.Mean(push), slow.Residual(0)), {1, 2}, 1e-4f);
}

TEST(ServerTest, ARoundThatIsNotFiniteIsNotSaved) {
  Fixture fixture(OneVariable(), Rounds(2));
  Worker worker = fixture.MakeWorker();
  EXPECT_TRUE(Accumulate(worker.Push({{NAN, 1}}), fixture.server()).accepted);
  EXPECT_EQ(fixture.Round(1), (Floats{0, 0}));
}

// ---- Steps

TEST(ServerTest, WritesAreVersionsButNoSteps) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  fixture.PublishWhole({1});
  EXPECT_EQ(worker.Follow(fixture.server()), 2);
  EXPECT_EQ(worker.step(), 0);
  fixture.EndUpdate();
  EXPECT_EQ(worker.Follow(fixture.server()), 3);
  EXPECT_EQ(worker.step(), 1);
}

TEST(ServerTest, StepsAreUpdatesHoweverManyMakeAVersion) {
  Fixture fixture(OneVariable(), Asynchronous(-1, /*updates=*/2));
  Worker worker = fixture.MakeWorker();
  for (int step = 1; step <= 5; ++step) {
    fixture.EndUpdate();
    fixture.Refresh();
    EXPECT_EQ(worker.Follow(fixture.server()), 1 + step / 2);
    EXPECT_EQ(worker.step(), step / 2 * 2);
  }
}

TEST(ServerTest, StepsDoNotCountUpdatesThatAVersionLacks) {
  Fixture fixture(OneVariable(), Asynchronous(-1));
  Worker worker = fixture.MakeWorker();
  fixture.EndUpdate();
  const auto read_before_an_update = [&](const std::vector<Server::Handle>&,
                                         Values* values) {
    values->insert({1, ToTensor({3, 4})});
    fixture.EndUpdate();
    return absl::OkStatus();
  };
  ExpectOk(fixture->Refresh({1}, read_before_an_update, SingleThread));
  EXPECT_EQ(worker.Follow(fixture.server()), 2);
  EXPECT_EQ(worker.step(), 1);
  fixture.Refresh();
  EXPECT_EQ(worker.Follow(fixture.server()), 3);
  EXPECT_EQ(worker.step(), 2);
}

TEST(ServerTest, StepsGoOnWhereAnotherProgramEnded) {
  Fixture fixture(OneVariable(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  fixture->SetStep(40);
  EXPECT_EQ(worker.Follow(fixture.server()), 1);
  EXPECT_EQ(worker.step(), 40);
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  EXPECT_EQ(worker.step(), 41);
  EXPECT_EQ(fixture->Statistics().step, 41);
  EXPECT_EQ(fixture->Statistics().updates, 1);
}

// ---- Waiting

TEST(ServerTest, PullsWaitForTheNextVersion) {
  Fixture fixture(OneVariable(), Rounds(1));
  PullRequest request = fixture.MakeWorker().Request();
  std::atomic<int> woken{0};
  const auto park = [&] {
    return fixture->Park(request, fixture->parked_calls().Ticket(),
                         [&] { ++woken; });
  };
  EXPECT_FALSE(park());  // no patience
  request.patience_micros = 3600000000;
  EXPECT_TRUE(park());
  EXPECT_TRUE(park());
  EXPECT_EQ(fixture->Statistics().parked_pulls, 2);
  EXPECT_EQ(woken, 0);
  fixture.EndUpdate();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(fixture->Statistics().parked_pulls, 0);
  EXPECT_FALSE(park());  // there is something new
  request.version = 2;
  EXPECT_TRUE(park());
  fixture.PublishWhole({});
  EXPECT_EQ(woken, 3);
  request.version = 3;
  request.others = {{1, 0}};
  EXPECT_FALSE(park());
  ExpectOk(fixture->AddVariable(MakeVariable(2, {1}), {}));
  request.others = {{2, 0}};  // which has gone before anybody has pulled it
  EXPECT_TRUE(park());
}

TEST(ServerTest, ForgottenVariablesAreLeftOut) {
  for (const ServerOptions& options : {Rounds(2), Asynchronous(-1)}) {
    Fixture fixture({MakeVariable(1, {2}), MakeVariable(2, {1})}, options);
    Worker worker = fixture.MakeWorker();
    const Buffer before = worker.Push({{1, 2}, {3}});
    Accumulate(before, fixture.server());
    fixture->Forget({2}, {});
    EXPECT_EQ(fixture->Statistics().variables.count(2), 0);

    // What was traced before still names it.
    fixture.Set(1, {5, 6});
    fixture.EndUpdate();
    fixture.Refresh();
    fixture.PublishWhole({1, 2});
    const PullRequest request = worker.Request();
    worker.Follow(fixture.server());
    EXPECT_EQ(worker.Copy(0), (Floats{5, 6}));

    // Nor do parked pulls wait for it.
    PullRequest next = worker.Request();
    next.patience_micros = 3600000000;
    next.others = {{2, 0}};
    EXPECT_EQ(fixture->Park(next, fixture->parked_calls().Ticket(), [] {}),
              options.synchronous);

    Gradients gradients;
    Answer answer;
    for (const absl::Status& status :
         {fixture->AccumulatePush(before.data(), before.size(), true,
                                  SingleThread, &answer),
          fixture->TakeGradients(before.data(), before.size(), {1}, {},
                                 SingleThread, &gradients)}) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    }
    const Buffer after = worker.Push({{1, 2}});
    EXPECT_TRUE(Accumulate(after, fixture.server()).accepted);
    EXPECT_EQ(fixture.Mean(after), (Floats{1, 2}));
  }
}

TEST(ServerTest, ForgottenChannelsBeginAnew) {
  Fixture fixture(OneVariable(), Rounds(2));
  Worker worker = fixture.MakeWorker();
  EXPECT_TRUE(Accumulate(worker.Push({{1, 2}}, /*channel=*/7), fixture.server())
                  .accepted);
  fixture->Forget({}, {7});
  EXPECT_EQ(fixture->Statistics().pushes_in_round, 0);
  EXPECT_EQ(fixture.Round(1), (Floats{0, 0}));
}

TEST(ServerTest, AsynchronousPullsDoNotWait) {
  Fixture fixture(OneVariable(), Asynchronous(-1));
  PullRequest request = fixture.MakeWorker().Request();
  request.patience_micros = 1000000;
  EXPECT_FALSE(fixture->Park(request, fixture->parked_calls().Ticket(), [] {}));
}

TEST(ParkedCallsTest, DeadlinesAndTicketsWake) {
  ParkedCalls calls;
  const auto now = ParkedCalls::Clock::now();
  const int64_t first = calls.Ticket(), second = calls.Ticket(),
                third = calls.Ticket();
  std::promise<void> in_time, by_ticket;
  bool never = true;
  calls.Park(first, now + std::chrono::hours(1),
             [&] { by_ticket.set_value(); });
  calls.Park(second, now + std::chrono::milliseconds(20),
             [&] { in_time.set_value(); });
  calls.Park(third, now + std::chrono::hours(1), [&] { never = false; });
  in_time.get_future().wait();
  EXPECT_GE(ParkedCalls::Clock::now(), now + std::chrono::milliseconds(20));
  calls.Wake(first);
  calls.Wake(first);   // it is gone
  calls.Wake(second);  // as this one
  by_ticket.get_future().wait();
  EXPECT_EQ(calls.size(), 1);
  EXPECT_TRUE(never);
}

// ---- Second moments

constexpr char kUnits[] = "three_lc rows=2 decay=0.5";

// A variable whose squares are the products of its rows' and columns' means.
const Floats kValues = {4, 2, 2, 1};
std::vector<VariableInfo> WithUnits(int64_t start_step = 0) {
  return {MakeVariable(1, {2, 2}, kUnits, "three_lc", start_step),
          MakeVariable(2, {3})};
}

TEST(ServerTest, SecondMomentsAreThoseOfTheMeanOfARound) {
  Fixture fixture(WithUnits(), Rounds(2));
  Worker worker = fixture.MakeWorker(), other = fixture.MakeWorker();
  Accumulate(worker.Push({kValues, {1, 2, 3}}), fixture.server());
  const Buffer push = other.Push({Sum(kValues, kValues), {1, 2, 3}});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  // Half of the mean of the squares of 4 and 8, and so on.
  EXPECT_EQ(fixture.SecondMoment(push), (Floats{20, 5, 5, 1.25f}));
  EXPECT_EQ(fixture.SecondMoment(push, 2), Floats());  // it has no rows
  EXPECT_EQ(fixture.SecondMoment(push), (Floats{20, 5, 5, 1.25f}));
  fixture.EndUpdate();
  EXPECT_EQ(fixture.SecondMoment(push), Floats(4, 0));  // of no push
}

TEST(ServerTest, WhatARowDeliversAfterItsLastGradientHasItsSquare) {
  Fixture fixture({MakeVariable(1, {2, 2}, kUnits)}, Rounds(1));
  Worker worker = fixture.MakeWorker();
  worker.model().WriteResidual(1, ToTensor({0, 0, 3, 0}));
  const Buffer push = worker.Push({{2, 1, 0, 0}});
  Accumulate(push, fixture.server());
  const Floats mean = fixture.Mean(push), moments = fixture.SecondMoment(push);
  EXPECT_NE(mean[2], 0);
  EXPECT_EQ(moments, (Floats{4, 1, mean[2] * mean[2], mean[3] * mean[3]}));
}

TEST(ServerTest, PushesWithoutAVariableCountAsZerosInItsSecondMoments) {
  const std::vector<VariableInfo> variables = WithUnits();
  Fixture fixture(variables, Rounds(2));
  Worker worker = fixture.MakeWorker();
  Accumulate(worker.Push({kValues}), fixture.server());
  const Buffer push =
      worker.Push({{2, &variables[1].push, 1, 0, ToTensor({1, 2, 3})}}, {});
  EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
  EXPECT_EQ(fixture.Mean(push), (Floats{2, 1, 1, 0.5f}));
  EXPECT_EQ(fixture.SecondMoment(push), (Floats{4, 1, 1, 0.25f}));
}

TEST(ServerTest, AsynchronousSecondMomentsAreThoseOfAPush) {
  Fixture fixture(WithUnits(), Asynchronous(-1));
  Worker worker = fixture.MakeWorker();
  // Gradients of 0 follow: with a decay of 0.5 their share of the mean is 2
  // / 3.
  for (const float expected : {1.0f, 1.0f / 3}) {
    const Buffer push = worker.Push({expected == 1 ? kValues : Floats(4, 0)});
    EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
    const Floats moments = fixture.SecondMoment(push);
    ASSERT_EQ(moments.size(), 4);
    for (int i = 0; i < 4; ++i) {
      const float square = expected * kValues[i] * kValues[i];
      EXPECT_NEAR(moments[i], square, square / 100) << i;  // bfloat16
    }
    fixture.EndUpdate();
  }
}

TEST(ServerTest, SecondMomentsAreNanWhereTheMeanIsNotFinite) {
  for (const int64_t start_step : {0, 1}) {
    Fixture fixture(WithUnits(start_step), Rounds(2));
    Worker worker = fixture.MakeWorker();
    Accumulate(worker.Push({kValues}), fixture.server());
    const Buffer push =
        worker.Push({{4, std::numeric_limits<float>::infinity(), 2, 1}});
    EXPECT_TRUE(Accumulate(push, fixture.server()).ready);
    const Floats moments = fixture.SecondMoment(push);
    for (int i = 0; i < 4; ++i) {
      // 3LC has one scale for all; before the start step values are float32.
      EXPECT_EQ(std::isnan(moments[i]), start_step == 0 || i == 1) << i;
    }
  }
}

// ---- What is counted

TEST(ServerTest, TrafficIsCountedByVariable) {
  Fixture fixture(
      {MakeVariable(1, {100}, "int8", "int8"), MakeVariable(2, {3})},
      Rounds(1));
  Worker worker = fixture.MakeWorker();
  const int64_t whole = kMessageHeaderSize + (2 + 2 + 400) + (1 + 1 + 1 + 12);
  EXPECT_EQ(fixture->Statistics().bytes_pulled, whole);
  const Buffer push = worker.Push({Gaussian(100, 1), {1, 2, 3}});
  Accumulate(push, fixture.server());
  fixture.Set(1, Gaussian(100, 2));
  fixture.EndUpdate();
  worker.Follow(fixture.server());
  const ServerStatistics statistics = fixture->Statistics();
  EXPECT_EQ(statistics.updates, 1);
  EXPECT_EQ(statistics.encodings, 1);
  EXPECT_EQ(statistics.pulls, 2);
  EXPECT_EQ(statistics.log_bytes, 104);
  EXPECT_EQ(statistics.bytes_pulled, whole + kMessageHeaderSize + 107);
  EXPECT_EQ(statistics.bytes_pushed, push.size());
  EXPECT_EQ(statistics.bytes_pushed, kMessageHeaderSize + 107 + 15);
  const VariableTraffic& first = statistics.variables.at(1);
  EXPECT_EQ(first.values_pushed, 100);
  EXPECT_EQ(first.bytes_pushed, 107);
  EXPECT_EQ(first.values_pulled, 200);
  EXPECT_EQ(first.bytes_pulled, 404 + 107);
  EXPECT_EQ(statistics.variables.at(2).values_pulled, 6);
}

TEST(ServerTest, BytesOfStatisticsAreCountedAndNoValues) {
  Fixture fixture(WithUnits(), Rounds(1));
  Worker worker = fixture.MakeWorker();
  Accumulate(worker.Push({kValues, {1, 2, 3}}), fixture.server());
  Accumulate(worker.Push({}, {{1, Indices({1}), ToTensor({1, 2}, {1, 2})}}),
             fixture.server());
  const std::map<uint32_t, VariableTraffic> traffic =
      fixture->Statistics().variables;
  EXPECT_EQ(traffic.at(1).values_pushed, 4 + 2);
  EXPECT_EQ(traffic.at(1).second_moment_bytes_pushed, 8);  // rows have none
  EXPECT_EQ(traffic.at(2).second_moment_bytes_pushed, 0);
}

// ---- Wrong arguments

TEST(ServerTest, WrongVariablesAreInvalid) {
  const Resource<Server> server(new Server(Rounds(100)));
  ExpectOk(server->AddVariable(MakeVariable(1, {2}), {}));
  ExpectOk(server->AddVariable(MakeVariable(1, {2}), {}));  // the same again
  ExpectInvalid(server->AddVariable(MakeVariable(1, {3}), {}), "id: 1");
  ExpectInvalid(server->AddVariable(MakeVariable(2, {2}, "int8", kThc), {}),
                "pull");
  ExpectInvalid(
      server->AddVariable(
          MakeVariable(
              3, {2},
              "thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2,656"),
          {}),
      "smaller granularity");
  ExpectInvalid(server->AddVariable(MakeVariable(4, {3}, kUnits), {}),
                "the 3 values of variable variable_4 do not make 2 rows");
  ExpectInvalid(server->AddVariable(MakeVariable(5, {0, 2}, kUnits), {}),
                "the 0 values");
  ExpectInvalid(server->AddVariable(MakeVariable(6, {4}, "int8", kUnits), {}),
                "pull: rows are for pushes only");
  tensorflow::Tensor message;
  ExpectInvalid(server->Pull({}, {9}, &message), "no variable 9");
  const Values none;
  ExpectInvalid(server->Refresh({9}, ReadFrom(&none), SingleThread),
                "no variable 9");
  ExpectInvalid(server->PublishWhole({9}, {}, ReadFrom(&none)),
                "no variable 9");
}

TEST(ServerTest, WrongMultipliersAreInvalid) {
  const Resource<Server> server(new Server(Rounds(1)));
  ExpectOk(server->AddVariable(MakeVariable(1, {2}, "int8", "three_lc"), {}));
  ExpectOk(server->AddVariable(MakeVariable(2, {2}), {}));
  ExpectOk(server->AddVariable(
      MakeVariable(4, {2}, "int8", "three_lc scale=mean"), {}));
  const Values none;
  const auto end_update = [&](uint32_t id, float multiplier) {
    int64_t version;
    return server->EndUpdate(0, 0, {{id, multiplier}}, ReadFrom(&none),
                             SingleThread, &version);
  };
  ExpectInvalid(end_update(1, 2), "multipliers");
  ExpectInvalid(end_update(9, 1), "no variable 9");
  ExpectInvalid(end_update(4, 64), "must be in (0, 64)");
  ExpectOk(end_update(1, 1.5f));
  ExpectOk(end_update(2, 7));
  ExpectOk(end_update(4, 7));
}

// Whether a push that differs from `push` cannot be one: it is cut off, or its
// header says that it is none, of another size or of more entries. Elsewhere a
// byte may be another that says something too, such as another value.
bool IsBroken(const Buffer& push, const Buffer& damaged) {
  if (damaged.size() < push.size()) return true;
  const int64_t byte =
      std::mismatch(push.begin(), push.end(), damaged.begin()).first -
      push.begin();
  return byte < 12 || (byte >= 32 && byte < 40) || (byte >= 44 && byte < 48);
}

TEST(ServerTest, DamagedPushesAreErrorsThatAddNothingOrOtherPushes) {
  const std::vector<VariableInfo> variables = {
      MakeVariable(1, {20}, "three_lc"), MakeVariable(2, {65}, kThc),
      MakeVariable(3, {20}, kUnits)};
  const Buffer push =
      Fixture(variables, Rounds(1000))
          .MakeWorker()
          .Push({Gaussian(20, 1), Gaussian(65, 2), Gaussian(20, 3)});
  int64_t taken = 0;
  ForEachDamage(push, [&](Buffer damaged) {
    Fixture fixture(variables, Rounds(1000));  // to which each is the first
    SealIfMessage(&damaged);
    const ServerStatistics before = fixture->Statistics();
    const auto round = [&] {
      return std::make_tuple(fixture.Round(1), fixture.Round(2),
                             fixture.Round(3));
    };
    const auto round_before = round();
    Answer outcome;
    const absl::Status status = fixture->AccumulatePush(
        damaged.data(), damaged.size(), true, SingleThread, &outcome);
    const ServerStatistics after = fixture->Statistics();
    if (status.ok()) {
      EXPECT_FALSE(IsBroken(push, damaged));
      EXPECT_EQ(after.pushes_accepted + after.pushes_dropped,
                before.pushes_accepted + before.pushes_dropped + 1);
      EXPECT_EQ(after.bytes_pushed, before.bytes_pushed + push.size());
      ++taken;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(status) ||
                  absl::IsFailedPrecondition(status))
          << status;
      EXPECT_FALSE(outcome.accepted);
      EXPECT_EQ(after.pushes_accepted, before.pushes_accepted);
      EXPECT_EQ(after.pushes_dropped, before.pushes_dropped);
      EXPECT_EQ(after.bytes_pushed, before.bytes_pushed);
    }
    if (!outcome.accepted) {
      EXPECT_EQ(round(), round_before);
    }
  });
  EXPECT_GT(taken, 0);
}

// ---- Threads

// Pushes of a round come at once, of variables in either order.
TEST(ServerTest, TheLastToAddUpMakesTheUpdateOfARound) {
  const int64_t n = 3000;
  const int pushes = 4;
  const std::vector<VariableInfo> variables = {MakeVariable(1, {n}),
                                               MakeVariable(2, {n})};
  Fixture fixture(variables, Rounds(pushes));
  std::vector<Worker> workers;
  for (int i = 0; i < pushes; ++i) workers.push_back(fixture.MakeWorker());
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> ready{0};
    const auto push = [&](int i) {
      Worker& worker = workers[i];
      worker.Follow(fixture.server());
      std::vector<DenseGradient> gradients;
      for (const VariableInfo& variable : variables) {
        gradients.push_back(
            {variable.id, &variable.push, 1, 0, ToTensor(Floats(n, i + 1))});
      }
      if (i % 2 == 1) std::reverse(gradients.begin(), gradients.end());
      const Buffer bytes = worker.Push(gradients, {});
      const Answer answer = Accumulate(bytes, fixture.server());
      EXPECT_TRUE(answer.accepted);
      worker.Settle(bytes, true);
      if (!answer.ready) return;
      ++ready;
      EXPECT_EQ(fixture.Mean(bytes, 1), Floats(n, 2.5f));
      EXPECT_EQ(fixture.Mean(bytes, 2), Floats(n, 2.5f));
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < pushes; ++i) threads.emplace_back(push, i);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ready, 1);
    fixture.EndUpdate();
  }
}

TEST(ServerTest, WorkersOnThreadsGetWhatIsPublished) {
  const int64_t n = 2000, steps = 60;
  const std::vector<VariableInfo> variables = {
      MakeVariable(1, {n}, "int8", "three_lc"), MakeVariable(2, {7})};
  for (const ServerOptions& options : {Rounds(2), Asynchronous(-1)}) {
    Fixture fixture(variables, options);
    std::mutex update;  // as the variables' own
    Floats values(n, 0);
    std::vector<Worker> workers;
    for (int i = 0; i < 4; ++i) workers.push_back(fixture.MakeWorker());
    const auto train = [&](int seed) {
      Worker& worker = workers[seed];
      for (int i = 0; i < steps; ++i) {
        worker.Follow(fixture.server());
        const Buffer push =
            worker.Push({Gaussian(n, seed * steps + i), Floats(7, 1)});
        const Answer outcome = Accumulate(push, fixture.server());
        if (outcome.ready) {
          std::lock_guard<std::mutex> lock(update);
          values = Sum(values, fixture.Mean(push));
          fixture.Set(1, values);
          fixture.EndUpdate();
          fixture.Refresh();
        }
        worker.Settle(push, outcome.accepted, outcome.counted);
      }
    };
    std::vector<std::thread> threads;
    for (int seed = 0; seed < 4; ++seed) threads.emplace_back(train, seed);
    for (std::thread& thread : threads) thread.join();
    const auto expect_the_same = [&](const Floats& published) {
      for (Worker& worker : workers) {
        worker.Follow(fixture.server());
        EXPECT_EQ(worker.Copy(0), published);
      }
    };
    expect_the_same(fixture.MakeWorker().Copy(0));
    // Each version halves at least what 3LC has left over.
    for (int i = 0; i < 30; ++i) {
      fixture.EndUpdate();
      fixture.Refresh();
    }
    expect_the_same(fixture.MakeWorker().Copy(0));
    ExpectNear(workers[0].Copy(0), values, 1e-5f);
  }
}

}  // namespace
}  // namespace tf_gc::parameter_server
