#include "ops/tensorflow/parameter_server_inputs.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "ops/parameter_server/buffers.h"
#include "ops/tensorflow/inputs.h"

namespace tf_gc::parameter_server {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

namespace {

absl::Status ToId(int64_t value, const std::string& name, uint32_t* id) {
  if (value < 0 || value > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be in [0, 2^32), got ", value));
  }
  *id = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status GetId(OpKernelConstruction* context, const char* name,
                   uint32_t* id) {
  int64_t value;
  TF_RETURN_IF_ERROR(context->GetAttr(name, &value));
  return ToId(value, name, id);
}

absl::Status GetIds(OpKernelConstruction* context, const char* name,
                    std::vector<uint32_t>* ids) {
  std::vector<int64_t> values;
  TF_RETURN_IF_ERROR(context->GetAttr(name, &values));
  ids->resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    TF_RETURN_IF_ERROR(
        ToId(values[i], absl::StrCat(name, "[", i, "]"), &(*ids)[i]));
  }
  return absl::OkStatus();
}

absl::Status GetIdsAndShapes(OpKernelConstruction* context,
                             const char* ids_name, const char* shapes_name,
                             std::vector<uint32_t>* ids,
                             std::vector<TensorShape>* shapes) {
  TF_RETURN_IF_ERROR(GetIds(context, ids_name, ids));
  TF_RETURN_IF_ERROR(context->GetAttr(shapes_name, shapes));
  if (ids->size() == shapes->size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(shapes_name, " must be one for each of ", ids_name, ", ",
                   ids->size(), ", got ", shapes->size()));
}

absl::Status ReadBytes(OpKernelContext* context, int index, const char* name,
                       const uint8_t** bytes, int64_t* size) {
  const Tensor& message = context->input(index);
  TF_RETURN_IF_ERROR(CheckVector(message, name));
  *bytes = tf_gc::BytesOf(message);
  *size = message.NumElements();
  return absl::OkStatus();
}

absl::Status ReadVector(OpKernelContext* context, int index, const char* name,
                        std::vector<int64_t>* values) {
  TF_RETURN_IF_ERROR(CheckVector(context->input(index), name));
  const auto input = context->input(index).flat<int64_t>();
  values->assign(input.data(), input.data() + input.size());
  return absl::OkStatus();
}

ReadOp::ReadOp(OpKernelConstruction* context) : OpKernel(context) {
  OP_REQUIRES_OK(context, GetId(context, "id", &id_));
  OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
}

void ReadOp::Compute(OpKernelContext* context) try {
  Tensor value;
  OP_REQUIRES_OK(context, Read(context, id_, shape_, &value));
  context->set_output(0, value);
} catch (const std::bad_alloc&) {
  context->SetStatus(NoMemoryError("what is read"));
}

}  // namespace tf_gc::parameter_server
