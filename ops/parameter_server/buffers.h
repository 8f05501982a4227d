// Tensors as buffers that several hold.

#ifndef TF_GC_OPS_PARAMETER_SERVER_BUFFERS_H_
#define TF_GC_OPS_PARAMETER_SERVER_BUFFERS_H_

#include <algorithm>
#include <cstdint>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc::parameter_server {

// A vector of any contents. Throws std::bad_alloc, as std::vector does: a
// tensor without memory would be a null pointer.
inline tensorflow::Tensor NewVector(tensorflow::DataType type, int64_t n) {
  tensorflow::Tensor vector(type, tensorflow::TensorShape({n}));
  if (!vector.IsInitialized()) throw std::bad_alloc();
  return vector;
}

// What becomes of std::bad_alloc.
inline absl::Status NoMemoryError(absl::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", what,
                   ": use more servers, or machines with more memory"));
}

inline tensorflow::Tensor NewFloats(int64_t n) {
  return NewVector(tensorflow::DT_FLOAT, n);
}

inline tensorflow::Tensor Zeros(int64_t n) {
  tensorflow::Tensor zeros = NewFloats(n);
  std::fill_n(zeros.flat<float>().data(), n, 0.0f);
  return zeros;
}

inline tensorflow::Tensor NewBytes(int64_t n) {
  return NewVector(tensorflow::DT_UINT8, n);
}

inline const float* FloatsOf(const tensorflow::Tensor& tensor) {
  return tensor.flat<float>().data();
}
inline float* FloatsOf(tensorflow::Tensor* tensor) {
  return tensor->flat<float>().data();
}
// Of a tensor of any type.
inline const uint8_t* BytesOf(const tensorflow::Tensor& tensor) {
  return reinterpret_cast<const uint8_t*>(tensor.tensor_data().data());
}
inline uint8_t* BytesOf(tensorflow::Tensor* tensor) {
  return tensor->flat<uint8_t>().data();
}

// Memory for n new values of a float32 vector: its own if nobody else holds it.
inline float* Overwrite(int64_t n, tensorflow::Tensor* tensor) {
  if (tensor->NumElements() != n || !tensor->RefCountIsOne()) {
    *tensor = NewFloats(n);
  }
  return FloatsOf(tensor);
}

// Its values, to be changed. Who else holds the tensor keeps what it has.
inline float* Mutable(tensorflow::Tensor* tensor) {
  if (!tensor->RefCountIsOne()) {
    tensorflow::Tensor copy = NewFloats(tensor->NumElements());
    std::copy_n(FloatsOf(*tensor), tensor->NumElements(), FloatsOf(&copy));
    *tensor = std::move(copy);
  }
  return FloatsOf(tensor);
}

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_BUFFERS_H_
