// What the ops of parameter servers and those of their workers do with their
// attributes, inputs and outputs.

#ifndef TF_GC_OPS_TENSORFLOW_PARAMETER_SERVER_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_PARAMETER_SERVER_INPUTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/tensorflow/containers.h"
#include "ops/tensorflow/handles.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc::parameter_server {

// The attribute of a variable's id, or of some.
absl::Status GetId(tensorflow::OpKernelConstruction* context, const char* name,
                   uint32_t* id);
absl::Status GetIds(tensorflow::OpKernelConstruction* context, const char* name,
                    std::vector<uint32_t>* ids);

// The attributes of so many shapes for so many ids.
absl::Status GetIdsAndShapes(tensorflow::OpKernelConstruction* context,
                             const char* ids_name, const char* shapes_name,
                             std::vector<uint32_t>* ids,
                             std::vector<tensorflow::TensorShape>* shapes);

// The resource whose handle is the first input.
template <typename T>
absl::Status LookupFirst(tensorflow::OpKernelContext* context, const char* name,
                         tensorflow::core::RefCountPtr<T>* resource) {
  return LookupHandle(context, context->input(0), name, resource);
}

// The bytes of a message, an input.
absl::Status ReadBytes(tensorflow::OpKernelContext* context, int index,
                       const char* name, const uint8_t** bytes, int64_t* size);

// The numbers of an input that is an int64 vector.
absl::Status ReadVector(tensorflow::OpKernelContext* context, int index,
                        const char* name, std::vector<int64_t>* values);

// Allocates the bytes of a message, the first output.
inline auto AllocateMessage(tensorflow::OpKernelContext* context) {
  return [context](int64_t size, uint8_t** bytes) {
    tensorflow::Tensor* message = nullptr;
    TF_RETURN_IF_ERROR(
        context->allocate_output(0, tensorflow::TensorShape({size}), &message));
    *bytes = message->flat<uint8_t>().data();
    return absl::OkStatus();
  };
}

template <typename T>
absl::Status SetScalar(tensorflow::OpKernelContext* context, int index,
                       const T& value) {
  tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      context->allocate_output(index, tensorflow::TensorShape({}), &output));
  output->scalar<T>()() = value;
  return absl::OkStatus();
}

template <typename T>
absl::Status SetVector(tensorflow::OpKernelContext* context, int index,
                       const std::vector<T>& values) {
  tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(
      index, tensorflow::TensorShape({static_cast<int64_t>(values.size())}),
      &output));
  std::copy(values.begin(), values.end(), output->flat<T>().data());
  return absl::OkStatus();
}

// Makes a resource of this name in a container, or finds it, and its handle the
// output. An empty container is the default one.
template <typename T, typename Make>
absl::Status OutputResource(tensorflow::OpKernelContext* context,
                            const std::string& container_or_none,
                            const std::string& name, Make make,
                            tensorflow::core::RefCountPtr<T>* resource) {
  const std::string& container =
      container_or_none.empty()
          ? context->resource_manager()->default_container()
          : container_or_none;
  TF_RETURN_IF_ERROR(
      EnterContainer(container_or_none, context->resource_manager()));
  T* made = nullptr;
  TF_RETURN_IF_ERROR(context->resource_manager()->LookupOrCreate<T>(
      container, name, &made, [&](T** created) {
        *created = make();
        return absl::OkStatus();
      }));
  resource->reset(made);
  return SetScalar(context, 0,
                   tensorflow::MakeResourceHandle<T>(context, container, name));
}

// The kernel of ops that read one variable, of the attributes `id` and `shape`.
class ReadOp : public tensorflow::OpKernel {
 public:
  explicit ReadOp(tensorflow::OpKernelConstruction* context);

  void Compute(tensorflow::OpKernelContext* context) override;

 private:
  virtual absl::Status Read(tensorflow::OpKernelContext* context, uint32_t id,
                            const tensorflow::TensorShape& shape,
                            tensorflow::Tensor* value) = 0;

  uint32_t id_;
  tensorflow::TensorShape shape_;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_TENSORFLOW_PARAMETER_SERVER_INPUTS_H_
