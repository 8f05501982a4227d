// Memory for large messages that is used again.

#ifndef TF_GC_OPS_WIRE_BUFFER_POOL_H_
#define TF_GC_OPS_WIRE_BUFFER_POOL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace tf_gc {

// The C library gives large buffers back to the kernel when they are freed, so
// that those of the next step begin with a page fault for every 4 KiB, which
// takes longer than a copy. A pool keeps buffers of kSmallest bytes or more, at
// most `max_idle` bytes in all: where there are more, the one that has waited
// longest is freed. Where `max_idle` is 0, buffers have just the size that was
// asked for. It may be used from any thread, and must outlive its buffers.
class BufferPool {
 public:
  static constexpr int64_t kSmallest = int64_t{64} << 10;

  // The one of the process, which is never destroyed.
  static BufferPool* OfProcess();

  explicit BufferPool(int64_t max_idle) : max_idle_(max_idle) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of `size` bytes that hold anything. The last pointer to it gives
  // it back. Throws std::bad_alloc.
  std::shared_ptr<uint8_t[]> Allocate(int64_t size);

  int64_t idle_bytes() const;

 private:
  struct Buffer {
    std::unique_ptr<uint8_t[]> memory;
    int64_t capacity;
  };

  // A buffer that waits, or none.
  std::unique_ptr<uint8_t[]> Take(int64_t capacity);
  void GiveBack(Buffer buffer);

  const int64_t max_idle_;
  mutable std::mutex mutex_;
  std::deque<Buffer> idle_;  // the longest first
  int64_t idle_bytes_ = 0;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_BUFFER_POOL_H_
