// What the kernels of the ops do with their inputs. Errors name the input, what
// it is and what it may be.

#ifndef TF_GC_OPS_TENSORFLOW_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_INPUTS_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"
#include "ops/wire/floats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {

absl::Status CheckVector(const tensorflow::Tensor& tensor, const char* name);
absl::Status CheckScalar(const tensorflow::Tensor& tensor, const char* name);

// The attribute `sizes`: how many values each variable has.
absl::Status GetSizes(tensorflow::OpKernelConstruction* context,
                      std::vector<int64_t>* sizes);

// The value of a scalar input.
template <typename T>
absl::Status ReadScalar(tensorflow::OpKernelContext* context, const char* name,
                        T* value) {
  const tensorflow::Tensor* input;
  TF_RETURN_IF_ERROR(context->input(name, &input));
  TF_RETURN_IF_ERROR(CheckScalar(*input, name));
  *value = input->scalar<T>()();
  return absl::OkStatus();
}

// The shape that an int32 or int64 vector, the input `shape`, holds.
absl::Status ReadShape(const tensorflow::Tensor& tensor,
                       tensorflow::TensorShape* shape);

// The integer that an int32 or int64 scalar holds.
absl::Status ReadInteger(const tensorflow::Tensor& tensor, const char* name,
                         int64_t* value);

// The same, at least 0.
absl::Status ReadCount(const tensorflow::Tensor& tensor, const char* name,
                       int64_t* count);

// The input `seed`: an int32 or int64 scalar, the key, or a vector of two, key
// and stream.
absl::Status ReadSeed(const tensorflow::Tensor& tensor, kernels::Seed* seed);

// What ReadSeed asks of the input with this index, as far as its shape is
// known.
absl::Status CheckSeedShape(
    tensorflow::shape_inference::InferenceContext* context, int index);

// The inputs from `begin` up to `end` are scalars.
absl::Status CheckScalarShapes(
    tensorflow::shape_inference::InferenceContext* context, int begin, int end);

inline const uint8_t* BytesOf(const tensorflow::Tensor& tensor) {
  return tensor.flat<uint8_t>().data();
}

// TensorFlow's intra-op threads, for the time of a Compute, in the rounding and
// denormal modes of the thread that calls it.
kernels::ParallelFor IntraOpThreads(tensorflow::OpKernelContext* context);

// Converts the values of `from` to the type of `to`, which has as many; one of
// the types is float32. On the intra-op threads.
template <typename From, typename To>
void Convert(tensorflow::OpKernelContext* context,
             const tensorflow::Tensor& from, tensorflow::Tensor* to) {
  const From* const in = from.flat<From>().data();
  To* const out = to->flat<To>().data();
  IntraOpThreads(context)(from.NumElements(), /*cost=*/1,
                          [=](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i) {
                              out[i] = FromFloat32<To>(ToFloat32(in[i]));
                            }
                          });
}

// `values`, of type T, as float32.
template <typename T>
absl::Status ToFloat(tensorflow::OpKernelContext* context,
                     const tensorflow::Tensor& values,
                     tensorflow::Tensor* floats) {
  if constexpr (std::is_same_v<T, float>) {
    *floats = values;
  } else {
    TF_RETURN_IF_ERROR(
        context->allocate_temp(tensorflow::DT_FLOAT, values.shape(), floats));
    Convert<T, float>(context, values, floats);
  }
  return absl::OkStatus();
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_INPUTS_H_
