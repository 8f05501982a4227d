// Speed of the 3LC kernels.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/kernels/benchmarking.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"

namespace tf_gc::kernels {
namespace {

// Training is simulated on a tile, which then repeats: as many steps as it
// takes for the residual to look as it does in the long run.
constexpr int64_t kTile = int64_t{1} << 20;
constexpr int kSteps = 300;

constexpr ThreeLcScaling kInUnits(5, ThreeLcScaling::Of::kUnit);

// A gradient, its residual, and their payload.
struct Gradient {
  std::vector<float> values;
  std::vector<float> residual;
  std::vector<uint8_t> payload;
  float scale;
  int64_t payload_size;
};

// In units that are all 1, if in units.
float ScaleOf(ThreeLcScaling scaling, const std::vector<float>& values,
              const std::vector<float>& residual) {
  return ThreeLcScaleOf(scaling,
                        ThreeLcMeasure(scaling, values.data(), residual.data(),
                                       values.size(), SingleThread));
}

Gradient Encode(std::vector<float> values, std::vector<float> residual,
                ThreeLcScaling scaling) {
  std::vector<uint8_t> payload(QuarticSize(kValues));
  std::vector<float> new_residual(kValues);
  const float scale = ScaleOf(scaling, values, residual);
  const int64_t size =
      ThreeLcEncode(values.data(), residual.data(), scale, kValues,
                    new_residual.data(), payload.data(), SingleThread);
  return {std::move(values), std::move(residual), std::move(payload), scale,
          size};
}

std::vector<float> Repeat(const std::vector<float>& tile) {
  std::vector<float> values;
  values.reserve(kValues);
  while (values.size() < kValues) {
    values.insert(values.end(), tile.begin(), tile.end());
  }
  return values;
}

Gradient MakeGaussian(ThreeLcScaling scaling) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kTile);
  for (float& value : values) value = normal(generator);
  std::vector<float> residual(kTile);
  std::vector<uint8_t> payload(QuarticSize(kTile));
  for (int step = 0; step < kSteps; ++step) {
    ThreeLcEncode(values.data(), residual.data(),
                  ScaleOf(scaling, values, residual), kTile, residual.data(),
                  payload.data(), SingleThread);
    // Shifted and mirrored they are as good as new ones, and sooner made.
    std::rotate(values.begin(), values.begin() + generator() % kTile,
                values.end());
    for (float& value : values) value = -value;
  }
  return Encode(Repeat(values), Repeat(residual), scaling);
}

// Values of which few quartic bytes are 121: the payload cannot be compressed.
Gradient MakeDense() {
  std::mt19937 generator(1);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(generator() % 3) - 1;
  return Encode(std::move(values), std::vector<float>(kValues), 1);
}

const Gradient& GetGradient(const std::string& name) {
  static auto* gradients = new std::map<std::string, Gradient>();
  auto found = gradients->find(name);
  if (found == gradients->end()) {
    found = gradients
                ->emplace(name, name == "dense"   ? MakeDense()
                                : name == "s=1"   ? MakeGaussian(1)
                                : name == "units" ? MakeGaussian(kInUnits)
                                                  : MakeGaussian(1.75f))
                .first;
  }
  return found->second;
}

void SetBitsPerValue(benchmark::State& state, const Gradient& gradient) {
  state.counters["bits_per_value"] =
      8.0 * static_cast<double>(gradient.payload_size) / kValues;
}

void BM_MaxAbsSum(benchmark::State& state, const ParallelFor& parallel_for) {
  const Gradient& gradient = GetGradient("s=1");
  for (auto _ : state) {
    benchmark::DoNotOptimize(MaxAbsSum(gradient.values.data(),
                                       gradient.residual.data(), kValues,
                                       parallel_for));
  }
  SetRate(state);
}

// Calls encode(values, residual, payload) of a gradient again and again.
template <typename EncodeOnce>
void EncodeInPlace(benchmark::State& state, const Gradient& gradient,
                   EncodeOnce encode) {
  std::vector<float> residual(kValues);
  std::vector<uint8_t> payload(QuarticSize(kValues));
  for (auto _ : state) {
    state.PauseTiming();  // Every turn encodes the same.
    residual = gradient.residual;
    state.ResumeTiming();
    encode(gradient.values.data(), residual.data(), payload.data());
    benchmark::ClobberMemory();
  }
  SetRate(state);
  SetBitsPerValue(state, gradient);
}

// The whole encoding, in place as in training: MaxAbsSum and ThreeLcEncode.
void BM_Encode(benchmark::State& state, const std::string& name,
               const ParallelFor& parallel_for) {
  const float sparsity_multiplier = name == "s=1.75" ? 1.75f : 1.0f;
  EncodeInPlace(state, GetGradient(name),
                [&](const float* values, float* residual, uint8_t* payload) {
                  const float scale =
                      sparsity_multiplier *
                      MaxAbsSum(values, residual, kValues, parallel_for);
                  ThreeLcEncode(values, residual, scale, kValues, residual,
                                payload, parallel_for);
                });
}

// The same in units, where the mean squares are known to be finite.
void BM_EncodeInUnits(benchmark::State& state,
                      const ParallelFor& parallel_for) {
  constexpr int64_t kWidth = 4096;
  const std::vector<float> ones(kValues / kWidth + kWidth, 1.0f);
  const Units units = UnitsAt(ones.data(), kValues / kWidth, kWidth, 0);
  EncodeInPlace(state, GetGradient("units"),
                [&](const float* values, float* residual, uint8_t* payload) {
                  const float scale = ThreeLcScaleOf(
                      kInUnits,
                      ThreeLcMeasure(kInUnits, values, residual, kValues,
                                     parallel_for, units, /*are_finite=*/true));
                  ThreeLcEncode(values, residual, scale, kValues, residual,
                                payload, parallel_for, units);
                });
}

void BM_Decode(benchmark::State& state, const std::string& name,
               const ParallelFor& parallel_for) {
  const Gradient& gradient = GetGradient(name);
  std::vector<float> values(kValues);
  for (auto _ : state) {
    ThreeLcDecode(gradient.payload.data(), gradient.payload_size,
                  gradient.scale, kValues, values.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
  SetBitsPerValue(state, gradient);
}

void BM_DecodeAdd(benchmark::State& state, const std::string& name,
                  const ParallelFor& parallel_for) {
  const Gradient& gradient = GetGradient(name);
  std::vector<float> sum(kValues, 1.0f);
  for (auto _ : state) {
    ThreeLcDecodeAdd(gradient.payload.data(), gradient.payload_size,
                     gradient.scale, kValues, sum.data(), parallel_for);
    benchmark::ClobberMemory();
  }
  SetRate(state);
  SetBitsPerValue(state, gradient);
}

// A matrix of the first values of a gradient, with units or without.
struct Matrix {
  int64_t rows;
  int64_t width;
  bool has_units;

  std::string Name() const {
    return std::to_string(rows) + "x" + std::to_string(width) +
           (has_units ? "/units" : "/none");
  }
  int64_t values() const { return rows * width; }
};

class UnitsOf {
 public:
  explicit UnitsOf(const Matrix& matrix) : matrix_(matrix) {
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
    for (int64_t i = 0; i < matrix.rows + matrix.width; ++i) {
      units_.push_back(uniform(generator));
    }
    if (matrix.has_units) weights_ = Reciprocals(units(), matrix.rows);
  }
  Units units() const { return At(units_); }
  Units weights() const { return At(weights_); }

 private:
  Units At(const std::vector<float>& array) const {
    if (!matrix_.has_units) return {};
    return UnitsAt(array.data(), matrix_.rows, matrix_.width, /*first=*/0);
  }

  const Matrix matrix_;
  std::vector<float> units_;
  std::vector<float> weights_;
};

// The same as Encode, but into another residual.
void BM_EncodeMatrix(benchmark::State& state, const Matrix& matrix,
                     const ParallelFor& parallel_for) {
  const Gradient& gradient = GetGradient("s=1");
  const UnitsOf of(matrix);
  const int64_t n = matrix.values();
  std::vector<float> residual(n);
  std::vector<uint8_t> payload(QuarticSize(n));
  for (auto _ : state) {
    const float scale =
        MaxAbsSum(gradient.values.data(), gradient.residual.data(), n,
                  parallel_for, of.weights());
    ThreeLcEncode(gradient.values.data(), gradient.residual.data(), scale, n,
                  residual.data(), payload.data(), parallel_for, of.units());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * sizeof(float));
}

void BM_DecodeAddMatrix(benchmark::State& state, const Matrix& matrix,
                        const ParallelFor& parallel_for) {
  const Gradient& gradient = GetGradient("s=1");
  const UnitsOf of(matrix);
  const int64_t n = matrix.values();
  std::vector<float> residual(n), sum(n);
  std::vector<uint8_t> payload(QuarticSize(n));
  const int64_t size = ThreeLcEncode(
      gradient.values.data(), gradient.residual.data(), gradient.scale, n,
      residual.data(), payload.data(), SingleThread, of.units());
  for (auto _ : state) {
    ThreeLcDecodeAdd(payload.data(), size, gradient.scale, n, sum.data(),
                     parallel_for, of.units());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * sizeof(float));
}

template <typename Function>
void RegisterForAllMatrices(const std::string& name, Function* function) {
  for (const auto& [rows, width] :
       {std::pair(256, 128), {512, 512}, {2048, 2048}, {1 << 17, 128}}) {
    for (const bool has_units : {false, true}) {
      const Matrix matrix = {rows, width, has_units};
      RegisterForAll(
          name + "/" + matrix.Name(),
          [=](benchmark::State& state, const ParallelFor& parallel_for) {
            function(state, matrix, parallel_for);
          });
    }
  }
}

template <typename Function>
void RegisterForAllGradients(const std::string& name, Function* function) {
  for (const std::string gradient : {"s=1", "s=1.75", "dense"}) {
    RegisterForAll(name + "/" + gradient, [=](benchmark::State& state,
                                              const ParallelFor& parallel_for) {
      function(state, gradient, parallel_for);
    });
  }
}

const bool kRegistered = [] {
  RegisterForAll("MaxAbsSum", BM_MaxAbsSum);
  RegisterForAllGradients("Encode", BM_Encode);
  RegisterForAllGradients("Decode", BM_Decode);
  RegisterForAllGradients("DecodeAdd", BM_DecodeAdd);
  RegisterForAll("EncodeInUnits", BM_EncodeInUnits);
  RegisterForAllMatrices("EncodeMatrix", BM_EncodeMatrix);
  RegisterForAllMatrices("DecodeAddMatrix", BM_DecodeAddMatrix);
  return true;
}();

}  // namespace
}  // namespace tf_gc::kernels
