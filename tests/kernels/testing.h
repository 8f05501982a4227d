// What the tests of the kernels share: random inputs, memory that nothing may
// touch around every buffer, parts of any size, and all instruction sets in
// turn.

#ifndef TF_GC_TESTS_KERNELS_TESTING_H_
#define TF_GC_TESTS_KERNELS_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/dispatch.h"
#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// Runs a test on one instruction set.
class InstructionSetTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override { ASSERT_TRUE(SetInstructionSet(GetParam())); }
  void TearDown() override {
    SetInstructionSet(SupportedInstructionSets().back());
  }
};

#define TF_GC_FOR_ALL_INSTRUCTION_SETS(test_suite)                 \
  INSTANTIATE_TEST_SUITE_P(                                        \
      , test_suite, testing::ValuesIn(SupportedInstructionSets()), \
      [](const testing::TestParamInfo<InstructionSet>& info) {     \
        return std::string(InstructionSetName(info.param));        \
      })

// `size` values, `misalignment` bytes behind an aligned address, with guards
// before and after them.
template <typename T>
class Guarded {
 public:
  explicit Guarded(int64_t size, int misalignment = 0)
      : size_(size),
        begin_(kGuardSize + misalignment),
        bytes_(begin_ + size * sizeof(T) + kGuardSize, kGuard) {}

  explicit Guarded(const std::vector<T>& values, int misalignment = 0)
      : Guarded(static_cast<int64_t>(values.size()), misalignment) {
    if (size_ > 0) std::memcpy(data(), values.data(), size_ * sizeof(T));
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }

  std::vector<T> Values(int64_t count) const {
    std::vector<T> values(count);
    if (count > 0) {
      std::memcpy(values.data(), bytes_.data() + begin_, count * sizeof(T));
    }
    return values;
  }
  std::vector<T> Values() const { return Values(size_); }

  bool GuardsAreIntact() const {
    const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
    const auto begin = bytes_.begin() + begin_;
    return std::all_of(bytes_.begin(), begin, is_guard) &&
           std::all_of(begin + size_ * sizeof(T), bytes_.end(), is_guard);
  }

 private:
  static constexpr uint8_t kGuard = 0xa5;
  static constexpr size_t kGuardSize = 96;

  int64_t size_;
  size_t begin_;
  std::vector<uint8_t> bytes_;
};

// Cuts at the ascending `cuts`, as far as there is anything there; equal ones
// have an empty part between them. The last part comes first: nothing may
// depend on the order.
inline ParallelFor CutAt(const std::vector<int64_t>& cuts) {
  return [cuts](int64_t total, int64_t /*cost*/, const ParallelWork& work) {
    int64_t end = total;
    for (size_t i = cuts.size(); i-- > 0;) {
      const int64_t begin = std::min(cuts[i], total);
      work(begin, end);
      end = begin;
    }
    work(0, end);
  };
}

// Cuts in parts of nearly the same size, each on a thread of its own.
inline ParallelFor Threads(int count) {
  return [count](int64_t total, int64_t /*cost*/, const ParallelWork& work) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = total * i / count, end = total * (i + 1) / count;
      if (begin < end) threads.emplace_back(work, begin, end);
    }
    for (std::thread& thread : threads) thread.join();
  };
}

// Values of which the fraction `density` is not 0.
inline std::vector<int8_t> RandomTernary(int64_t n, double density,
                                         uint32_t seed) {
  std::mt19937 generator(seed);
  std::bernoulli_distribution is_nonzero(density);
  std::vector<int8_t> ternary(n, 0);
  for (int8_t& value : ternary) {
    if (is_nonzero(generator)) value = generator() % 2 ? 1 : -1;
  }
  return ternary;
}

// Bytes in 0 ... 242, of which the fraction `zeros` is 121.
inline std::vector<uint8_t> RandomQuartic(int64_t m, double zeros,
                                          uint32_t seed) {
  std::mt19937 generator(seed);
  std::bernoulli_distribution is_zero(zeros);
  std::vector<uint8_t> quartic(m, 121);
  for (uint8_t& byte : quartic) {
    if (!is_zero(generator)) byte = static_cast<uint8_t>(generator() % 243);
  }
  return quartic;
}

// The bits of floats, to compare -0 and NaN too.
inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) {
    std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  }
  return bits;
}

// ---- 3LC, written slowly ----------------------------------------------------

inline std::vector<uint8_t> ReferenceQuartic(
    const std::vector<int8_t>& ternary) {
  std::vector<int> digits;
  for (const int8_t value : ternary) digits.push_back(value + 1);
  while (digits.size() % 5 != 0) digits.push_back(0);
  const size_t size = digits.size() / 5;
  std::vector<uint8_t> quartic(size);
  for (size_t i = 0; i < size; ++i) {
    quartic[i] = static_cast<uint8_t>(
        81 * digits[i] + 27 * digits[size + i] + 9 * digits[2 * size + i] +
        3 * digits[3 * size + i] + digits[4 * size + i]);
  }
  return quartic;
}

inline std::vector<uint8_t> ReferenceZeroRun(
    const std::vector<uint8_t>& quartic) {
  std::vector<uint8_t> encoded;
  for (size_t i = 0; i < quartic.size();) {
    size_t run = 0;
    while (run < 14 && i + run < quartic.size() && quartic[i + run] == 121) {
      ++run;
    }
    if (run < 2) {
      encoded.push_back(quartic[i]);
      i += 1;
    } else {
      encoded.push_back(static_cast<uint8_t>(243 + (run - 2)));
      i += run;
    }
  }
  return encoded;
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_TESTS_KERNELS_TESTING_H_
