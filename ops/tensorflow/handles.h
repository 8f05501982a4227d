// Resource handles among the inputs of ops.

#ifndef TF_GC_OPS_TENSORFLOW_HANDLES_H_
#define TF_GC_OPS_TENSORFLOW_HANDLES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "ops/tensorflow/bucket.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {

// The handle in a resource input of an op; `name` is the input's, for the
// error.
absl::Status GetHandle(const tensorflow::Tensor& input, const std::string& name,
                       tensorflow::ResourceHandle* handle);

// The variables of the list input `residuals`, each with its place.
using Residuals = std::map<tensorflow::Var*, int>;

// Adds residuals[i], which must be another variable than those before.
absl::Status NoteResidual(tensorflow::Var* variable, int i,
                          Residuals* residuals);

// The resource whose handle a resource input holds; `name` as above.
template <typename Resource>
absl::Status LookupHandle(tensorflow::OpKernelContext* context,
                          const tensorflow::Tensor& input,
                          const std::string& name,
                          tensorflow::core::RefCountPtr<Resource>* resource) {
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(GetHandle(input, name, &handle));
  return LookupResource(context, handle, resource);
}

// The resource whose handle is the input of this name.
template <typename Resource>
absl::Status LookupInput(tensorflow::OpKernelContext* context, const char* name,
                         tensorflow::core::RefCountPtr<Resource>* resource) {
  const tensorflow::Tensor* input;
  TF_RETURN_IF_ERROR(context->input(name, &input));
  return LookupHandle(context, *input, name, resource);
}

// The bucket in the input `bucket`.
inline absl::Status LookupBucket(
    tensorflow::OpKernelContext* context,
    tensorflow::core::RefCountPtr<Bucket>* bucket) {
  return LookupInput(context, "bucket", bucket);
}

// Makes the first output the handle of what make() returns, which lives as long
// as its handles.
template <typename Make>
absl::Status OutputHandle(tensorflow::OpKernelContext* context,
                          const Make& make) {
  tensorflow::Tensor* handle;
  TF_RETURN_IF_ERROR(
      context->allocate_output(0, tensorflow::TensorShape({}), &handle));
  handle->scalar<tensorflow::ResourceHandle>()() =
      tensorflow::ResourceHandle::MakeRefCountingHandle(
          make(), context->device()->name());
  return absl::OkStatus();
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_HANDLES_H_
