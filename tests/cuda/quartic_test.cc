#include "ops/cuda/quartic.h"

#include "ops/kernels/quartic.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::QuarticSize;
using kernels::RandomQuartic;
using kernels::RandomTernary;

int64_t FindNonTernary(const std::vector<int8_t>& ternary, int misalignment) {
  Device<int8_t> in(ternary, misalignment);
  Device<int64_t> first(1);
  EXPECT_EQ(tf_gc_cuda_find_non_ternary(in.data(), ternary.size(), first.data(),
                                        nullptr),
            0);
  return first.Value();
}

int64_t FindNonQuartic(const std::vector<uint8_t>& quartic, int64_t n,
                       int misalignment) {
  Device<uint8_t> in(quartic, misalignment);
  Device<int64_t> first(1);
  EXPECT_EQ(tf_gc_cuda_find_non_quartic(in.data(), n, first.data(), nullptr),
            0);
  return first.Value();
}

TEST(QuarticTest, EncodesAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<int8_t> ternary = RandomTernary(n, 0.5, 1);
    std::vector<uint8_t> expected(QuarticSize(n));
    kernels::QuarticEncode(ternary.data(), n, expected.data(),
                           kernels::SingleThread);
    Device<int8_t> in(ternary, n % 17);
    Device<uint8_t> quartic(QuarticSize(n), n % 13);
    ASSERT_EQ(tf_gc_cuda_quartic_encode(in.data(), n, quartic.data(), nullptr),
              0);
    ASSERT_EQ(quartic.Values(), expected) << n;
  }
}

TEST(QuarticTest, DecodesAsTheCpuDoesAtAnyAlignment) {
  for (const int64_t n : Sizes()) {
    const std::vector<int8_t> ternary = RandomTernary(n, 0.5, 2);
    std::vector<uint8_t> quartic(QuarticSize(n));
    kernels::QuarticEncode(ternary.data(), n, quartic.data(),
                           kernels::SingleThread);
    Device<uint8_t> in(quartic, n % 17);
    Device<int8_t> out(n, n % 13);
    ASSERT_EQ(tf_gc_cuda_quartic_decode(in.data(), n, out.data(), nullptr), 0);
    ASSERT_EQ(out.Values(), ternary) << n;
  }
}

TEST(QuarticTest, DecodingAnyBytesStaysInside) {
  for (const int64_t n : {1, 13, 300, 10241}) {
    Device<uint8_t> in(std::vector<uint8_t>(QuarticSize(n), 255), n % 17);
    Device<int8_t> out(n, n % 13);
    ASSERT_EQ(tf_gc_cuda_quartic_decode(in.data(), n, out.data(), nullptr), 0);
  }
}

TEST(QuarticTest, FindsTheFirstValueThatIsNotTernary) {
  for (const int64_t n : Sizes()) {
    std::vector<int8_t> ternary = RandomTernary(n, 0.5, 3);
    const int misalignment = n % 17;
    ASSERT_EQ(FindNonTernary(ternary, misalignment), -1) << n;
    if (n == 0) continue;
    const int8_t wrong[] = {2, -2, 127, -128};
    ternary[n - 1] = wrong[n % 4];
    ASSERT_EQ(FindNonTernary(ternary, misalignment), n - 1) << n;
    ternary[n / 2] = wrong[n / 4 % 4];
    ASSERT_EQ(FindNonTernary(ternary, misalignment), n / 2) << n;
    ternary[n / 3] = wrong[n / 16 % 4];
    ASSERT_EQ(FindNonTernary(ternary, misalignment), n / 3) << n;
  }
}

TEST(QuarticTest, FindsTheFirstByteThatEncodingCannotGive) {
  for (const int64_t n : Sizes()) {
    // Random digits, of padding too.
    std::vector<uint8_t> quartic = RandomQuartic(QuarticSize(n), 0.5, 4);
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_EQ(
          FindNonQuartic(quartic, n, n % 17),
          kernels::FindNonQuartic(quartic.data(), n, kernels::SingleThread))
          << n;
      if (n > 0) quartic[n % 7 * quartic.size() / 7 / (turn + 1)] = 243 + turn;
    }
  }
}

}  // namespace
}  // namespace tf_gc::cuda
