// A shared, immutable-size byte buffer and views of parts of it.

#ifndef TF_GC_OPS_WIRE_BYTES_H_
#define TF_GC_OPS_WIRE_BYTES_H_

#include <cstdint>
#include <memory>

#include "ops/wire/buffer_pool.h"

namespace tf_gc {

// Copies share the buffer; the last one frees it. Transports keep a copy for as
// long as the runtime may touch the memory.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(int64_t size)
      : buffer_(BufferPool::OfProcess()->Allocate(size)),
        data_(buffer_.get()),
        size_(size) {}

  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

  // The part [begin, begin + size) of this view, or of what lies behind it in
  // the buffer.
  Bytes Slice(int64_t begin, int64_t size) const {
    Bytes slice(*this);
    slice.data_ += begin;
    slice.size_ = size;
    return slice;
  }

 private:
  std::shared_ptr<uint8_t[]> buffer_;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_BYTES_H_
