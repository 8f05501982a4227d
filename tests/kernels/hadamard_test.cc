#include "ops/kernels/hadamard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

class HadamardTest : public InstructionSetTest {};

TF_GC_FOR_ALL_INSTRUCTION_SETS(HadamardTest);

using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr Seed kSeed = {0x0123456789abcdef, 0xfedcba9876543210};

enum class Kind { kPlain, kRandomized, kInverse };
constexpr Kind kKinds[] = {Kind::kPlain, Kind::kRandomized, Kind::kInverse};

void Transform(Kind kind, const float* values, int64_t rows, int64_t size,
               float* transformed,
               const ParallelFor& parallel_for = SingleThread) {
  switch (kind) {
    case Kind::kPlain:
      return Hadamard(values, rows, size, transformed, parallel_for);
    case Kind::kRandomized:
      return RandomizedHadamard(values, rows, size, kSeed, transformed,
                                parallel_for);
    case Kind::kInverse:
      return InverseRandomizedHadamard(values, rows, size, kSeed, transformed,
                                       parallel_for);
  }
}

Floats RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

Floats Flipped(Floats values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const PhiloxWords block = PhiloxBlock(kSeed, i / 128);
    if (block.words[i / 32 % 4] >> (i % 32) & 1) values[i] = -values[i];
  }
  return values;
}

// The levels one after the other, each over all values.
Floats ReferenceHadamard(Floats values, int64_t size) {
  const int64_t n = values.size();
  for (int64_t h = 1; h < size; h *= 2) {
    for (int64_t i = 0; i < n; ++i) {
      if (i & h) continue;
      const float a = values[i], b = values[i + h];
      values[i] = a + b;
      values[i + h] = a - b;
    }
  }
  const float scale = static_cast<float>(std::pow(2.0, -0.5 * std::log2(size)));
  for (float& value : values) value *= scale;
  return values;
}

Floats Reference(Kind kind, const Floats& values, int64_t size) {
  switch (kind) {
    case Kind::kPlain:
      return ReferenceHadamard(values, size);
    case Kind::kRandomized:
      return ReferenceHadamard(Flipped(values), size);
    case Kind::kInverse:
      return Flipped(ReferenceHadamard(values, size));
  }
  return {};
}

void ExpectTransforms(const Floats& values, int64_t size, int misalignment) {
  const int64_t rows = static_cast<int64_t>(values.size()) / size;
  for (const Kind kind : kKinds) {
    const std::vector<uint32_t> expected = Bits(Reference(kind, values, size));
    Guarded<float> in(values, misalignment);
    Guarded<float> out(values.size(), 3 - misalignment);
    Transform(kind, in.data(), rows, size, out.data());
    ASSERT_EQ(Bits(out.Values()), expected) << rows << " " << size;
    ASSERT_EQ(in.Values(), values);
    ASSERT_TRUE(out.GuardsAreIntact()) << rows << " " << size;
    Transform(kind, in.data(), rows, size, in.data());
    ASSERT_EQ(Bits(in.Values()), expected) << "in place";
    ASSERT_TRUE(in.GuardsAreIntact()) << rows << " " << size;
  }
}

// ParallelFor that cuts into `parts`, of unequal length, each a thread.
ParallelFor OddParts(int64_t parts) {
  return [parts](int64_t total, int64_t /*cost*/, const ParallelWork& work) {
    std::vector<std::thread> threads;
    int64_t begin = 0;
    for (int64_t part = 1; part <= parts; ++part) {
      const int64_t end = total * part * part / (parts * parts);
      if (begin < end) threads.emplace_back(work, begin, end);
      begin = end;
    }
    for (std::thread& thread : threads) thread.join();
  };
}

TEST_P(HadamardTest, ByHand) {
  const float values[8] = {1, 2, 3, 4, 5, 6, 7, 9};
  float transformed[8];
  Hadamard(values, 2, 4, transformed, SingleThread);
  const float expected[8] = {5, -1, -2, 0, 13.5, -1.5, -2.5, 0.5};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(transformed[i], expected[i]) << i;
}

TEST_P(HadamardTest, ARowOfOneValueIsKept) {
  const Floats values = {3, -0.0f, kNan, kInfinity, kDenormal};
  Floats transformed(5);
  Hadamard(values.data(), 5, 1, transformed.data(), SingleThread);
  EXPECT_EQ(Bits(transformed), Bits(values));
}

TEST_P(HadamardTest, NoRowsNeedNoMemory) {
  for (const Kind kind : kKinds) {
    for (const int64_t size : {1, 64, 1 << 20}) {
      Transform(kind, nullptr, 0, size, nullptr);
    }
  }
}

TEST_P(HadamardTest, ShortRowsOfEveryNumberAsTheReference) {
  for (int64_t size = 1; size <= 1024; size *= 2) {
    for (int64_t rows = 1; rows <= 40; ++rows) {
      ExpectTransforms(RandomFloats(rows * size, rows), size, rows % 4);
    }
  }
}

TEST_P(HadamardTest, ManyShortRowsAsTheReference) {
  for (int64_t size = 1; size <= 8192; size *= 2) {
    for (const int64_t n : {4096, 8192, 20000, 70000}) {
      const int64_t rows = n / size;
      ExpectTransforms(RandomFloats(rows * size, 1), size, rows % 4);
    }
  }
}

TEST_P(HadamardTest, LongRowsAsTheReference) {
  for (int64_t size = 2048; size <= 1 << 20; size *= 2) {
    ExpectTransforms(RandomFloats(size, 1), size, 1);
  }
  ExpectTransforms(RandomFloats(3 << 16, 2), 1 << 16, 2);
  ExpectTransforms(RandomFloats(17 << 16, 2), 1 << 16, 3);
}

TEST_P(HadamardTest, PartsChangeNothing) {
  for (const auto& [rows, size] :
       std::vector<std::pair<int64_t, int64_t>>{{1001, 1},
                                                {5000, 32},
                                                {41, 1024},
                                                {5, 4096},
                                                {3, 1 << 15},
                                                {2, 1 << 17},
                                                {17, 1 << 16},
                                                {1, 1 << 20}}) {
    const Floats values = RandomFloats(rows * size, 1);
    for (const Kind kind : kKinds) {
      const std::vector<uint32_t> expected =
          Bits(Reference(kind, values, size));
      for (const int64_t parts : {1, 2, 3, 7}) {
        Guarded<float> in(values, 1);
        Transform(kind, in.data(), rows, size, in.data(), OddParts(parts));
        ASSERT_EQ(Bits(in.Values()), expected) << rows << " " << size;
        ASSERT_TRUE(in.GuardsAreIntact());
      }
    }
  }
}

TEST_P(HadamardTest, IsItsOwnInverseAndKeepsNorms) {
  for (const int64_t size : {2, 512, 4096, 1 << 18}) {
    const Floats values = RandomFloats(size, 3);
    Floats plain(size), randomized(size);
    Hadamard(values.data(), 1, size, plain.data(), SingleThread);
    RandomizedHadamard(values.data(), 1, size, kSeed, randomized.data(),
                       SingleThread);
    double squares[3] = {};
    for (int64_t i = 0; i < size; ++i) {
      squares[0] += double{values[i]} * values[i];
      squares[1] += double{plain[i]} * plain[i];
      squares[2] += double{randomized[i]} * randomized[i];
    }
    EXPECT_NEAR(squares[1] / squares[0], 1, 1e-5);
    EXPECT_NEAR(squares[2] / squares[0], 1, 1e-5);
    Hadamard(plain.data(), 1, size, plain.data(), SingleThread);
    InverseRandomizedHadamard(randomized.data(), 1, size, kSeed,
                              randomized.data(), SingleThread);
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_NEAR(plain[i], values[i], 1e-5);
      ASSERT_NEAR(randomized[i], values[i], 1e-5);
    }
  }
}

TEST_P(HadamardTest, PartsOfRowsKnowTheirPlace) {
  for (const int64_t size : {64, 1024, 1 << 16}) {
    const int64_t part = std::max<int64_t>(128, size), n = 3 * part;
    const Floats values = RandomFloats(n, 5);
    Floats whole(n), parts(n), back(n);
    RandomizedHadamard(values.data(), n / size, size, kSeed, whole.data(),
                       SingleThread);
    for (const int64_t first : {part, int64_t{0}, 2 * part}) {
      RandomizedHadamardPart(values.data() + first, part / size, size, kSeed,
                             first, parts.data() + first);
      InverseRandomizedHadamardPart(parts.data() + first, part / size, size,
                                    kSeed, first, back.data() + first);
    }
    EXPECT_EQ(parts, whole);
    InverseRandomizedHadamard(whole.data(), n / size, size, kSeed, whole.data(),
                              SingleThread);
    EXPECT_EQ(back, whole);
  }
}

TEST_P(HadamardTest, NonFiniteValuesStayInTheirRow) {
  for (const int64_t size : {1, 2, 8, 64, 256, 1024, 8192}) {
    const int64_t rows = 5;
    const Floats values = RandomFloats(rows * size, 4);
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const Kind kind : kKinds) {
        const Floats expected = Reference(kind, values, size);
        Floats in = values;
        in[2 * size + size / 2] = bad;
        Floats out(rows * size);
        Transform(kind, in.data(), rows, size, out.data());
        for (int64_t i = 0; i < rows * size; ++i) {
          if (i / size != 2) {
            ASSERT_EQ(out[i], expected[i]) << i;
          } else if (std::isnan(bad)) {
            ASSERT_TRUE(std::isnan(out[i])) << i;
          } else {
            ASSERT_TRUE(std::isinf(out[i])) << i;
          }
        }
      }
    }
  }
}

TEST_P(HadamardTest, ExtremeValuesAsTheReference) {
  const Floats special = {0,           -0.0f,  kDenormal,
                          -kDenormal,  1e-38f, -1.5e-38f,
                          kMax / 4096, 3e-45f, -kMax / 8192};
  for (const int64_t size : {1, 4, 16, 256, 4096, 16384}) {
    Floats values(4 * size);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = special[i * i % 97 % special.size()];
    }
    ExpectTransforms(values, size, 1);
    ExpectTransforms(Floats(2 * size, -0.0f), size, 1);
    ExpectTransforms(Floats(2 * size, 3 * kDenormal), size, 1);
  }
}

TEST_P(HadamardTest, SumsThatOverflowAreInfinite) {
  const Floats values(64, kMax);
  Floats transformed(64);
  Hadamard(values.data(), 1, 64, transformed.data(), SingleThread);
  EXPECT_EQ(transformed[0], kInfinity);
}

}  // namespace
}  // namespace tf_gc::kernels
