// What the tests of the emulated CUDA kernels share: device memory, which is
// the heap's here, so that AddressSanitizer knows where each array ends.

#ifndef TF_GC_TESTS_CUDA_TESTING_H_
#define TF_GC_TESTS_CUDA_TESTING_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/testing.h"

namespace tf_gc::cuda {

// `size` values, `misalignment` bytes behind an address aligned to 16 bytes,
// exactly at the end of their memory.
template <typename T>
class Device {
 public:
  explicit Device(int64_t size, int misalignment = 0)
      : size_(size),
        misalignment_(misalignment),
        bytes_(new uint8_t[misalignment + size * sizeof(T)]) {
    std::memset(bytes_.get(), 0xa5, misalignment + size * sizeof(T));
  }

  explicit Device(const std::vector<T>& values, int misalignment = 0)
      : Device(static_cast<int64_t>(values.size()), misalignment) {
    if (size_ > 0) std::memcpy(data(), values.data(), size_ * sizeof(T));
  }

  T* data() { return reinterpret_cast<T*>(bytes_.get() + misalignment_); }

  std::vector<T> Values(int64_t count) const {
    std::vector<T> values(count);
    if (count > 0) {
      std::memcpy(values.data(), bytes_.get() + misalignment_,
                  count * sizeof(T));
    }
    return values;
  }
  std::vector<T> Values() const { return Values(size_); }

  T Value() const { return Values(1)[0]; }

 private:
  int64_t size_;
  int misalignment_;
  std::unique_ptr<uint8_t[]> bytes_;
};

// All small sizes, and some around and beyond the kernels' tiles.
inline std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {1000, 2047, 2048, 2049, 4096, 10239, 10240, 10241,
                          20480, 20481, 65536, 100003, 400000}) {
    sizes.push_back(n);
  }
  return sizes;
}

}  // namespace tf_gc::cuda

#endif  // TF_GC_TESTS_CUDA_TESTING_H_
