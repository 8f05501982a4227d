#include "ops/cuda/zero_run.h"

#include "ops/kernels/zero_run.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::RandomQuartic;
using kernels::ReferenceZeroRun;

std::vector<uint8_t> Encode(const std::vector<uint8_t>& quartic,
                            int misalignment) {
  const int64_t m = quartic.size();
  Device<uint8_t> in(quartic, misalignment);
  Device<uint8_t> encoded(m, (misalignment + 5) % 16);
  Device<int64_t> size(1);
  Device<uint8_t> workspace(tf_gc_cuda_zero_run_encode_workspace_size(m));
  EXPECT_EQ(tf_gc_cuda_zero_run_encode(in.data(), m, encoded.data(),
                                       size.data(), workspace.data(), nullptr),
            0);
  return encoded.Values(size.Value());
}

// What decoding returns, and the bytes that it gives.
struct Decoded {
  int64_t used;
  std::vector<uint8_t> quartic;
};

Decoded Decode(const std::vector<uint8_t>& encoded, int64_t m,
               int misalignment) {
  const int64_t size = encoded.size();
  Device<uint8_t> in(encoded, misalignment);
  Device<uint8_t> quartic(m, (misalignment + 5) % 16);
  Device<int64_t> used(1);
  Device<uint8_t> workspace(tf_gc_cuda_zero_run_decode_workspace_size(size, m));
  EXPECT_EQ(tf_gc_cuda_zero_run_decode(in.data(), size, m, quartic.data(),
                                       used.data(), workspace.data(), nullptr),
            0);
  return {used.Value(), quartic.Values()};
}

void ExpectDecodesAsTheCpuDoes(const std::vector<uint8_t>& encoded, int64_t m) {
  std::vector<uint8_t> quartic(m);
  const int64_t used = kernels::ZeroRunDecode(
      encoded.data(), encoded.size(), m, quartic.data(), kernels::SingleThread);
  const Decoded decoded = Decode(encoded, m, m % 16);
  ASSERT_EQ(decoded.used, used) << m;
  if (used >= 0) {
    ASSERT_EQ(decoded.quartic, quartic) << m;
  } else {
    ASSERT_EQ(decoded.quartic, std::vector<uint8_t>(m, 0xa5)) << m;
  }
}

TEST(ZeroRunTest, EncodesAndDecodesAsTheCpuDoesAtAnyAlignment) {
  for (const double zeros : {0.0, 0.5, 0.9, 0.99, 1.0}) {
    for (const int64_t m : Sizes()) {
      if (m > 100000 && zeros != 0.9) continue;  // many tiles, once
      const std::vector<uint8_t> quartic = RandomQuartic(m, zeros, m);
      const std::vector<uint8_t> encoded = Encode(quartic, m % 16);
      ASSERT_EQ(encoded, ReferenceZeroRun(quartic)) << m;
      const Decoded decoded = Decode(encoded, m, m % 16);
      ASSERT_EQ(decoded.used, static_cast<int64_t>(encoded.size())) << m;
      ASSERT_EQ(decoded.quartic, quartic) << m;
    }
  }
}

TEST(ZeroRunTest, RunsAreCutFromTheirBeginningAcrossTiles) {
  for (const int64_t first : {0, 1, 5, 2040, 2047, 2048, 2049, 4095, 4096}) {
    for (const int64_t run :
         {1, 2, 13, 14, 15, 28, 29, 2047, 2048, 2049, 6000, 6143, 8192}) {
      std::vector<uint8_t> quartic(first + run + 3, 7);
      std::fill_n(quartic.begin() + first, run, 121);
      const std::vector<uint8_t> encoded = Encode(quartic, 0);
      ASSERT_EQ(encoded, ReferenceZeroRun(quartic)) << first << " " << run;
      ASSERT_EQ(Decode(encoded, quartic.size(), 0).quartic, quartic);
    }
  }
}

TEST(ZeroRunTest, AnyBytesAreDecodedAsByTheCpu) {
  std::mt19937 generator(1);
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<uint8_t> encoded(generator() % (turn % 10 == 0 ? 20000 : 100));
    for (uint8_t& byte : encoded) {
      byte =
          static_cast<uint8_t>(turn % 2 ? generator() : 240 + generator() % 16);
    }
    const int64_t total = kernels::ZeroRunDecodedSize(
        encoded.data(), encoded.size(), kernels::SingleThread);
    for (const int64_t m :
         {total, total - 1, total + 1, total / 2, total - 14, int64_t{0}}) {
      if (m >= 0) ExpectDecodesAsTheCpuDoes(encoded, m);
    }
  }
}

TEST(ZeroRunTest, DecodedSizeIsThatOfTheCpu) {
  for (const int64_t size : Sizes()) {
    std::mt19937 generator(static_cast<uint32_t>(size));
    std::vector<uint8_t> encoded(size);
    for (uint8_t& byte : encoded) byte = static_cast<uint8_t>(generator());
    Device<uint8_t> in(encoded, size % 16);
    Device<int64_t> total(1);
    ASSERT_EQ(tf_gc_cuda_zero_run_decoded_size(in.data(), size, total.data(),
                                               nullptr),
              0);
    ASSERT_EQ(total.Value(), kernels::ZeroRunDecodedSize(
                                 encoded.data(), size, kernels::SingleThread));
  }
}

}  // namespace
}  // namespace tf_gc::cuda
