#include "ops/cuda/three_lc.h"

#include <cmath>
#include <limits>

#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::Bits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Normal values, with zeros of both signs and denormal ones among them.
std::vector<float> RandomValues(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) {
    const uint32_t kind = generator() % 16;
    value = normal(generator);
    if (kind == 0) value = std::copysign(0.0f, value);
    if (kind == 1) value = std::copysign(kDenormal, value);
  }
  return values;
}

// A tensor to encode: its arrays lie at an address that is or is not aligned to
// 16 bytes, and there may be no residual.
struct Case {
  int64_t n;
  bool aligned;
  bool has_residual;

  int Misalignment(int k) const { return aligned ? 0 : 4 * ((n + k) % 4); }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t n : Sizes()) {
    for (const bool aligned : {false, true}) {
      cases.push_back({n, aligned, n % 3 != 0});
    }
  }
  for (const bool has_residual : {false, true}) {
    for (const int64_t n : {20, 10240, 40960}) {
      for (const int64_t fewer : {0, 1, 2, 3, 4}) {
        cases.push_back({n - fewer, true, has_residual});
      }
    }
    cases.push_back({499999, true, has_residual});
  }
  return cases;
}

struct Encoded {
  std::vector<uint8_t> bytes;
  std::vector<float> residual;
};

Encoded EncodeOnCpu(const std::vector<float>& values, const float* residual,
                    float s) {
  const int64_t n = values.size();
  Encoded encoded = {std::vector<uint8_t>(kernels::ThreeLcTensorBufferSize(n)),
                     std::vector<float>(n)};
  encoded.bytes.resize(kernels::ThreeLcEncodeTensor(
      values.data(), residual, s, n, encoded.residual.data(),
      encoded.bytes.data(), kernels::SingleThread));
  return encoded;
}

// Where the new residual goes: a buffer of its own, the values' or the old
// residual's.
enum class Target { kOwn, kValues, kResidual };

Encoded Encode(const Case& c, const std::vector<float>& values,
               const std::vector<float>& residual, float s, Target target) {
  const int64_t n = c.n;
  Device<float> in(values, c.Misalignment(0));
  Device<float> old(residual, c.Misalignment(1));
  Device<float> own(n, c.Misalignment(2));
  Device<float>& next = target == Target::kOwn      ? own
                        : target == Target::kValues ? in
                                                    : old;
  Device<uint8_t> encoded(4 + kernels::QuarticSize(n), n % 16);
  Device<int64_t> size(1);
  Device<uint8_t> workspace(tf_gc_cuda_three_lc_encode_workspace_size(n));
  EXPECT_EQ(
      tf_gc_cuda_three_lc_encode_tensor(
          in.data(), c.has_residual ? old.data() : nullptr, s, n, next.data(),
          encoded.data(), size.data(), workspace.data(), nullptr),
      0);
  return {encoded.Values(size.Value()), next.Values()};
}

void ExpectEncodesAsTheCpuDoes(const Case& c, const std::vector<float>& values,
                               const std::vector<float>& residual, float s,
                               Target target) {
  const Encoded expected =
      EncodeOnCpu(values, c.has_residual ? residual.data() : nullptr, s);
  const Encoded encoded = Encode(c, values, residual, s, target);
  ASSERT_EQ(encoded.bytes, expected.bytes) << c.n << " " << c.aligned;
  ASSERT_EQ(Bits(encoded.residual), Bits(expected.residual))
      << c.n << " " << c.aligned;
}

TEST(ThreeLcTest, EncodesTensorsAsTheCpuDoesAtAnyAlignment) {
  for (const Case& c : Cases()) {
    const std::vector<float> values = RandomValues(c.n, 1);
    const std::vector<float> residual = RandomValues(c.n, 2);
    const float s = c.n % 3 == 0 ? 0.4f : c.n % 3 == 1 ? 1.0f : 1.75f;
    ExpectEncodesAsTheCpuDoes(c, values, residual, s, Target::kOwn);
  }
}

TEST(ThreeLcTest, TheNewResidualMayTakeThePlaceOfAnInput) {
  for (const Case& c : Cases()) {
    if (!c.has_residual) continue;
    const std::vector<float> values = RandomValues(c.n, 3);
    const std::vector<float> residual = RandomValues(c.n, 4);
    for (const Target target : {Target::kValues, Target::kResidual}) {
      ExpectEncodesAsTheCpuDoes(c, values, residual, 1.5f, target);
    }
  }
}

TEST(ThreeLcTest, TensorsThatAreNotFiniteGetNoPayloadAndKeepTheResidual) {
  // One of them for each case, as emulated kernels take long; each has all
  // misalignments.
  const float specials[] = {kInfinity, -kInfinity, kNan, 3e38f};
  for (const Case& c : Cases()) {
    if (c.n == 0 || c.n > 50000) continue;
    std::vector<float> values = RandomValues(c.n, 5);
    const std::vector<float> residual = RandomValues(c.n, 6);
    values[c.n / 2] = specials[(c.n / 4 + c.aligned) % 4];
    for (const Target target :
         {Target::kOwn, Target::kValues, Target::kResidual}) {
      if (target == Target::kResidual && !c.has_residual) continue;
      ExpectEncodesAsTheCpuDoes(c, values, residual, 1.9f, target);
    }
  }
}

TEST(ThreeLcTest, TiesAndTinyValuesAreRoundedAsByTheCpu) {
  const std::vector<std::vector<float>> tensors = {
      {1, 0.5f, -0.5f, 0.50000006f, -0.50000006f, 0, -0.0f},
      {kDenormal, -kDenormal, 0, 2 * kDenormal, 3 * kDenormal},
      {0, -0.0f, 0, 0, 0, 0},
      {-0.0f},
      {3.4e38f, -3.4e38f, 1.7e38f, 1.8e38f},
  };
  for (const std::vector<float>& values : tensors) {
    const Case c = {static_cast<int64_t>(values.size()), false, false};
    ExpectEncodesAsTheCpuDoes(c, values, values, 1.0f, Target::kOwn);
  }
}

TEST(ThreeLcTest, EncodesWithTheScaleOfALargerTensor) {
  const int64_t n = 10007;
  const std::vector<float> values = RandomValues(n, 7);
  const std::vector<float> residual = RandomValues(n, 8);
  for (float scale : {10.0f, 1000.0f}) {
    std::vector<uint8_t> payload(kernels::QuarticSize(n));
    std::vector<float> next(n);
    payload.resize(kernels::ThreeLcEncode(values.data(), residual.data(), scale,
                                          n, next.data(), payload.data(),
                                          kernels::SingleThread));
    Device<float> in(values), old(residual), own(n);
    Device<float> device_scale(std::vector<float>{scale});
    Device<uint8_t> out(kernels::QuarticSize(n));
    Device<int64_t> size(1);
    Device<uint8_t> workspace(tf_gc_cuda_three_lc_encode_workspace_size(n));
    ASSERT_EQ(tf_gc_cuda_three_lc_encode(
                  in.data(), old.data(), device_scale.data(), n, own.data(),
                  out.data(), size.data(), workspace.data(), nullptr),
              0);
    EXPECT_EQ(out.Values(size.Value()), payload);
    EXPECT_EQ(Bits(own.Values()), Bits(next));
  }
}

TEST(ThreeLcTest, FindsTheMaximumAtAnyPosition) {
  for (const Case& c : Cases()) {
    std::vector<float> values = RandomValues(c.n, 9);
    const std::vector<float> residual = RandomValues(c.n, 10);
    if (c.n > 0) values[c.n * (c.n % 5) / 5] = -100;
    Device<float> in(values, c.Misalignment(0));
    Device<float> old(residual, c.Misalignment(1));
    Device<float> result(1);
    ASSERT_EQ(
        tf_gc_cuda_max_abs_sum(in.data(), c.has_residual ? old.data() : nullptr,
                               c.n, result.data(), nullptr),
        0);
    ASSERT_EQ(Bits(result.Values()),
              Bits({kernels::MaxAbsSum(
                  values.data(), c.has_residual ? residual.data() : nullptr,
                  c.n, kernels::SingleThread)}))
        << c.n;
  }
}

// ---- Decoding ---------------------------------------------------------------

struct Decoded {
  int64_t used;
  std::vector<float> values;
};

Decoded Decode(const Case& c, const std::vector<uint8_t>& payload, float scale,
               const std::vector<float>* sum) {
  const int64_t size = payload.size();
  Device<uint8_t> in(payload, c.n % 16);
  Device<float> values = sum ? Device<float>(*sum, c.Misalignment(0))
                             : Device<float>(c.n, c.Misalignment(0));
  Device<int64_t> used(1);
  Device<uint8_t> workspace(
      tf_gc_cuda_three_lc_decode_workspace_size(size, c.n));
  const auto decode =
      sum ? tf_gc_cuda_three_lc_decode_add : tf_gc_cuda_three_lc_decode;
  EXPECT_EQ(decode(in.data(), size, scale, c.n, values.data(), used.data(),
                   workspace.data(), nullptr),
            0);
  return {used.Value(), values.Values()};
}

int64_t Validate(const std::vector<uint8_t>& payload, int64_t n) {
  const int64_t size = payload.size();
  Device<uint8_t> in(payload, n % 16);
  Device<int64_t> used(1);
  Device<uint8_t> workspace(tf_gc_cuda_three_lc_decode_workspace_size(size, n));
  EXPECT_EQ(tf_gc_cuda_three_lc_validate(in.data(), size, n, used.data(),
                                         workspace.data(), nullptr),
            0);
  return used.Value();
}

void ExpectDecodesAsTheCpuDoes(const Case& c,
                               const std::vector<uint8_t>& payload,
                               float scale) {
  const int64_t size = payload.size();
  ASSERT_EQ(Validate(payload, c.n),
            kernels::ThreeLcValidate(payload.data(), size, c.n,
                                     kernels::SingleThread))
      << c.n;
  std::vector<float> expected(c.n);
  const int64_t used = kernels::ThreeLcDecode(
      payload.data(), size, scale, c.n, expected.data(), kernels::SingleThread);
  const Decoded decoded = Decode(c, payload, scale, nullptr);
  ASSERT_EQ(decoded.used, used) << c.n;
  if (used >= 0) {
    ASSERT_EQ(Bits(decoded.values), Bits(expected)) << c.n;
  }

  const std::vector<float> old = RandomValues(c.n, 11);
  std::vector<float> sum = old;
  ASSERT_EQ(kernels::ThreeLcDecodeAdd(payload.data(), size, scale, c.n,
                                      sum.data(), kernels::SingleThread),
            used);
  const Decoded added = Decode(c, payload, scale, &old);
  ASSERT_EQ(added.used, used) << c.n;
  if (used >= 0) {
    ASSERT_EQ(Bits(added.values), Bits(sum)) << c.n;
  }
}

std::vector<uint8_t> RandomPayload(int64_t n, double density, uint32_t seed) {
  return kernels::ReferenceZeroRun(
      kernels::ReferenceQuartic(kernels::RandomTernary(n, density, seed)));
}

TEST(ThreeLcTest, DecodesAsTheCpuDoesAtAnyAlignment) {
  for (const Case& c : Cases()) {
    ExpectDecodesAsTheCpuDoes(c, RandomPayload(c.n, 0.5, 12),
                              c.n % 4 ? 1.25f : 0.0f);
    ExpectDecodesAsTheCpuDoes(c, RandomPayload(c.n, 0.01, 13), kDenormal);
  }
}

TEST(ThreeLcTest, BrokenPayloadsAreFoundAsByTheCpu) {
  std::mt19937 generator(13);
  for (const Case& c : Cases()) {
    // Sizes to 100 have all remainders that matter to the encodings.
    if (c.n > 200000 || (c.n > 100 && c.n < 300)) continue;
    std::vector<uint8_t> payload = RandomPayload(c.n, 0.1, 14);
    payload.push_back(7);
    ExpectDecodesAsTheCpuDoes(c, payload, 1);
    payload.resize(generator() % payload.size());
    ExpectDecodesAsTheCpuDoes(c, payload, 1);
    payload = RandomPayload(c.n, 0.1, 15);
    for (int turn = 0; turn < 3 && c.n > 0; ++turn) {
      payload[generator() % payload.size()] = static_cast<uint8_t>(generator());
      ExpectDecodesAsTheCpuDoes(c, payload, 1);
    }
    // Padding, if there is any.
    payload = RandomPayload(c.n, 1, 16);
    for (size_t i = payload.size() - payload.size() % 5; i < payload.size();
         ++i) {
      payload[i] = 242;
    }
    ExpectDecodesAsTheCpuDoes(c, payload, 1);
  }
}

TEST(ThreeLcTest, ValuesThatGetZeroKeepTheirBits) {
  const Case c = {5, true, false};
  const std::vector<float> old = {kNan, -0.0f, kInfinity, kDenormal, -1};
  const Decoded added = Decode(c, {121}, 2, &old);
  EXPECT_EQ(added.used, 1);
  EXPECT_EQ(Bits(added.values), Bits(old));
}

}  // namespace
}  // namespace tf_gc::cuda
