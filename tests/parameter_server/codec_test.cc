#include "ops/parameter_server/codec.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/denormals.h"
#include "tests/kernels/testing.h"
#include "tests/parameter_server/testing.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::Bits;
using kernels::SingleThread;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Codec kPlainCodecs[] = {Codec::kFloat32, Codec::kFloat16,
                                  Codec::kBfloat16, Codec::kThreeLc,
                                  Codec::kInt8};

struct Result {
  Buffer body;
  bool is_finite;
  Floats residual;
};

Result EncodeValues(Codec codec, const Floats& values, const Floats& residual,
                    const kernels::ParallelFor& parallel_for = SingleThread) {
  const int64_t n = values.size();
  Result result = {Buffer(MaxEncodedSize(codec, n)), false, Floats(n, -1)};
  const Encoded encoded =
      Encode(codec, /*multiplier=*/1.5f, values.data(),
             residual.empty() ? nullptr : residual.data(), n,
             result.residual.data(), result.body.data(), parallel_for);
  result.body.resize(encoded.size);
  result.is_finite = encoded.is_finite;
  return result;
}

absl::Status Check(Codec codec, const Buffer& body, int64_t n) {
  return CheckBody(codec, body.data(), body.size(), n, "test", SingleThread);
}

Floats Decode(Codec codec, const Buffer& body, int64_t n,
              const kernels::ParallelFor& parallel_for = SingleThread) {
  ExpectOk(Check(codec, body, n));
  Floats values(n);
  DecodeAdd(codec, body.data(), body.size(), n, values.data(), parallel_for);
  Floats written(n, -1);
  parameter_server::Decode(codec, body.data(), body.size(), n, written.data(),
                           parallel_for);
  const kernels::KeepDenormals keep_denormals;
  for (float& value : written) value += 0.0f;  // 0 + -0 is 0
  EXPECT_EQ(Bits(written), Bits(values));
  return values;
}

TEST(CodecSpecTest, NamesAndFeedbackAreRead) {
  EXPECT_EQ(Spec("float32").codec, Codec::kFloat32);
  EXPECT_EQ(Spec("float16").codec, Codec::kFloat16);
  EXPECT_EQ(Spec("bfloat16").codec, Codec::kBfloat16);
  EXPECT_EQ(Spec("int8").codec, Codec::kInt8);
  EXPECT_EQ(Spec("three_lc").codec, Codec::kThreeLc);
  EXPECT_TRUE(Spec("int8").feedback);
  EXPECT_TRUE(Spec("int8 feedback=1").feedback);
  EXPECT_FALSE(Spec("int8 feedback=0").feedback);
}

TEST(CodecSpecTest, FieldsOfThcAreRead) {
  const CodecSpec spec = Spec(
      "thc bits=2 truncation=2.15 headroom=1.25 seed=-1 table=0,2,3,6 "
      "feedback=0");
  EXPECT_EQ(spec.codec, Codec::kThcIndices);
  EXPECT_FALSE(spec.feedback);
  EXPECT_EQ(spec.thc.table.bits, 2);
  EXPECT_EQ(spec.thc.truncation, 2.15f);
  EXPECT_EQ(spec.thc.headroom, 1.25f);
  EXPECT_EQ(spec.thc.seed, ~uint64_t{0});
  EXPECT_EQ(spec.thc.table.integers, (std::vector<uint16_t>{0, 2, 3, 6}));
  EXPECT_EQ(spec.thc.table.levels,
            (Floats{-1, static_cast<float>(-1 / 3.0), 0, 1}));
  EXPECT_FALSE(spec.thc.is_nearest);
  EXPECT_TRUE(Spec("thc bits=2 truncation=2.15 headroom=1.25 seed=1 "
                   "rounding=nearest table=0,2,3,6")
                  .thc.is_nearest);
}

TEST(CodecSpecTest, FieldsOfThreeLcAreRead) {
  EXPECT_EQ(Spec("three_lc").rows, 0);
  EXPECT_EQ(Spec("three_lc").scale, kernels::ThreeLcScaling::Of::kMax);
  const CodecSpec spec =
      Spec("three_lc scale=mean rows=128 decay=0.75 feedback=0");
  EXPECT_EQ(spec.codec, Codec::kThreeLc);
  EXPECT_EQ(spec.scale, kernels::ThreeLcScaling::Of::kMean);
  EXPECT_EQ(Spec("three_lc scale=unit").scale,
            kernels::ThreeLcScaling::Of::kUnit);
  EXPECT_EQ(spec.rows, 128);
  EXPECT_EQ(spec.decay, 0.75f);
  EXPECT_FALSE(spec.feedback);
}

TEST(CodecSpecTest, ErrorsNameTheField) {
  const struct {
    const char *text, *words;
  } cases[] = {
      {"", "must be float32"},
      {"int9", "codec \"int9\""},
      {"int8 feedbak=0", "feedbak is not a field"},
      {"int8 feedback=2", "feedback must be 0 or 1, got 2"},
      {"int8 bits=4", "bits is not a field"},
      {"three_lc scale=median", "scale must be max, mean or unit, got median"},
      {"int8 scale=mean", "scale is not a field"},
      {"three_lc rows=2", "decay is missing"},
      {"three_lc rows=0 decay=0.5", "rows must be positive, got 0"},
      {"three_lc rows=2 decay=1", "decay must be in [0, 1), got 1"},
      {"three_lc rows=2 decay=0.5 units=2", "units must be 0 or 1, got 2"},
      {"three_lc units=0", "units is not a field"},
      {"three_lc decay=0.5", "decay is not a field"},
      {"int8 rows=2 decay=0.5", "rows is not a field"},
      {"thc", "bits is missing"},
      {"thc bits=6 truncation=1.64 headroom=1 seed=1 table=0,1",
       "bits must be"},
      {"thc bits=2 headroom=1 seed=1 table=0,1,2,3", "truncation is missing"},
      {"thc bits=2 truncation=0 headroom=1 seed=1 table=0,1,2,3",
       "truncation must be positive"},
      {"thc bits=2 truncation=1.64 headroom=0 seed=1 table=0,1,2,3",
       "headroom must be"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=x table=0,1,2,3",
       "seed must be"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2",
       "table must have 2^b"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=1 rounding=up table=0,1,2,3",
       "rounding must be stochastic or nearest, got up"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,2,1,3",
       "table must be"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=1 table=1,2,3,4",
       "table must be"},
      {"thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2,65536",
       "table must be"},
  };
  for (const auto& c : cases) {
    CodecSpec spec;
    ExpectInvalid(ParseCodecSpec(c.text, &spec), c.words);
  }
}

TEST(CodecTest, Int8ByHand) {
  const Result result =
      EncodeValues(Codec::kInt8, {1, -0.5f, 0.25f, 0}, {0, 0, 0.25f, 0});
  EXPECT_EQ(result.body, (Buffer{0, 0, 0x80, 0x3f, 127, 0xc0, 64, 0}));
  const float step = 1 / 127.0f;
  EXPECT_EQ(Decode(Codec::kInt8, result.body, 4),
            (Floats{step * 127, step * -64, step * 64, 0}));
}

TEST(CodecTest, BodiesOfFloatsAreTheirBytes) {
  const Floats values = {1, -2};
  EXPECT_EQ(EncodeValues(Codec::kFloat32, values, {}).body,
            (Buffer{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}));
  EXPECT_EQ(EncodeValues(Codec::kFloat16, values, {}).body,
            (Buffer{0, 0x3c, 0, 0xc0}));
  EXPECT_EQ(EncodeValues(Codec::kBfloat16, values, {}).body,
            (Buffer{0x80, 0x3f, 0, 0xc0}));
}

TEST(CodecTest, BfloatsAreRoundedToNearestAndEven) {
  // The upper 16 bits of 1 + 1/256, and of 1 + 3/256, are one of two.
  EXPECT_EQ(
      EncodeValues(Codec::kBfloat16, {1 + 1 / 256.0f, 1 + 3 / 256.0f}, {}).body,
      (Buffer{0x80, 0x3f, 0x82, 0x3f}));
}

TEST(CodecTest, DeliveredAndResidualAreTheInput) {
  for (const Codec codec : kPlainCodecs) {
    for (const int64_t n : {0, 1, 7, 4096, 10001}) {
      const Floats values = Gaussian(n, 1), residual = Gaussian(n, 2);
      const Floats input = Sum(values, residual);
      const Result result = EncodeValues(codec, values, residual);
      EXPECT_TRUE(result.is_finite);
      const Floats delivered = Decode(codec, result.body, n);
      Floats left = input;
      for (int64_t i = 0; i < n; ++i) left[i] -= delivered[i];
      EXPECT_EQ(result.residual, left);
    }
  }
}

TEST(CodecTest, ResidualMayBeUpdatedInPlace) {
  for (const Codec codec : kPlainCodecs) {
    const Floats values = Gaussian(5000, 1), residual = Gaussian(5000, 2);
    const Result expected = EncodeValues(codec, values, residual);
    Floats in_place = residual;
    Buffer body(MaxEncodedSize(codec, 5000));
    Encode(codec, 1.5f, values.data(), in_place.data(), 5000, in_place.data(),
           body.data(), SingleThread);
    EXPECT_EQ(in_place, expected.residual);
  }
}

TEST(CodecTest, AnyNumberOfThreadsGivesTheSameBits) {
  const int64_t n = 30000;
  const Floats values = Gaussian(n, 1), residual = Gaussian(n, 2);
  for (const Codec codec : kPlainCodecs) {
    const Result expected = EncodeValues(codec, values, residual);
    const Floats decoded = Decode(codec, expected.body, n);
    for (const auto& parallel_for :
         {kernels::Threads(3), kernels::CutAt({1, 2, 2, 5})}) {
      const Result result = EncodeValues(codec, values, residual, parallel_for);
      EXPECT_EQ(result.body, expected.body);
      EXPECT_EQ(result.residual, expected.residual);
      EXPECT_EQ(Decode(codec, expected.body, n, parallel_for), decoded);
    }
  }
}

TEST(CodecTest, WhatIsNotFiniteLeavesTheResidual) {
  const Floats residual = {0.5f, 0.25f, 0};
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const Codec codec : kPlainCodecs) {
      const Result result = EncodeValues(codec, {1, bad, 2}, residual);
      EXPECT_FALSE(result.is_finite);
      EXPECT_EQ(result.residual, residual);
      EXPECT_FALSE(std::isfinite(Decode(codec, result.body, 3)[1]));
    }
  }
}

TEST(CodecTest, WhatHasAScaleBecomesNanEverywhere) {
  for (const Codec codec : {Codec::kThreeLc, Codec::kInt8}) {
    const Result result = EncodeValues(codec, {1, kInf, 2}, {});
    EXPECT_EQ(result.body.size(), 4);
    for (const float value : Decode(codec, result.body, 3)) {
      EXPECT_TRUE(std::isnan(value));
    }
    EXPECT_EQ(result.residual, Floats(3, 0));
  }
}

TEST(CodecTest, OverflowOfFloat16CountsAsNotFinite) {
  EXPECT_TRUE(EncodeValues(Codec::kFloat16, {65504, 1}, {}).is_finite);
  const Result result = EncodeValues(Codec::kFloat16, {65520, 1}, {2, 3});
  EXPECT_FALSE(result.is_finite);
  EXPECT_EQ(result.residual, (Floats{2, 3}));
  EXPECT_EQ(Decode(Codec::kFloat16, result.body, 2), (Floats{kInf, 4}));
}

TEST(CodecTest, DenormalNumbersCountInAnyMode) {
  const Floats values = {1e-40f, -3e-41f, 0};
  for (const Codec codec : kPlainCodecs) {
    const Result expected = EncodeValues(codec, values, {});
    const Floats decoded = Decode(codec, expected.body, 3);
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK);
    const Result result = EncodeValues(codec, values, {});
    const Floats flushed = Decode(codec, expected.body, 3);
    _mm_setcsr(mode);
    EXPECT_EQ(result.body, expected.body);
    EXPECT_EQ(kernels::Bits(result.residual), kernels::Bits(expected.residual));
    EXPECT_EQ(kernels::Bits(flushed), kernels::Bits(decoded));
  }
}

TEST(CodecTest, DamagedBodiesAreDataLossOrValues) {
  const int64_t n = 37;
  for (const Codec codec : kPlainCodecs) {
    const Buffer body = EncodeValues(codec, Gaussian(n, 3), {}).body;
    ExpectDataLoss(Check(codec, Buffer(), n), "test message");
    Buffer longer = body;
    longer.push_back(0);
    ExpectDataLoss(Check(codec, longer, n), "test message");
    ForEachDamage(body, [&](const Buffer& damaged) {
      const absl::Status status = Check(codec, damaged, n);
      if (damaged.size() < body.size()) {
        ExpectDataLoss(status);
      } else if (status.ok()) {
        Decode(codec, damaged, n);
      } else {
        ExpectDataLoss(status);
      }
    });
  }
}

TEST(CodecTest, ScalesOutOfRangeAreDataLoss) {
  for (const float scale : {-1.0f, kInf}) {
    Buffer body(6);
    std::memcpy(body.data(), &scale, sizeof(scale));
    ExpectDataLoss(Check(Codec::kInt8, body, 2), "the scale is");
    ExpectDataLoss(Check(Codec::kThreeLc, body, 2), "scale");
  }
  // NaN has nothing behind it.
  Buffer body(6);
  std::memcpy(body.data(), &kNan, sizeof(kNan));
  ExpectDataLoss(Check(Codec::kInt8, body, 2));
}

}  // namespace
}  // namespace tf_gc::parameter_server
