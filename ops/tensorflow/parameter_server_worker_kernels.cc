// The ops of a parameter server's workers: kernels around
// ops/parameter_server/local_model.h.

#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/local_model.h"
#include "ops/parameter_server/message.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/parameter_server_inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/wire/rows.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::DeviceNameUtils;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::core::RefCountPtr;

absl::Status LookupModel(OpKernelContext* context,
                         RefCountPtr<LocalModel>* model) {
  return LookupFirst(context, "model", model);
}

class LocalModelOp : public OpKernel {
 public:
  explicit LocalModelOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &name_));
  }

  void Compute(OpKernelContext* context) override {
    DeviceNameUtils::ParsedName device;
    OP_REQUIRES(
        context,
        DeviceNameUtils::ParseFullName(context->device()->name(), &device),
        absl::InternalError("a device without a name of its own"));
    const auto make = [&] { return new LocalModel(device.task); };
    RefCountPtr<LocalModel> model;
    OP_REQUIRES_OK(context, OutputResource<LocalModel>(context, container_,
                                                       name_, make, &model));
  }

 private:
  std::string container_, name_;
};

class PullRequestOp : public OpKernel {
 public:
  explicit PullRequestOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetIds(context, "ids", &ids_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context,
                   SetVector(context, 0, model->Request(ids_).ToVector()));
  }

 private:
  std::vector<uint32_t> ids_;
};

class ApplyPullOp : public OpKernel {
 public:
  explicit ApplyPullOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<uint32_t> ids;
    std::vector<TensorShape> shapes;
    OP_REQUIRES_OK(context,
                   GetIdsAndShapes(context, "ids", "shapes", &ids, &shapes));
    for (size_t i = 0; i < ids.size(); ++i) {
      variables_.push_back({ids[i], shapes[i]});
    }
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    const uint8_t* bytes;
    int64_t size, version, step;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context, ReadBytes(context, 1, "message", &bytes, &size));
    OP_REQUIRES_OK(
        context, model->Apply(bytes, size, variables_, IntraOpThreads(context),
                              &version, &step));
    OP_REQUIRES_OK(context, SetScalar(context, 0, version));
    OP_REQUIRES_OK(context, SetScalar(context, 1, step));
  }

 private:
  std::vector<PulledVariable> variables_;
};

class EncodePushOp : public OpKernel {
 public:
  explicit EncodePushOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<std::string> codecs;
    OP_REQUIRES_OK(context, GetId(context, "channel", &channel_));
    OP_REQUIRES_OK(context, GetIds(context, "ids", &ids_));
    OP_REQUIRES_OK(context,
                   GetIdsAndShapes(context, "sparse_ids", "sparse_shapes",
                                   &sparse_ids_, &sparse_shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("row_bits", &row_bits_));
    OP_REQUIRES_OK(context,
                   context->GetAttr("row_start_step", &row_start_step_));
    OP_REQUIRES_OK(context, context->GetAttr("row_seed", &row_seed_));
    OP_REQUIRES(
        context, row_bits_ == 0 || IsRowBits(row_bits_),
        absl::InvalidArgumentError(absl::StrCat(
            "row_bits must be 0, 2, 3, 4, 5, 8 or 32, got ", row_bits_)));
    OP_REQUIRES_OK(context, context->GetAttr("codecs", &codecs));
    OP_REQUIRES_OK(context, context->GetAttr("start_steps", &start_steps_));
    OP_REQUIRES(
        context,
        codecs.size() == ids_.size() && start_steps_.size() == ids_.size(),
        absl::InvalidArgumentError(absl::StrCat(
            "codecs and start_steps must be one for each of ids, ", ids_.size(),
            ", got ", codecs.size(), " and ", start_steps_.size())));
    codecs_.resize(codecs.size());
    for (size_t i = 0; i < codecs.size(); ++i) {
      OP_REQUIRES_OK(context, ParseCodecSpec(codecs[i], &codecs_[i]));
    }
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    std::vector<DenseGradient> dense;
    std::vector<SparseGradient> sparse;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context, ReadDense(context, &dense));
    OP_REQUIRES_OK(context, ReadSparse(context, &sparse));
    OP_REQUIRES_OK(context, model->EncodePush(channel_, dense, sparse,
                                              IntraOpThreads(context),
                                              AllocateMessage(context)));
  }

 private:
  absl::Status ReadDense(OpKernelContext* context,
                         std::vector<DenseGradient>* gradients) const {
    OpInputList dense;
    const Tensor* multipliers;
    TF_RETURN_IF_ERROR(context->input_list("dense", &dense));
    TF_RETURN_IF_ERROR(context->input("multipliers", &multipliers));
    TF_RETURN_IF_ERROR(CheckVector(*multipliers, "multipliers"));
    if (dense.size() != static_cast<int>(ids_.size()) ||
        multipliers->NumElements() != dense.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dense and multipliers must be one for each of ids, ", ids_.size(),
          ", got ", dense.size(), " and ", multipliers->NumElements()));
    }
    for (int i = 0; i < dense.size(); ++i) {
      gradients->push_back({ids_[i], &codecs_[i], multipliers->flat<float>()(i),
                            start_steps_[i], dense[i]});
    }
    return absl::OkStatus();
  }

  absl::Status ReadSparse(OpKernelContext* context,
                          std::vector<SparseGradient>* gradients) const {
    OpInputList indices, values;
    TF_RETURN_IF_ERROR(context->input_list("sparse_indices", &indices));
    TF_RETURN_IF_ERROR(context->input_list("sparse_values", &values));
    if (indices.size() != static_cast<int>(sparse_ids_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("sparse_indices must be one for each of sparse_ids, ",
                       sparse_ids_.size(), ", got ", indices.size()));
    }
    for (int i = 0; i < indices.size(); ++i) {
      gradients->push_back({sparse_ids_[i], indices[i], values[i],
                            RowsShapeOf(sparse_shapes_[i]).rows, row_bits_,
                            row_start_step_, static_cast<uint64_t>(row_seed_)});
    }
    return absl::OkStatus();
  }

  uint32_t channel_;
  std::vector<uint32_t> ids_, sparse_ids_;
  std::vector<CodecSpec> codecs_;
  std::vector<int64_t> start_steps_;
  std::vector<TensorShape> sparse_shapes_;
  int row_bits_;
  int64_t row_start_step_;
  int64_t row_seed_;
};

class SettlePushOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    const uint8_t* bytes;
    int64_t size;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context, ReadBytes(context, 1, "push", &bytes, &size));
    OP_REQUIRES_OK(context, CheckScalar(context->input(2), "accepted"));
    std::vector<int64_t> counted;
    OP_REQUIRES_OK(context, ReadVector(context, 3, "counted", &counted));
    OP_REQUIRES_OK(context, model->SettlePush(
                                bytes, size, context->input(2).scalar<bool>()(),
                                {counted.begin(), counted.end()},
                                IntraOpThreads(context)));
  }
};

class UnsettledPushesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context, SetVector(context, 0, model->UnsettledPushes()));
  }
};

class SettleUnsettledOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    std::vector<int64_t> unsettled, counted;
    OP_REQUIRES_OK(context, ReadVector(context, 1, "unsettled", &unsettled));
    OP_REQUIRES_OK(context, ReadVector(context, 2, "counted", &counted));
    model->SettleUnsettled(unsettled, {counted.begin(), counted.end()});
  }
};

// Writes what a model keeps of one variable, the second input.
template <void (LocalModel::*kWrite)(uint32_t, const Tensor&)>
class WriteModelOp : public OpKernel {
 public:
  explicit WriteModelOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetId(context, "id", &id_));
  }

  void Compute(OpKernelContext* context) override try {
    RefCountPtr<LocalModel> model;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    (model.get()->*kWrite)(id_, context->input(1));
  } catch (const std::bad_alloc&) {
    context->SetStatus(NoMemoryError("what is restored"));
  }

 private:
  uint32_t id_;
};

class ForgetCopiesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<LocalModel> model;
    std::vector<int64_t> ids;
    OP_REQUIRES_OK(context, LookupModel(context, &model));
    OP_REQUIRES_OK(context, ReadVector(context, 1, "ids", &ids));
    model->Forget(ids);
  }
};

template <absl::Status (LocalModel::*kRead)(uint32_t, const TensorShape&,
                                            Tensor*) const>
class ReadModelOp : public ReadOp {
 public:
  using ReadOp::ReadOp;

  bool IsExpensive() override { return kRead != &LocalModel::Read; }

 private:
  absl::Status Read(OpKernelContext* context, uint32_t id,
                    const TensorShape& shape, Tensor* value) override {
    RefCountPtr<LocalModel> model;
    TF_RETURN_IF_ERROR(LookupModel(context, &model));
    return (model.get()->*kRead)(id, shape, value);
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>LocalModel", LocalModelOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>PullRequest", PullRequestOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ApplyPull", ApplyPullOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ReadModel", ReadModelOp<&LocalModel::Read>);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>EncodePush", EncodePushOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SettlePush", SettlePushOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>UnsettledPushes", UnsettledPushesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SettleUnsettled", SettleUnsettledOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ForgetCopies", ForgetCopiesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ReadResidual",
               ReadModelOp<&LocalModel::ReadResidual>);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>WriteResidual",
               WriteModelOp<&LocalModel::WriteResidual>);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ReadSecondMoment",
               ReadModelOp<&LocalModel::ReadSecondMoment>);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>WriteSecondMoment",
               WriteModelOp<&LocalModel::WriteSecondMoment>);

}  // namespace
}  // namespace tf_gc::parameter_server
