// Resource handles among the inputs of ops.

#ifndef TF_GC_OPS_TENSORFLOW_HANDLES_H_
#define TF_GC_OPS_TENSORFLOW_HANDLES_H_

#include <string>

#include "absl/status/status.h"
#include "ops/tensorflow/bucket.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"

namespace tf_gc {

// The handle in a resource input of an op; `name` is the input's, for the
// error.
absl::Status GetHandle(const tensorflow::Tensor& input, const std::string& name,
                       tensorflow::ResourceHandle* handle);

// The bucket in the input `bucket`.
absl::Status LookupBucket(tensorflow::OpKernelContext* context,
                          tensorflow::core::RefCountPtr<Bucket>* bucket);

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_HANDLES_H_
