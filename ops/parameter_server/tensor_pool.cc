#include "ops/parameter_server/tensor_pool.h"

#include <iterator>

#include "ops/parameter_server/buffers.h"

namespace tf_gc::parameter_server {

using ::tensorflow::DataType;
using ::tensorflow::Tensor;

Tensor TensorPool::Get(DataType type, int64_t n) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [begin, end] = buffers_.equal_range({type, n});
  for (auto it = begin; it != end; ++it) {
    // Only through the pool could anybody else get hold of it now.
    if (it->second.RefCountIsOne()) return it->second;
  }
  Tensor buffer = NewVector(type, n);
  if (n > 0) buffers_.emplace(std::pair(type, n), buffer);
  return buffer;
}

void TensorPool::Trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = buffers_.begin(); it != buffers_.end();) {
    it = it->second.RefCountIsOne() ? buffers_.erase(it) : std::next(it);
  }
}

}  // namespace tf_gc::parameter_server
