#include "ops/kernels/quartic.h"

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class QuarticTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(QuarticTest);

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 200; ++n) sizes.push_back(n);
  for (int64_t n : {319, 320, 321, 1000, 5119, 5121, 65536, 100003}) {
    sizes.push_back(n);
  }
  return sizes;
}

TEST_P(QuarticTest, DigitsComeFromFivePartitions) {
  // Partitions (1, -1), (0, 0), (-1, 1), (1, 1), (0, padding).
  const int8_t ternary[9] = {1, -1, 0, 0, -1, 1, 1, 1, 0};
  uint8_t quartic[2];
  QuarticEncode(ternary, 9, quartic, SingleThread);
  EXPECT_EQ(quartic[0], 2 * 81 + 1 * 27 + 0 * 9 + 2 * 3 + 1);
  EXPECT_EQ(quartic[1], 0 * 81 + 1 * 27 + 2 * 9 + 2 * 3 + 0);
}

TEST_P(QuarticTest, FiveZerosAre121) {
  const int8_t ternary[5] = {};
  uint8_t quartic = 0;
  QuarticEncode(ternary, 5, &quartic, SingleThread);
  EXPECT_EQ(quartic, kQuarticZero);
}

TEST_P(QuarticTest, EncodingAgreesWithTheReferenceAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<int8_t> ternary = RandomTernary(n, 0.5, 1);
    Guarded<int8_t> in(ternary, /*misalignment=*/n % 7);
    Guarded<uint8_t> quartic(QuarticSize(n), /*misalignment=*/n % 5);
    QuarticEncode(in.data(), n, quartic.data(), SingleThread);
    ASSERT_EQ(quartic.Values(), ReferenceQuartic(ternary)) << n;
    ASSERT_TRUE(quartic.GuardsAreIntact()) << n;
  }
}

TEST_P(QuarticTest, DecodingInvertsEncodingAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<int8_t> ternary = RandomTernary(n, 0.5, 2);
    Guarded<uint8_t> quartic(ReferenceQuartic(ternary), n % 5);
    ASSERT_EQ(FindNonQuartic(quartic.data(), n, SingleThread), -1) << n;
    Guarded<int8_t> out(n, /*misalignment=*/n % 7);
    QuarticDecode(quartic.data(), n, out.data(), SingleThread);
    ASSERT_EQ(out.Values(), ternary) << n;
    ASSERT_TRUE(out.GuardsAreIntact()) << n;
  }
}

TEST_P(QuarticTest, AllBytesDecodeToTheirDigits) {
  for (int byte = 0; byte < kQuarticValues; ++byte) {
    const uint8_t quartic = static_cast<uint8_t>(byte);
    int8_t ternary[5];
    QuarticDecode(&quartic, 5, ternary, SingleThread);
    int value = 0;
    for (const int8_t digit : ternary) {
      ASSERT_GE(digit, -1);
      ASSERT_LE(digit, 1);
      value = 3 * value + digit + 1;
    }
    EXPECT_EQ(value, byte);
  }
}

TEST_P(QuarticTest, FindsTheFirstValueThatIsNotTernary) {
  for (const int64_t n : {1, 64, 200, 3000}) {
    std::vector<int8_t> ternary = RandomTernary(n, 0.5, 3);
    EXPECT_EQ(FindNonTernary(ternary.data(), n, SingleThread), -1);
    ternary[n - 1] = 2;
    EXPECT_EQ(FindNonTernary(ternary.data(), n, SingleThread), n - 1);
    ternary[n / 2] = -2;
    EXPECT_EQ(FindNonTernary(ternary.data(), n, SingleThread), n / 2);
    ternary[n / 2] = -128;
    EXPECT_EQ(FindNonTernary(ternary.data(), n, SingleThread), n / 2);
    ternary[n / 3] = 127;
    EXPECT_EQ(FindNonTernary(ternary.data(), n, SingleThread), n / 3);
  }
  EXPECT_EQ(FindNonTernary(nullptr, 0, SingleThread), -1);
}

TEST_P(QuarticTest, FindsTheFirstByteAbove242) {
  std::vector<uint8_t> quartic = RandomQuartic(3000, 0.5, 4);
  EXPECT_EQ(FindNonQuartic(quartic.data(), 15000, SingleThread), -1);
  quartic[2999] = 243;
  EXPECT_EQ(FindNonQuartic(quartic.data(), 15000, SingleThread), 2999);
  quartic[1024] = 255;
  EXPECT_EQ(FindNonQuartic(quartic.data(), 15000, SingleThread), 1024);
  EXPECT_EQ(FindNonQuartic(nullptr, 0, SingleThread), -1);
}

TEST_P(QuarticTest, FindsPaddingOtherThanZero) {
  // Of 13 values, partition p4 has the last two of three digits padded.
  uint8_t quartic[3] = {242, 240, 240};
  EXPECT_EQ(FindNonQuartic(quartic, 13, SingleThread), -1);
  quartic[2] = 241;
  EXPECT_EQ(FindNonQuartic(quartic, 13, SingleThread), 2);
  quartic[1] = 242;
  EXPECT_EQ(FindNonQuartic(quartic, 13, SingleThread), 1);
  quartic[0] = 243;
  EXPECT_EQ(FindNonQuartic(quartic, 13, SingleThread), 0);
  // Of one value, four partitions are padding.
  for (const uint8_t byte : {0, 81, 162}) {
    EXPECT_EQ(FindNonQuartic(&byte, 1, SingleThread), -1);
  }
  for (const uint8_t byte : {1, 3, 9, 27, 121, 242}) {
    EXPECT_EQ(FindNonQuartic(&byte, 1, SingleThread), 0);
  }
}

}  // namespace
}  // namespace tf_gc::kernels
