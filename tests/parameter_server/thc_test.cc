#include "ops/parameter_server/thc.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/testing.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One variable's quantisation, with all that it needs.
class Coder {
 public:
  Coder(const CodecSpec& spec, int64_t n, const Floats& scales)
      : spec_(spec.thc),
        n_(n),
        quantizer_(&spec_, /*id=*/3, n, {/*version=*/5, ToTensor(scales)}) {}

  Buffer Quantize(const Floats& values, uint64_t push,
                  const kernels::ParallelFor& parallel_for = SingleThread) {
    Buffer indices(ThcIndicesSize(spec_, n_));
    quantizer_.Quantize(values.data(), push, indices.data(), parallel_for);
    return indices;
  }

  Floats Decode(const std::vector<Buffer>& pushes,
                const kernels::ParallelFor& parallel_for = SingleThread) {
    std::vector<uint16_t> sums(ThcBlocks(n_).padded());
    for (const Buffer& push : pushes) {
      quantizer_.Add(push.data(), sums.data(), parallel_for);
    }
    Floats values(n_);
    quantizer_.DecodeAdd(sums.data(), pushes.size(), values.data(),
                         parallel_for);
    return values;
  }

 private:
  const ThcSpec spec_;
  const int64_t n_;
  const ThcQuantizer quantizer_;
};

Floats NormsOf(const Floats& values) {
  Floats norms(ThcBlocks(values.size()).count);
  EXPECT_TRUE(
      ThcNorms(values.data(), values.size(), norms.data(), SingleThread));
  return norms;
}

TEST(ThcTest, NormsAreThoseOfBlocks) {
  Floats values(130, 0);
  values[0] = 3;
  values[63] = 4;
  values[129] = -2;
  EXPECT_EQ(NormsOf(values), (Floats{5, 0, 2}));
  // Squares would overflow float32.
  EXPECT_EQ(NormsOf({3e20f, 4e20f}), (Floats{5e20f}));
  Floats norms(1);
  const Floats bad = {1, kNan};
  EXPECT_FALSE(ThcNorms(bad.data(), 2, norms.data(), SingleThread));
}

TEST(ThcTest, MeanOfManyPushesIsTheInput) {
  const int64_t n = 200;
  const Floats values = Gaussian(n, 1);
  Floats scales = NormsOf(values);
  for (float& scale : scales) scale *= 1.5f;  // nothing is cut off
  Coder coder(Spec(kThc), n, scales);
  const int64_t pushes = 4000;
  std::vector<Buffer> all;
  for (int64_t i = 0; i < pushes; ++i) all.push_back(coder.Quantize(values, i));
  Floats mean = coder.Decode(all);
  for (float& value : mean) value /= pushes;
  // A value's deviation is at most the distance of two levels, about 2.
  ExpectNear(mean, values, 6 * 2 / std::sqrt(static_cast<float>(pushes)));
}

TEST(ThcTest, RoundingToTheNearestLevelIsTheSameInEachPush) {
  const Floats values = Gaussian(200, 1);
  Coder coder(Spec(std::string(kThc) + " rounding=nearest"), 200,
              NormsOf(values));
  EXPECT_EQ(coder.Quantize(values, 1), coder.Quantize(values, 2));
}

TEST(ThcTest, SumOfPushesIsTheSumOfWhatTheyDeliver) {
  const int64_t n = 1000;
  const Floats first = Gaussian(n, 1), second = Gaussian(n, 2);
  Coder coder(Spec("thc bits=4 truncation=2.15 headroom=1 seed=1 "
                   "table=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"),
              n, NormsOf(first));
  const Buffer a = coder.Quantize(first, 1), b = coder.Quantize(second, 2);
  EXPECT_NE(a, b);
  ExpectNear(coder.Decode({a, b}), Sum(coder.Decode({a}), coder.Decode({b})),
             1e-4);
}

TEST(ThcTest, BlocksWithoutAScaleAreZeros) {
  Coder coder(Spec(kThc), 128 + 64, {10, 0, 10});
  const Floats decoded = coder.Decode({coder.Quantize(Gaussian(192, 1), 1)});
  for (int64_t i = 64; i < 128; ++i) EXPECT_EQ(decoded[i], 0);
  const auto is_not_zero = [](float value) { return value != 0; };
  EXPECT_TRUE(std::any_of(&decoded[0], &decoded[64], is_not_zero));
  EXPECT_TRUE(std::any_of(&decoded[128], &decoded[191], is_not_zero));
}

TEST(ThcTest, AnyNumberOfThreadsGivesTheSameBits) {
  const int64_t n = 70000;
  const Floats values = Gaussian(n, 1);
  Coder coder(Spec(kThc), n, NormsOf(values));
  const Buffer push = coder.Quantize(values, 1);
  const Floats decoded = coder.Decode({push});
  for (const auto& parallel_for :
       {kernels::Threads(3), kernels::CutAt({1, 3})}) {
    EXPECT_EQ(coder.Quantize(values, 1, parallel_for), push);
    EXPECT_EQ(coder.Decode({push}, parallel_for), decoded);
  }
}

TEST(ThcTest, SeedsDifferByVariableVersionAndPush) {
  const ThcSpec spec = Spec(kThc).thc;
  const kernels::Seed seed = ThcSigns(spec, 1, 1);
  EXPECT_NE(ThcSigns(spec, 2, 1).key, seed.key);
  EXPECT_NE(ThcSigns(spec, 1, 2).stream, seed.stream);
  EXPECT_NE(ThcRounding(seed, 1).key, ThcRounding(seed, 2).key);
  EXPECT_NE(ThcRounding(seed, 0).key, seed.key);
}

TEST(ThcTest, BodiesOfAWrongSizeOrNormAreDataLoss) {
  const ThcSpec spec = Spec(kThc).thc;
  const int64_t n = 100;  // two blocks of 64: 8 bytes of norms, 32 of indices
  Buffer body(40);
  ExpectOk(CheckThcPush(spec, body.data(), body.size(), n, "test"));
  EXPECT_TRUE(HasThcNorms(body.data(), body.size()));
  for (const int64_t size : {0, 4, 8, 39}) {
    ExpectDataLoss(CheckThcPush(spec, body.data(), size, n, "test"),
                   "test message");
  }
  for (const float norm : {-1.0f, kNan, HUGE_VALF}) {
    Buffer damaged = body;
    std::memcpy(damaged.data() + 4, &norm, sizeof(norm));
    ExpectDataLoss(
        CheckThcPush(spec, damaged.data(), damaged.size(), n, "test"),
        "the norm of block 1");
  }
  Buffer nan(4);
  std::memcpy(nan.data(), &kNan, sizeof(kNan));
  ExpectOk(CheckThcPush(spec, nan.data(), nan.size(), n, "test"));
  EXPECT_FALSE(HasThcNorms(nan.data(), nan.size()));
}

TEST(ThcTest, ScalesComeBack) {
  const ThcScales scales = {7, ToTensor({0, 2.5f})};
  const tensorflow::Tensor tensor = EncodeThcScales(scales);
  Buffer body(tensor.flat<uint8_t>().data(),
              tensor.flat<uint8_t>().data() + tensor.NumElements());
  const auto check = [&] {
    return CheckThcScales(body.data(), body.size(), /*n=*/100, "test");
  };
  ExpectOk(check());
  const ThcScales read = DecodeThcScales(body.data(), body.size());
  EXPECT_EQ(read.version, 7);
  EXPECT_EQ(ToFloats(read.values), (Floats{0, 2.5f}));
  body[15] = 0xc0;  // -2.5
  ExpectDataLoss(check(), "the norm of block 1");
  body[15] = 0x40;
  body[0] = 0;
  ExpectDataLoss(check(), "the version of the scales is 0");
  body.resize(15);
  ExpectDataLoss(check(), "15 bytes, expected 16");
}

}  // namespace
}  // namespace tf_gc::parameter_server
