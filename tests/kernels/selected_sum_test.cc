#include "ops/kernels/selected_sum.h"

#include <string>

#include "ops/kernels/index_packing.h"
#include "tests/kernels/testing.h"

namespace tf_gc::kernels {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Indices = std::vector<int32_t>;

void Append(const Indices& indices, const Floats& values, int64_t n,
            Bytes* messages) {
  const int64_t k = indices.size(), begin = messages->size();
  messages->resize(begin + SelectedSize(k, n));
  PackIndices(indices.data(), k, n, messages->data() + begin);
  std::memcpy(messages->data() + begin + PackedIndicesSize(k, n), values.data(),
              k * sizeof(float));
}

Floats Sum(const Bytes& messages, int64_t count, int64_t k, int64_t n,
           const ParallelFor& parallel_for = SingleThread) {
  Guarded<uint8_t> in(messages, 1);
  Guarded<int32_t> indices(count * k);
  Guarded<float> sums(n);
  const SelectedError error = SumSelected(in.data(), count, k, n, parallel_for,
                                          indices.data(), sums.data());
  EXPECT_EQ(error.what, nullptr);
  EXPECT_TRUE(indices.GuardsAreIntact() && sums.GuardsAreIntact());
  return sums.Values();
}

TEST(SelectedSumTest, SumsByHand) {
  Bytes messages;
  Append({1, 4}, {2, 3}, 6, &messages);
  Append({0, 4}, {-1, 5}, 6, &messages);
  EXPECT_EQ(Sum(messages, 2, 2, 6), (Floats{-1, 2, 0, 0, 8, 0}));
}

TEST(SelectedSumTest, NothingIsSelectedOfNothing) {
  EXPECT_EQ(Sum({}, 3, 0, 0), Floats());
  EXPECT_EQ(Sum({}, 3, 0, 2), (Floats{0, 0}));
}

TEST(SelectedSumTest, PartsChangeNoBit) {
  constexpr int64_t kSize = 100003, kCount = 4;
  for (const int64_t k : {int64_t{1}, kSize / 50, kSize}) {
    Bytes messages;
    Floats expected(kSize);
    for (int64_t m = 0; m < kCount; ++m) {
      std::mt19937 generator(m);
      std::normal_distribution<float> normal;
      Indices indices;
      Floats values;
      for (int64_t j = 0; j < k; ++j) {
        // One of as many numbers for each.
        const int64_t first = j * kSize / k, last = (j + 1) * kSize / k;
        indices.push_back(first + generator() % (last - first));
        values.push_back(normal(generator));
        expected[indices.back()] += values.back();
      }
      Append(indices, values, kSize, &messages);
    }
    for (const ParallelFor& parallel_for :
         {ParallelFor(SingleThread), CutAt({1, 3}), Threads(3)}) {
      EXPECT_EQ(Bits(Sum(messages, kCount, k, kSize, parallel_for)),
                Bits(expected));
    }
  }
}

TEST(SelectedSumTest, TheFirstWrongMessageIsNamed) {
  Bytes messages;
  for (int m = 0; m < 4; ++m) Append({1, 4}, {2, 3}, 8, &messages);
  const int64_t size = SelectedSize(2, 8);
  messages[3 * size] = 0b111;
  messages[2 * size] = 0b1;
  Indices indices(8);
  Floats sums(8);
  for (const ParallelFor& parallel_for :
       {ParallelFor(SingleThread), CutAt({1, 3}), Threads(3)}) {
    const SelectedError error = SumSelected(
        messages.data(), 4, 2, 8, parallel_for, indices.data(), sums.data());
    EXPECT_EQ(error.message, 2);
    EXPECT_EQ(std::string(error.what),
              "has fewer bits that are 1 than indices");
  }
}

}  // namespace
}  // namespace tf_gc::kernels
