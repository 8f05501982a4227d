#include <algorithm>
#include <limits>
#include <string>

#include "ops/cuda/chunk_argmax.h"
#include "ops/cuda/index_packing.h"
#include "ops/cuda/top_k.h"
#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/top_k.h"
#include "tests/cuda/testing.h"

namespace tf_gc::cuda {
namespace {

using kernels::PackedIndicesSize;

// ---- Values -----------------------------------------------------------------

constexpr int kKinds = 6;

// Values with few ties, many, and nothing else.
std::vector<float> RandomValues(int64_t n, int kind) {
  const float special[] = {0,
                           -0.0f,
                           1e-42f,
                           -1e-42f,
                           1,
                           -1,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           -std::numeric_limits<float>::quiet_NaN()};
  std::mt19937 generator(kind);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) {
    const float x = normal(generator);
    switch (kind) {
      case 0:  // Normal.
        value = x;
        break;
      case 1:  // All equal.
        value = x < 0 ? -0.75f : 0.75f;
        break;
      case 2:  // Of all kinds.
        value = special[generator() % std::size(special)];
        break;
      case 3:  // Mostly zeros.
        value = generator() % 10 == 0 ? x : 0;
        break;
      case 4:  // In one bucket of the first histogram.
        value = 1 + 0.01f * (x < 0 ? -x : x) / 10;
        break;
      default:  // Few magnitudes.
        value = static_cast<float>(generator() % 4) - 1.5f;
    }
  }
  return values;
}

// Sizes with some around and beyond the kernels' tiles.
std::vector<int64_t> SelectionSizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 300; n += n < 40 ? 1 : 13) sizes.push_back(n);
  for (const int64_t n : {4095, 4096, 4097, 100003}) sizes.push_back(n);
  return sizes;
}

// ---- Top k ------------------------------------------------------------------

void ExpectTopK(const std::vector<float>& values, int64_t k) {
  const int64_t n = values.size();
  std::vector<int32_t> expected(k);
  kernels::TopKIndices(values.data(), n, k, expected.data(),
                       kernels::SingleThread);
  Device<float> in(values, 4 * (n % 5));
  Device<int32_t> indices(k, 4 * (k % 3));
  Device<uint8_t> workspace(tf_gc_cuda_top_k_indices_workspace_size(n));
  ASSERT_EQ(tf_gc_cuda_top_k_indices(in.data(), n, k, indices.data(),
                                     workspace.data(), nullptr),
            0);
  ASSERT_EQ(indices.Values(), expected) << n << " " << k;
}

TEST(TopKTest, SelectsAsTheCpuDoes) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int64_t n : SelectionSizes()) {
      const std::vector<float> values = RandomValues(n, kind);
      if (n > 10000) {  // slow in the emulator
        ExpectTopK(values, n / 7);
        continue;
      }
      for (const int64_t k :
           {int64_t{0}, int64_t{1}, n / 100, n / 7, n / 2, n - 1, n}) {
        ExpectTopK(values, k);
      }
    }
  }
}

TEST(TopKTest, SelectsAnyNumber) {
  for (int kind = 0; kind < kKinds; ++kind) {
    const std::vector<float> values = RandomValues(50, kind);
    for (int64_t k = 0; k <= 50; ++k) ExpectTopK(values, k);
  }
}

TEST(TopKTest, NoValuesHaveNoIndices) { ExpectTopK({}, 0); }

// ---- Chunk argmax -----------------------------------------------------------

void ExpectArgmax(const std::vector<float>& values, int64_t chunk) {
  const int64_t n = values.size();
  const int64_t chunks = kernels::NumChunks(n, chunk);
  std::vector<int32_t> expected(chunks);
  kernels::ChunkArgmax(values.data(), n, chunk, expected.data(),
                       kernels::SingleThread);
  Device<float> in(values, 4 * (n % 5));
  Device<int32_t> indices(chunks, 4 * (chunk % 3));
  Device<uint8_t> workspace(tf_gc_cuda_chunk_argmax_workspace_size(n, chunk));
  ASSERT_EQ(tf_gc_cuda_chunk_argmax(in.data(), n, chunk, indices.data(),
                                    workspace.data(), nullptr),
            0);
  ASSERT_EQ(indices.Values(), expected) << n << " " << chunk;
}

TEST(ChunkArgmaxTest, FindsWhatTheCpuDoes) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int64_t n : SelectionSizes()) {
      const std::vector<float> values = RandomValues(n, kind);
      for (const int64_t chunk : {1, 2, 3, 7, 8, 31, 33, 100, 127, 128, 1000,
                                  4096, 4097, 10000, 1000000}) {
        ExpectArgmax(values, chunk);
      }
    }
  }
}

TEST(ChunkArgmaxTest, AChunkMayBeAnyNumber) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t chunk : {kMax - 4998, kMax}) {
    ExpectArgmax(RandomValues(5000, 0), chunk);
  }
}

TEST(ChunkArgmaxTest, NoValuesHaveNoIndices) {
  EXPECT_EQ(tf_gc_cuda_chunk_argmax_workspace_size(0, 10), 0);
  EXPECT_EQ(tf_gc_cuda_chunk_argmax(nullptr, 0, 10, nullptr, nullptr, nullptr),
            0);
}

// ---- Index packing ----------------------------------------------------------

// k ascending indices below n.
std::vector<int32_t> RandomIndices(int64_t k, int64_t n, uint32_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int32_t> indices;
  if (n <= 8 * k) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t missing = k - static_cast<int64_t>(indices.size());
      if (static_cast<int64_t>(generator() % (n - i)) < missing) {
        indices.push_back(static_cast<int32_t>(i));
      }
    }
    return indices;
  }
  while (static_cast<int64_t>(indices.size()) < k) {
    while (static_cast<int64_t>(indices.size()) < k) {
      indices.push_back(static_cast<int32_t>(generator() % n));
    }
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  }
  return indices;
}

std::vector<int32_t> FirstIndices(int64_t k) {
  std::vector<int32_t> indices(k);
  for (int64_t j = 0; j < k; ++j) indices[j] = static_cast<int32_t>(j);
  return indices;
}

std::vector<uint8_t> Pack(const std::vector<int32_t>& indices, int64_t n) {
  std::vector<uint8_t> packed(PackedIndicesSize(indices.size(), n));
  kernels::PackIndices(indices.data(), indices.size(), n, packed.data());
  return packed;
}

struct Set {
  int64_t n;
  std::vector<int32_t> indices;
};

// Bitmaps and Elias-Fano codes with few and many low bits.
std::vector<Set> Sets() {
  std::vector<Set> sets;
  for (int64_t n = 1; n <= 300; n += n < 40 ? 1 : 13) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, n / 9, n / 3, n - 1, n}) {
      sets.push_back({n, RandomIndices(std::max<int64_t>(k, 0), n, k)});
    }
  }
  for (const int64_t k : {1, 2, 5, 100, 1000, 2047, 2048, 2049, 20000, 70000}) {
    for (const int64_t n : {k + 1, 3 * k, 7 * k, 50 * k, int64_t{100000} * k}) {
      if (n > std::numeric_limits<int32_t>::max()) continue;
      sets.push_back({n, RandomIndices(k, n, k)});
      sets.push_back({n, FirstIndices(k)});
      sets.push_back({n, FirstIndices(k)});
      for (int32_t& index : sets.back().indices) {
        index += static_cast<int32_t>(n - k);
      }
    }
  }
  sets.push_back({std::numeric_limits<int32_t>::max(),
                  RandomIndices(300, std::numeric_limits<int32_t>::max(), 1)});
  return sets;
}

TEST(IndexPackingTest, PacksAsTheCpuDoesAtAnyAlignment) {
  for (const Set& set : Sets()) {
    const int64_t k = set.indices.size();
    const std::vector<uint8_t> expected = Pack(set.indices, set.n);
    Device<int32_t> in(set.indices, 4 * (k % 3));
    Device<uint8_t> packed(expected.size(), k % 13);
    ASSERT_EQ(
        tf_gc_cuda_pack_indices(in.data(), k, set.n, packed.data(), nullptr),
        0);
    ASSERT_EQ(packed.Values(), expected) << k << " of " << set.n;
  }
}

TEST(IndexPackingTest, PackingAnyIndicesStaysInside) {
  std::mt19937 generator(1);
  for (const int64_t k : {1, 10, 300, 5000}) {
    for (const int64_t n : {k, 2 * k, 20 * k}) {
      std::vector<int32_t> indices(k);
      for (int32_t& index : indices) index = static_cast<int32_t>(generator());
      Device<int32_t> in(indices);
      Device<uint8_t> packed(PackedIndicesSize(k, n));
      ASSERT_EQ(
          tf_gc_cuda_pack_indices(in.data(), k, n, packed.data(), nullptr), 0);
    }
  }
}

void ExpectUnpacked(const std::vector<uint8_t>& packed, int64_t k, int64_t n) {
  std::vector<int32_t> expected(k);
  const char* const message =
      kernels::UnpackIndices(packed.data(), k, n, expected.data());
  Device<uint8_t> in(packed, k % 13);
  Device<int32_t> indices(k, 4 * (k % 3));
  Device<int64_t> error(1);
  Device<uint8_t> workspace(tf_gc_cuda_unpack_indices_workspace_size(k, n));
  ASSERT_EQ(tf_gc_cuda_unpack_indices(in.data(), k, n, indices.data(),
                                      error.data(), workspace.data(), nullptr),
            0);
  const char* const found = tf_gc_cuda_unpack_indices_message(error.Value());
  ASSERT_EQ(std::string(found ? found : "is right"),
            std::string(message ? message : "is right"))
      << k << " of " << n;
  if (message == nullptr) {
    ASSERT_EQ(indices.Values(), expected) << k << " of " << n;
  }
}

TEST(IndexPackingTest, UnpacksAsTheCpuDoesAtAnyAlignment) {
  for (const Set& set : Sets()) {
    ExpectUnpacked(Pack(set.indices, set.n), set.indices.size(), set.n);
  }
}

TEST(IndexPackingTest, SaysWhatIsWrongAsTheCpuDoes) {
  std::mt19937 generator(2);
  for (const Set& set : Sets()) {
    const int64_t k = set.indices.size();
    if (k == 0 || k > 3000) continue;
    const std::vector<uint8_t> packed = Pack(set.indices, set.n);
    const int last = static_cast<int>(packed.size()) - 1;
    // Any bit, and two of the last byte.
    const int any = static_cast<int>(generator() % (8 * packed.size()));
    for (const int bit : {any, 8 * last + 4, 8 * last + 7}) {
      std::vector<uint8_t> wrong = packed;
      wrong[bit / 8] ^= 1 << (bit % 8);
      ExpectUnpacked(wrong, k, set.n);
    }
    // As many bits as there should be, in other places.
    std::vector<uint8_t> shuffled = packed;
    std::shuffle(shuffled.begin(), shuffled.end(), generator);
    ExpectUnpacked(shuffled, k, set.n);
    ExpectUnpacked(std::vector<uint8_t>(packed.size(), 0), k, set.n);
    ExpectUnpacked(std::vector<uint8_t>(packed.size(), 255), k, set.n);
  }
}

int64_t FindNotAscending(const std::vector<int32_t>& indices, int64_t n) {
  Device<int32_t> in(indices);
  Device<int64_t> first(1);
  EXPECT_EQ(tf_gc_cuda_find_not_ascending(in.data(), indices.size(), n,
                                          first.data(), nullptr),
            0);
  return first.Value();
}

TEST(IndexPackingTest, FindsTheFirstIndexThatDoesNotAscend) {
  EXPECT_EQ(FindNotAscending({}, 10), -1);
  EXPECT_EQ(FindNotAscending({-1}, 10), 0);
  EXPECT_EQ(FindNotAscending({0, 10}, 10), 1);
  EXPECT_EQ(FindNotAscending({3, 3, 2}, 10), 1);
  std::vector<int32_t> indices = RandomIndices(3000, 1000000, 3);
  EXPECT_EQ(FindNotAscending(indices, 1000000), -1);
  indices[2500] = indices[2499];
  EXPECT_EQ(FindNotAscending(indices, 1000000), 2500);
  indices[1000] = 1000000;
  EXPECT_EQ(FindNotAscending(indices, 1000000), 1000);
  indices[17] = -5;
  EXPECT_EQ(FindNotAscending(indices, 1000000), 17);
}

}  // namespace
}  // namespace tf_gc::cuda
