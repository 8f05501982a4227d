// What a push costs a parameter server, beside decoding each push of THC.
//
//   bazel run //benchmarks:parameter_server_round_benchmark

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/round.h"
#include "ops/parameter_server/tensor_pool.h"
#include "ops/parameter_server/thc.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr int64_t kValues = int64_t{1} << 22;
// As tf_gc.THC() has it.
constexpr char kThc[] =
    "thc bits=4 truncation=2.15 headroom=1.2 seed=0 "
    "table=0,8,15,21,26,31,36,40,44,49,54,59,64,70,77,85";
constexpr float kHeadroom = 1.2f;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << '\n';
  std::exit(1);
}

// A push of Gaussian values of one variable.
class Push {
 public:
  explicit Push(const std::string& codec) {
    variable_.name = "variable";
    variable_.shape = tensorflow::TensorShape({kValues});
    Check(ParseCodecSpec(codec, &variable_.push));
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(kValues);
    for (float& value : values) value = normal(generator);
    if (IsPlain(variable_.push.codec)) {
      EncodePlain(values);
    } else {
      EncodeThc(values);
    }
  }

  const VariableInfo& variable() const { return variable_; }
  const ThcScales& scales() const { return scales_; }
  const uint8_t* indices() const {
    return body_.data() + ThcBlocks(kValues).count * sizeof(float);
  }
  std::vector<PushEntry> Entries() const {
    return {{&variable_, variable_.push.codec, body_.data(),
             static_cast<int64_t>(body_.size()), scales_}};
  }

 private:
  void EncodePlain(const std::vector<float>& values) {
    const Codec codec = variable_.push.codec;
    const std::vector<float> residual(kValues);
    std::vector<float> new_residual(kValues);
    body_.resize(MaxEncodedSize(codec, kValues));
    body_.resize(Encode(codec, /*multiplier=*/1, values.data(), residual.data(),
                        kValues, new_residual.data(), body_.data(),
                        SingleThread)
                     .size);
  }

  void EncodeThc(const std::vector<float>& values) {
    const int64_t blocks = ThcBlocks(kValues).count;
    body_.resize(blocks * sizeof(float) +
                 ThcIndicesSize(variable_.push.thc, kValues));
    float* const norms = reinterpret_cast<float*>(body_.data());
    ThcNorms(values.data(), kValues, norms, SingleThread);
    scales_.version = 1;
    scales_.values = tensorflow::Tensor(tensorflow::DT_FLOAT,
                                        tensorflow::TensorShape({blocks}));
    for (int64_t i = 0; i < blocks; ++i) {
      FloatsOf(&scales_.values)[i] = kHeadroom * norms[i];
    }
    ThcQuantizer(&variable_.push.thc, variable_.id, kValues, scales_)
        .Quantize(values.data(), /*push=*/1,
                  body_.data() + blocks * sizeof(float), SingleThread);
  }

  VariableInfo variable_;
  std::vector<uint8_t> body_;
  ThcScales scales_;
};

// What the server does with every push: checks it, and adds it to its round.
void BM_Push(benchmark::State& state, const std::string& codec) {
  const Push push(codec);
  TensorPool pool;
  auto round = std::make_unique<Round>(&pool);
  for (auto _ : state) {
    Check(CheckPush(push.Entries(), SingleThread));
    if (!round->Admit(push.Entries())) {
      round = std::make_unique<Round>(&pool);
      round->Admit(push.Entries());
    }
    Check(round->Add(push.Entries(), SingleThread));
  }
  state.SetItemsProcessed(state.iterations() * kValues);
}

// What it does once for a round.
void BM_Mean(benchmark::State& state, const std::string& codec) {
  const Push push(codec);
  TensorPool pool;
  Round round(&pool);
  round.Admit(push.Entries());
  Check(round.Add(push.Entries(), SingleThread));
  for (auto _ : state) {
    benchmark::DoNotOptimize(round.Sum(push.variable(), SingleThread));
  }
  state.SetItemsProcessed(state.iterations() * kValues);
}

// What it would do with every push if pushes were added up as float32.
void BM_DecodeEachPush(benchmark::State& state) {
  const Push push(kThc);
  const ThcQuantizer quantizer(&push.variable().push.thc, push.variable().id,
                               kValues, push.scales());
  std::vector<uint16_t> table_values(ThcBlocks(kValues).padded());
  std::vector<float> sum(kValues);
  for (auto _ : state) {
    Check(CheckPush(push.Entries(), SingleThread));
    std::fill(table_values.begin(), table_values.end(), 0);
    quantizer.Add(push.indices(), table_values.data(), SingleThread);
    quantizer.DecodeAdd(table_values.data(), /*pushes=*/1, sum.data(),
                        SingleThread);
  }
  state.SetItemsProcessed(state.iterations() * kValues);
}

#define TF_GC_BENCHMARK_CODEC(name, text) \
  BENCHMARK_CAPTURE(BM_Push, name, text)  \
      ->UseRealTime()                     \
      ->Unit(benchmark::kMillisecond);    \
  BENCHMARK_CAPTURE(BM_Mean, name, text)  \
      ->UseRealTime()                     \
      ->Unit(benchmark::kMillisecond)

TF_GC_BENCHMARK_CODEC(THC, kThc);
TF_GC_BENCHMARK_CODEC(ThreeLC, "three_lc");
TF_GC_BENCHMARK_CODEC(Int8, "int8");
TF_GC_BENCHMARK_CODEC(Float32, "float32");
BENCHMARK(BM_DecodeEachPush)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tf_gc::parameter_server
