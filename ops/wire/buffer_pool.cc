#include "ops/wire/buffer_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace tf_gc {
namespace {

// AddressSanitizer is to see the use of what was freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kMaxIdleOfProcess = 0;
#else
constexpr int64_t kMaxIdleOfProcess = int64_t{64} << 20;
#endif

// The next size of which there are four for each power of two, so that messages
// of nearly the same size use the same buffers.
int64_t Capacity(int64_t size) {
  const int64_t step = int64_t{1}
                       << (61 - __builtin_clzll(static_cast<uint64_t>(size)));
  return (size + step - 1) / step * step;
}

}  // namespace

BufferPool* BufferPool::OfProcess() {
  static auto* const pool = new BufferPool(kMaxIdleOfProcess);
  return pool;
}

std::shared_ptr<uint8_t[]> BufferPool::Allocate(int64_t size) {
  if (size < kSmallest || max_idle_ == 0) {
    return std::shared_ptr<uint8_t[]>(new uint8_t[size]);
  }
  const int64_t capacity = Capacity(size);
  std::unique_ptr<uint8_t[]> memory = Take(capacity);
  if (memory == nullptr) memory.reset(new uint8_t[capacity]);
  return std::shared_ptr<uint8_t[]>(
      memory.release(), [this, capacity](uint8_t* returned) {
        GiveBack({std::unique_ptr<uint8_t[]>(returned), capacity});
      });
}

int64_t BufferPool::idle_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return idle_bytes_;
}

std::unique_ptr<uint8_t[]> BufferPool::Take(int64_t capacity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The newest is the likeliest to be in a cache.
  const auto found = std::find_if(
      idle_.rbegin(), idle_.rend(),
      [&](const Buffer& buffer) { return buffer.capacity == capacity; });
  if (found == idle_.rend()) return nullptr;
  std::unique_ptr<uint8_t[]> memory = std::move(found->memory);
  idle_.erase(std::next(found).base());
  idle_bytes_ -= capacity;
  return memory;
}

void BufferPool::GiveBack(Buffer buffer) {
  if (buffer.capacity > max_idle_) return;
  std::vector<Buffer> freed;  // after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_bytes_ += buffer.capacity;
  idle_.push_back(std::move(buffer));
  while (idle_bytes_ > max_idle_) {
    idle_bytes_ -= idle_.front().capacity;
    freed.push_back(std::move(idle_.front()));
    idle_.pop_front();
  }
}

}  // namespace tf_gc
