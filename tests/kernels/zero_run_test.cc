#include "ops/kernels/zero_run.h"

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class ZeroRunTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(ZeroRunTest);

using Bytes = std::vector<uint8_t>;

// Checks that nothing but the buffer is written.
Bytes Encode(const Bytes& quartic, int misalignment = 0) {
  const int64_t m = quartic.size();
  Guarded<uint8_t> in(quartic, misalignment);
  Guarded<uint8_t> encoded(m, misalignment);
  const int64_t size =
      ZeroRunEncode(in.data(), m, encoded.data(), SingleThread);
  EXPECT_TRUE(encoded.GuardsAreIntact()) << m;
  EXPECT_LE(size, m);
  return encoded.Values(size);
}

// Decodes m bytes, and checks that nothing else is written and that no more
// than the encoding is read: it lies right before the end of an allocation.
int64_t Decode(const Bytes& encoded, int64_t m, Bytes* quartic) {
  Bytes copy(encoded);
  copy.shrink_to_fit();
  Guarded<uint8_t> out(m, /*misalignment=*/m % 3);
  const int64_t used =
      ZeroRunDecode(copy.data(), copy.size(), m, out.data(), SingleThread);
  EXPECT_TRUE(out.GuardsAreIntact()) << m;
  *quartic = out.Values();
  return used;
}

void ExpectRoundTrip(const Bytes& quartic) {
  const Bytes encoded = Encode(quartic, quartic.size() % 7);
  ASSERT_EQ(encoded, ReferenceZeroRun(quartic)) << quartic.size();
  const int64_t m = quartic.size();
  ASSERT_EQ(ZeroRunDecodedSize(encoded.data(), encoded.size(), SingleThread),
            m);
  Bytes decoded;
  ASSERT_EQ(Decode(encoded, m, &decoded), static_cast<int64_t>(encoded.size()));
  ASSERT_EQ(decoded, quartic);
}

TEST_P(ZeroRunTest, RunsByHand) {
  const struct {
    int run;
    Bytes codes;
  } cases[] = {
      {0, {}},
      {1, {121}},
      {2, {243}},
      {3, {244}},
      {13, {254}},
      {14, {255}},
      {15, {255, 121}},
      {16, {255, 243}},
      {27, {255, 254}},
      {28, {255, 255}},
      {29, {255, 255, 121}},
      {70, {255, 255, 255, 255, 255}},
  };
  for (const auto& test : cases) {
    // Before, between and after other bytes, and alone.
    for (const bool before : {false, true}) {
      for (const bool after : {false, true}) {
        Bytes quartic, expected;
        if (before) quartic.push_back(7), expected.push_back(7);
        quartic.insert(quartic.end(), test.run, 121);
        expected.insert(expected.end(), test.codes.begin(), test.codes.end());
        if (after) quartic.push_back(242), expected.push_back(242);
        EXPECT_EQ(Encode(quartic), expected) << test.run;
        ExpectRoundTrip(quartic);
      }
    }
  }
}

TEST_P(ZeroRunTest, RunsAtEveryPositionOfAGroup) {
  for (int position = 0; position < 130; ++position) {
    for (int run = 0; run < 100; ++run) {
      Bytes quartic(position, 5);
      quartic.insert(quartic.end(), run, 121);
      quartic.insert(quartic.end(), 70, 9);
      ExpectRoundTrip(quartic);
    }
  }
}

TEST_P(ZeroRunTest, RandomBytesOfAllDensitiesAndSizes) {
  for (const double zeros : {0.0, 0.1, 0.5, 0.76, 0.95, 0.999, 1.0}) {
    for (int64_t m = 0; m <= 200; ++m) {
      ExpectRoundTrip(RandomQuartic(m, zeros, m));
    }
    for (const int64_t m : {2047, 2048, 2049, 4096, 70001}) {
      ExpectRoundTrip(RandomQuartic(m, zeros, m));
    }
  }
}

TEST_P(ZeroRunTest, DecodingStopsAtItsLastByte) {
  const Bytes encoded = {7, 243, 9, 1, 2, 3};
  Bytes decoded;
  EXPECT_EQ(Decode(encoded, 4, &decoded), 3);
  EXPECT_EQ(decoded, (Bytes{7, 121, 121, 9}));
  EXPECT_EQ(Decode(encoded, 0, &decoded), 0);
}

TEST_P(ZeroRunTest, TruncatedEncodingsAreRefused) {
  for (const double zeros : {0.0, 0.5, 0.9}) {
    const Bytes quartic = RandomQuartic(5000, zeros, 1);
    const Bytes encoded = ReferenceZeroRun(quartic);
    for (size_t size = 0; size < encoded.size(); size += 1 + size / 20) {
      Bytes decoded;
      EXPECT_EQ(Decode(Bytes(encoded.begin(), encoded.begin() + size),
                       quartic.size(), &decoded),
                -1);
    }
  }
}

TEST_P(ZeroRunTest, ARunBeyondTheLastByteIsRefused) {
  for (int64_t m = 1; m < 300; ++m) {
    Bytes encoded(m - 1, 3);
    encoded.push_back(243);
    Bytes decoded;
    EXPECT_EQ(Decode(encoded, m, &decoded), -1) << m;
    EXPECT_EQ(Decode(encoded, m + 1, &decoded), m) << m;
  }
}

TEST_P(ZeroRunTest, GarbageIsDecodedOrRefusedWithinBounds) {
  std::mt19937 generator(1);
  for (int i = 0; i < 3000; ++i) {
    Bytes encoded(generator() % 300);
    const int below = 1 + generator() % 256;
    for (uint8_t& byte : encoded) byte = 255 - generator() % below;
    const int64_t decoded_size =
        ZeroRunDecodedSize(encoded.data(), encoded.size(), SingleThread);
    Bytes decoded;
    EXPECT_EQ(Decode(encoded, decoded_size, &decoded),
              static_cast<int64_t>(encoded.size()));
    EXPECT_EQ(Decode(encoded, decoded_size + 1, &decoded), -1);
    const int64_t m = generator() % (decoded_size + 1);
    EXPECT_LE(Decode(encoded, m, &decoded),
              static_cast<int64_t>(encoded.size()));
  }
}

}  // namespace
}  // namespace tf_gc::kernels
