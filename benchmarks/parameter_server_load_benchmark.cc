// How many updates a second a parameter server makes of the pushes of 8 clients
// that push and pull at the same time, without a network between them.
//
//   bazel run //benchmarks:parameter_server_load_benchmark

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/local_model.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;
using ::tensorflow::Tensor;
using Buffer = std::vector<uint8_t>;

constexpr int kClients = 8;
constexpr int kSteps = 8;  // of each client, in an iteration
constexpr uint32_t kVariables = 16;
constexpr int64_t kRows = 256;
constexpr int64_t kValues = kRows * kRows;  // of each variable
constexpr float kLearningRate = 1e-4f;

// Where the fields of a message are.
constexpr int64_t kVersionAt = 16;
constexpr int64_t kSequenceAt = 56;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << '\n';
  std::exit(1);
}

auto To(Buffer* message) {
  return [message](int64_t size, uint8_t** bytes) {
    message->resize(size);
    *bytes = message->data();
    return absl::OkStatus();
  };
}

// Variables that are updated by gradient descent, as TensorFlow's kernels do
// it: one update after the other, on a copy where somebody reads.
class Variables {
 public:
  Variables(const std::string& push, const std::string& pull) {
    for (uint32_t id = 0; id < kVariables; ++id) {
      VariableInfo info;
      info.id = id;
      info.name = "variable";
      info.shape = tensorflow::TensorShape({kRows, kRows});
      Check(ParseCodecSpec(push, &info.push));
      Check(ParseCodecSpec(pull, &info.pull));
      infos_.push_back(info);
      ids_.push_back(id);
      values_.push_back(Zeros(kValues));
    }
  }

  const std::vector<VariableInfo>& infos() const { return infos_; }
  const std::vector<uint32_t>& ids() const { return ids_; }

  Server::Read Read() {
    return [this](const std::vector<Server::Handle>& handles, Values* read) {
      for (const Server::Handle& handle : handles) {
        const uint32_t id = handle.variable->id;
        std::lock_guard<std::mutex> lock(mutex_);
        (*read)[id] = values_[id];
      }
      return absl::OkStatus();
    };
  }

  void Subtract(const std::vector<Tensor>& gradients) {
    for (uint32_t id = 0; id < kVariables; ++id) {
      std::lock_guard<std::mutex> lock(mutex_);
      float* const values = Mutable(&values_[id]);
      const float* const gradient = FloatsOf(gradients[id]);
      for (int64_t i = 0; i < kValues; ++i) {
        values[i] -= kLearningRate * gradient[i];
      }
    }
  }

 private:
  std::vector<VariableInfo> infos_;
  std::vector<uint32_t> ids_;
  std::mutex mutex_;
  std::vector<Tensor> values_;
};

std::vector<Tensor> Gaussian(uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Tensor> gradients;
  for (uint32_t id = 0; id < kVariables; ++id) {
    gradients.push_back(NewFloats(kValues));
    float* const values = FloatsOf(&gradients.back());
    std::generate_n(values, kValues, [&] { return normal(generator); });
  }
  return gradients;
}

// A worker that has made its push before: what it computes is not the server's.
class Client {
 public:
  Client(uint32_t seed, Variables* variables, Server* server,
         std::mutex* updates)
      : variables_(*variables), server_(*server), updates_(*updates) {
    std::vector<DenseGradient> dense;
    const std::vector<Tensor> gradients = Gaussian(seed);
    for (const VariableInfo& info : variables_.infos()) {
      dense.push_back({info.id, &info.push, /*multiplier=*/1,
                       /*start_step=*/0, gradients[info.id]});
    }
    Check(
        model_->EncodePush(/*channel=*/0, dense, {}, SingleThread, To(&push_)));
  }

  void Step() {
    Pull();
    NextPush();
    Answer answer;
    Check(server_.AccumulatePush(push_.data(), push_.size(), /*master=*/true,
                                 SingleThread, &answer));
    if (answer.ready) Update(answer.round);
  }

 private:
  void Pull() {
    PullRequest request;
    request.version = version_;
    Check(server_.Refresh(variables_.ids(), variables_.Read(), SingleThread));
    Tensor message;
    Check(server_.Pull(request, variables_.ids(), &message));
    std::memcpy(&version_, BytesOf(message) + kVersionAt, sizeof(version_));
  }

  void NextPush() {
    ++sequence_;
    std::memcpy(push_.data() + kVersionAt, &version_, sizeof(version_));
    std::memcpy(push_.data() + kSequenceAt, &sequence_, sizeof(sequence_));
    SealMessage(push_.data(), push_.size());
  }

  void Update(int64_t round) {
    std::lock_guard<std::mutex> lock(updates_);
    if (server_.options().synchronous && !server_.BeginUpdate(0, round)) return;
    Gradients gradients;
    Check(server_.TakeGradients(push_.data(), push_.size(), variables_.ids(),
                                {}, SingleThread, &gradients));
    variables_.Subtract(gradients.dense);
    std::vector<std::pair<uint32_t, float>> multipliers;
    for (const uint32_t id : variables_.ids()) multipliers.emplace_back(id, 1);
    int64_t version;
    Check(server_.EndUpdate(0, round, multipliers, variables_.Read(),
                            SingleThread, &version));
  }

  Variables& variables_;
  Server& server_;
  std::mutex& updates_;
  const tensorflow::core::RefCountPtr<LocalModel> model_{new LocalModel};
  Buffer push_;
  int64_t version_ = 0;
  uint64_t sequence_ = 0;
};

void BM_Updates(benchmark::State& state, const std::string& push,
                const std::string& pull, const ServerOptions& options) {
  Variables variables(push, pull);
  const tensorflow::core::RefCountPtr<Server> server(new Server(options));
  for (const VariableInfo& info : variables.infos()) {
    Check(server->AddVariable(info, {}));
  }
  std::mutex updates;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(
        std::make_unique<Client>(i, &variables, server.get(), &updates));
  }
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (const auto& client : clients) {
      threads.emplace_back([&client] {
        for (int step = 0; step < kSteps; ++step) client->Step();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const ServerStatistics statistics = server->Statistics();
  state.counters["updates"] =
      benchmark::Counter(statistics.updates, benchmark::Counter::kIsRate);
  state.counters["per_version"] =
      static_cast<double>(statistics.updates) / statistics.version;
}

ServerOptions Asynchronous(int64_t updates_per_version) {
  ServerOptions options;
  options.synchronous = false;
  options.updates_per_version = updates_per_version;
  return options;
}

ServerOptions Rounds() {
  ServerOptions options;
  options.pushes_per_round = kClients;
  options.lease_seconds = 10;
  return options;
}

#define TF_GC_BENCHMARK_UPDATES(name, push, pull, options) \
  BENCHMARK_CAPTURE(BM_Updates, name, push, pull, options) \
      ->UseRealTime()                                      \
      ->MeasureProcessCPUTime()                            \
      ->Unit(benchmark::kMillisecond)

constexpr char kUnits[] = "three_lc rows=256 decay=0.999";

TF_GC_BENCHMARK_UPDATES(ThreeLC1, "three_lc", "three_lc", Asynchronous(1));
TF_GC_BENCHMARK_UPDATES(ThreeLC, "three_lc", "three_lc", Asynchronous(0));
TF_GC_BENCHMARK_UPDATES(Units1, kUnits, "three_lc", Asynchronous(1));
TF_GC_BENCHMARK_UPDATES(Units, kUnits, "three_lc", Asynchronous(0));
TF_GC_BENCHMARK_UPDATES(Int81, "int8", "int8", Asynchronous(1));
TF_GC_BENCHMARK_UPDATES(Int8, "int8", "int8", Asynchronous(0));
TF_GC_BENCHMARK_UPDATES(Float321, "float32", "float32", Asynchronous(1));
TF_GC_BENCHMARK_UPDATES(Float32, "float32", "float32", Asynchronous(0));
TF_GC_BENCHMARK_UPDATES(ThreeLCRounds, "three_lc", "three_lc", Rounds());
TF_GC_BENCHMARK_UPDATES(Float32Rounds, "float32", "float32", Rounds());

}  // namespace
}  // namespace tf_gc::parameter_server
