// Registering the kernels of an op for its types.

#ifndef TF_GC_OPS_TENSORFLOW_REGISTRATION_H_
#define TF_GC_OPS_TENSORFLOW_REGISTRATION_H_

#include "tensorflow/core/framework/op_kernel.h"

// Registers a kernel. What follows is a chain of conditions:
// .HostMemory("seed").HostMemory("size").
#define TF_GC_REGISTER(device, name, kernel, ...)                            \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::device) __VA_ARGS__, \
                          kernel)

// Registers kernel<type> for the attribute T.
#define TF_GC_REGISTER_TYPE(device, name, type, kernel, ...) \
  TF_GC_REGISTER(device, name, kernel<type>,                 \
                 .TypeConstraint<type>("T") __VA_ARGS__)

// The same for float32, float16 and bfloat16.
#define TF_GC_REGISTER_FLOATS(device, name, kernel, ...)               \
  TF_GC_REGISTER_TYPE(device, name, float, kernel, __VA_ARGS__);       \
  TF_GC_REGISTER_TYPE(device, name, Eigen::half, kernel, __VA_ARGS__); \
  TF_GC_REGISTER_TYPE(device, name, tensorflow::bfloat16, kernel, __VA_ARGS__)

#endif  // TF_GC_OPS_TENSORFLOW_REGISTRATION_H_
