// Tensors whose memory is used again.

#ifndef TF_GC_OPS_PARAMETER_SERVER_TENSOR_POOL_H_
#define TF_GC_OPS_PARAMETER_SERVER_TENSOR_POOL_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_gc::parameter_server {

// A server needs the same few sizes for every update. Memory that is allocated
// anew is zeroed by the kernel, page by page, which takes longer than to decode
// a push. Thread-safe.
class TensorPool {
 public:
  // Vectors of any contents, which nobody else holds. The pool keeps what it
  // gives, and so as much as was ever in use at one time. They throw
  // std::bad_alloc.
  tensorflow::Tensor Floats(int64_t n) { return Get(tensorflow::DT_FLOAT, n); }
  tensorflow::Tensor Bytes(int64_t n) { return Get(tensorflow::DT_UINT8, n); }

  // Frees what is not in use.
  void Trim();

 private:
  tensorflow::Tensor Get(tensorflow::DataType type, int64_t n);

  std::mutex mutex_;
  std::multimap<std::pair<tensorflow::DataType, int64_t>, tensorflow::Tensor>
      buffers_;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_TENSOR_POOL_H_
