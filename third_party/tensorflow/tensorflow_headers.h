// What most sources that use TensorFlow include: parsing it takes longer than
// all that they hold. Those that build with :precompiled_headers have it parsed
// already (-include tensorflow_headers.h), and include what they use
// themselves.

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
