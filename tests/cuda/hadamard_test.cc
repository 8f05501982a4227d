#include "ops/cuda/hadamard.h"

#include <cmath>
#include <limits>

#include "ops/kernels/hadamard.h"
#include "ops/kernels/parallel.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::Seed;

constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// With one bit pattern for all NaN.
std::vector<uint32_t> ComparableBits(std::vector<float> values) {
  for (float& value : values) {
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  }
  return kernels::Bits(values);
}

enum Transform { kPlain, kRandomized, kInverse };

std::vector<float> OnTheCpu(Transform transform,
                            const std::vector<float>& values, int64_t rows,
                            int log2_size) {
  const int64_t size = int64_t{1} << log2_size;
  std::vector<float> transformed(values.size());
  const float* const in = values.data();
  float* const out = transformed.data();
  switch (transform) {
    case kPlain:
      kernels::Hadamard(in, rows, size, out, kernels::SingleThread);
      break;
    case kRandomized:
      kernels::RandomizedHadamard(in, rows, size, kSeed, out,
                                  kernels::SingleThread);
      break;
    case kInverse:
      kernels::InverseRandomizedHadamard(in, rows, size, kSeed, out,
                                         kernels::SingleThread);
      break;
  }
  return transformed;
}

int Run(Transform transform, const float* in, int64_t rows, int log2_size,
        float* out) {
  const int64_t size = int64_t{1} << log2_size;
  switch (transform) {
    case kPlain:
      return tf_gc_cuda_hadamard(in, rows, size, out, nullptr);
    case kRandomized:
      return tf_gc_cuda_randomized_hadamard(in, rows, size, kSeed.key,
                                            kSeed.stream, out, nullptr);
    case kInverse:
      return tf_gc_cuda_inverse_randomized_hadamard(in, rows, size, kSeed.key,
                                                    kSeed.stream, out, nullptr);
  }
  return -1;
}

// From one array to another, and in place.
void ExpectTheSame(const std::vector<float>& values, int64_t rows,
                   int log2_size, int misalignment,
                   const std::vector<Transform>& transforms = {
                       kPlain, kRandomized, kInverse}) {
  for (const Transform transform : transforms) {
    SCOPED_TRACE(testing::Message() << "transform " << transform << ", " << rows
                                    << " rows of 2^" << log2_size);
    const std::vector<uint32_t> expected =
        ComparableBits(OnTheCpu(transform, values, rows, log2_size));
    Device<float> in(values, misalignment);
    Device<float> out(static_cast<int64_t>(values.size()),
                      (misalignment + 4) % 16);
    ASSERT_EQ(Run(transform, in.data(), rows, log2_size, out.data()), 0);
    ASSERT_TRUE(ComparableBits(out.Values()) == expected);
    ASSERT_EQ(Run(transform, in.data(), rows, log2_size, in.data()), 0);
    ASSERT_TRUE(ComparableBits(in.Values()) == expected);
  }
}

TEST(HadamardTest, RowsUpToATileAreThoseOfTheCpu) {
  for (int log2_size = 0; log2_size <= 13; ++log2_size) {
    for (const int64_t rows : {0, 1, 2, 3, 7, 33}) {
      const int64_t n = rows << log2_size;
      ExpectTheSame(RandomFloats(n, 1), rows, log2_size,
                    static_cast<int>(4 * (rows + log2_size) % 16));
    }
  }
}

TEST(HadamardTest, ManyShortRowsAreThoseOfTheCpu) {
  for (const int64_t rows : {4095, 4096, 4097, 12345}) {
    for (const int log2_size : {0, 1, 3}) {
      ExpectTheSame(RandomFloats(rows << log2_size, 2), rows, log2_size, 4);
    }
  }
}

TEST(HadamardTest, LongRowsAreThoseOfTheCpu) {
  for (int log2_size = 14; log2_size <= 20; ++log2_size) {
    const int64_t rows = log2_size < 17 ? 3 : 1;
    ExpectTheSame(RandomFloats(rows << log2_size, 3), rows, log2_size,
                  log2_size % 4 * 4);
  }
}

TEST(HadamardTest, RowsOfThreePassesAreThoseOfTheCpu) {
  // The last pass does all that a pass can do.
  ExpectTheSame(RandomFloats(int64_t{1} << 22, 4), 1, 22, 0, {kInverse});
}

TEST(HadamardTest, SpecialValuesAreThoseOfTheCpu) {
  const float kSpecial[] = {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            -0.0f,
                            1e-38f};
  for (const float special : kSpecial) {
    for (const int log2_size : {0, 1, 5, 12, 13, 15}) {
      const int64_t n = int64_t{2} << log2_size;
      std::vector<float> values(n, -0.0f);
      values[n / 3] = special;
      values[n - 1] = special;
      ExpectTheSame(values, 2, log2_size, 0);
      ExpectTheSame(std::vector<float>(n, special), 2, log2_size, 0);
    }
  }
}

}  // namespace
}  // namespace tf_gc::cuda
