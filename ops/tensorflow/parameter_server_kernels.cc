// The ops of a parameter server: kernels around ops/parameter_server/server.h.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/published_model.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/variable.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/parameter_server_inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/wire/header.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::CancellationManager;
using ::tensorflow::Env;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::ResourceBase;
using ::tensorflow::ResourceHandle;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::Var;
using ::tensorflow::core::RefCountPtr;

absl::Status LookupServer(OpKernelContext* context,
                          RefCountPtr<Server>* server) {
  return LookupFirst(context, "server", server);
}

WeakHandle ToWeak(const ResourceHandle& handle) {
  if (!handle.IsRefCounting()) return handle;
  return tensorflow::core::WeakPtr<ResourceBase>(handle.resource().get());
}

// The variable, or null if it is gone.
absl::Status LookupVariable(OpKernelContext* context, const WeakHandle& handle,
                            RefCountPtr<Var>* variable) {
  if (const auto* name = std::get_if<ResourceHandle>(&handle)) {
    const absl::Status found = LookupResource(context, *name, variable);
    return absl::IsNotFound(found) ? absl::OkStatus() : found;
  }
  const auto& weak = std::get<tensorflow::core::WeakPtr<ResourceBase>>(handle);
  variable->reset(static_cast<Var*>(weak.GetNewRef().release()));
  return absl::OkStatus();
}

// What variables hold that are there and initialized. Like those of
// ReadVariableOp, tensors are the variables' own where nobody writes to these
// in place.
absl::Status ReadVariables(OpKernelContext* context,
                           const std::vector<Server::Handle>& handles,
                           Values* values) {
  for (const Server::Handle& handle : handles) {
    RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupVariable(context, handle.handle, &variable));
    if (variable == nullptr) continue;
    tensorflow::tf_shared_lock lock(*variable->mu());
    if (!variable->is_initialized) continue;
    const Tensor& value = *variable->tensor();
    if (value.dtype() != tensorflow::DT_FLOAT ||
        value.shape() != handle.variable->shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", handle.variable->name, " must be float32 ",
                       handle.variable->shape.DebugString(), ", got ",
                       value.DeviceSafeDebugString()));
    }
    Tensor& copy = (*values)[handle.variable->id] = value;
    if (variable->copy_on_read_mode) {
      copy = Tensor(value.dtype(), value.shape());
      if (!copy.IsInitialized()) {
        return NoMemoryError("a version of the model");
      }
      copy.flat<float>() = value.flat<float>();
    }
  }
  return absl::OkStatus();
}

Server::Read ReadFrom(OpKernelContext* context) {
  return [context](const std::vector<Server::Handle>& handles, Values* values) {
    return ReadVariables(context, handles, values);
  };
}

class ParameterServerOp : public OpKernel {
 public:
  explicit ParameterServerOp(OpKernelConstruction* context)
      : OpKernel(context) {
    float lease_seconds;
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &name_));
    OP_REQUIRES_OK(context,
                   context->GetAttr("synchronous", &options_.synchronous));
    OP_REQUIRES_OK(context, context->GetAttr("pushes_per_round",
                                             &options_.pushes_per_round));
    OP_REQUIRES_OK(context,
                   context->GetAttr("max_staleness", &options_.max_staleness));
    OP_REQUIRES_OK(context, context->GetAttr("updates_per_version",
                                             &options_.updates_per_version));
    OP_REQUIRES_OK(context, context->GetAttr("lease_seconds", &lease_seconds));
    OP_REQUIRES(context, lease_seconds >= 0 && lease_seconds <= 1e9,
                absl::InvalidArgumentError(absl::StrCat(
                    "lease_seconds must be in [0, 1e9], got ", lease_seconds)));
    options_.lease_seconds = lease_seconds;
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    OP_REQUIRES_OK(context,
                   OutputResource<Server>(
                       context, container_, name_,
                       [this] { return new Server(options_); }, &server));
    OP_REQUIRES(context, server->options() == options_,
                absl::InvalidArgumentError(absl::StrCat(
                    "shared_name: there is a server ", name_,
                    " already that was made with other arguments")));
  }

 private:
  std::string container_, name_;
  ServerOptions options_;
};

class CleanUpOp : public OpKernel {
 public:
  explicit CleanUpOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES(context, !container_.empty(),
                absl::InvalidArgumentError(
                    "container must not be empty: that is everybody's"));
  }

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, context->resource_manager()->Cleanup(container_));
  }

 private:
  std::string container_;
};

class AddVariableOp : public OpKernel {
 public:
  explicit AddVariableOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string push, pull;
    OP_REQUIRES_OK(context, GetId(context, "id", &info_.id));
    OP_REQUIRES_OK(context, context->GetAttr("variable_name", &info_.name));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &info_.shape));
    OP_REQUIRES_OK(context, context->GetAttr("push", &push));
    OP_REQUIRES_OK(context, context->GetAttr("pull", &pull));
    OP_REQUIRES_OK(context, context->GetAttr("start_step", &info_.start_step));
    OP_REQUIRES_OK(context, ParseCodecSpec(push, &info_.push));
    OP_REQUIRES_OK(context, ParseCodecSpec(pull, &info_.pull));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    ResourceHandle variable;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context,
                   GetHandle(context->input(1), "variable", &variable));
    OP_REQUIRES_OK(context, variable.ValidateType<Var>());
    OP_REQUIRES_OK(context, server->AddVariable(info_, ToWeak(variable)));
  }

 private:
  VariableInfo info_;
};

class PullOp : public AsyncOpKernel {
 public:
  explicit PullOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, GetIds(context, "ids", &ids_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto call = std::make_shared<Call>();
    call->context = context;
    call->done = done;
    OP_REQUIRES_OK_ASYNC(context, LookupServer(context, &call->server), done);
    OP_REQUIRES_OK_ASYNC(context, CheckVector(context->input(1), "request"),
                         done);
    const auto request = context->input(1).flat<int64_t>();
    OP_REQUIRES_OK_ASYNC(
        context,
        ReadPullRequest(request.data(), request.size(), &call->request), done);
    OP_REQUIRES_OK_ASYNC(
        context,
        call->server->Refresh(ids_, ReadFrom(context), IntraOpThreads(context)),
        done);
    if (call->request.patience_micros == 0 || !Park(call)) Finish(call);
  }

 private:
  // A pull under way. What is parked keeps it, and may be the last to do so, on
  // the server's own thread: hence Finish lets go of the server.
  struct Call {
    OpKernelContext* context;
    DoneCallback done;
    RefCountPtr<Server> server;
    PullRequest request;
    tensorflow::CancellationToken token = CancellationManager::kInvalidToken;
    std::atomic<bool> is_cancelled{false};
  };

  // False if there is nothing to wait for. Otherwise Finish runs on a thread of
  // its own, as early as now.
  bool Park(const std::shared_ptr<Call>& call) {
    const RefCountPtr<Server> server = call->server.GetNewRef();
    const int64_t ticket = server->parked_calls().Ticket();
    CancellationManager* const manager = call->context->cancellation_manager();
    if (manager != nullptr) {
      call->token = manager->get_cancellation_token();
      const bool is_registered =
          manager->RegisterCallback(call->token, [call = call.get(), ticket] {
            call->is_cancelled = true;
            call->server->parked_calls().Wake(ticket);
          });
      if (!is_registered) {
        call->token = CancellationManager::kInvalidToken;
        call->is_cancelled = true;
        return false;
      }
    }
    const bool is_parked = server->Park(call->request, ticket, [=] {
      // Not on an intra-op thread: whoever has the server locked needs those.
      Env::Default()->SchedClosure([=] { Finish(call); });
    });
    // Cancelled before it was parked: nobody has woken it.
    if (is_parked && call->is_cancelled) server->parked_calls().Wake(ticket);
    return is_parked;
  }

  void Finish(const std::shared_ptr<Call>& call) {
    OpKernelContext* const context = call->context;
    if (call->token != CancellationManager::kInvalidToken) {
      // Waits for the callback, if that is running.
      context->cancellation_manager()->DeregisterCallback(call->token);
    }
    Tensor message;
    context->SetStatus(call->is_cancelled
                           ? absl::CancelledError("the pull was cancelled")
                           : call->server->Pull(call->request, ids_, &message));
    if (context->status().ok()) context->set_output(0, message);
    call->server.reset();
    // It may destroy this kernel.
    const DoneCallback done = std::move(call->done);
    done();
  }

  std::vector<uint32_t> ids_;
};

class AccumulatePushOp : public OpKernel {
 public:
  explicit AccumulatePushOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("master", &master_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    const uint8_t* bytes;
    int64_t size;
    Answer answer;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadBytes(context, 1, "push", &bytes, &size));
    OP_REQUIRES_OK(context,
                   server->AccumulatePush(bytes, size, master_,
                                          IntraOpThreads(context), &answer));
    OP_REQUIRES_OK(context, SetScalar(context, 0, answer.accepted));
    OP_REQUIRES_OK(context, SetScalar(context, 1, answer.ready));
    OP_REQUIRES_OK(context, SetScalar(context, 2, answer.round));
    OP_REQUIRES_OK(context,
                   SetVector(context, 3,
                             std::vector<int64_t>(answer.counted.begin(),
                                                  answer.counted.end())));
  }

 private:
  bool master_;
};

class TakeGradientsOp : public OpKernel {
 public:
  explicit TakeGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context,
                   GetIdsAndShapes(context, "ids", "shapes", &ids_, &shapes_));
    OP_REQUIRES_OK(context,
                   GetIdsAndShapes(context, "sparse_ids", "sparse_shapes",
                                   &sparse_ids_, &sparse_shapes_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    const uint8_t* bytes;
    int64_t size;
    Gradients gradients;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadBytes(context, 1, "push", &bytes, &size));
    OP_REQUIRES_OK(context,
                   server->TakeGradients(bytes, size, ids_, sparse_ids_,
                                         IntraOpThreads(context), &gradients));
    OP_REQUIRES_OK(context, OutputDense(context, gradients.dense));
    OP_REQUIRES_OK(context,
                   OutputSecondMoments(context, gradients.second_moments));
    OP_REQUIRES_OK(context, OutputSparse(context, gradients.sparse));
  }

 private:
  absl::Status OutputDense(OpKernelContext* context,
                           const std::vector<Tensor>& gradients) const {
    OpOutputList outputs;
    TF_RETURN_IF_ERROR(context->output_list("dense", &outputs));
    for (size_t i = 0; i < gradients.size(); ++i) {
      Tensor output;
      if (!output.CopyFrom(gradients[i], shapes_[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat("shapes[", i, "]: variable ", ids_[i], " has ",
                         gradients[i].NumElements(), " values, got shape ",
                         shapes_[i].DebugString()));
      }
      outputs.set(i, output);
    }
    return absl::OkStatus();
  }

  // As many values as the gradients, which have been output, or none.
  absl::Status OutputSecondMoments(OpKernelContext* context,
                                   const std::vector<Tensor>& moments) const {
    OpOutputList outputs;
    TF_RETURN_IF_ERROR(context->output_list("second_moments", &outputs));
    for (size_t i = 0; i < moments.size(); ++i) {
      Tensor output = moments[i];
      if (output.NumElements() > 0) {
        CHECK(output.CopyFrom(moments[i], shapes_[i]));
      }
      outputs.set(i, output);
    }
    return absl::OkStatus();
  }

  absl::Status OutputSparse(OpKernelContext* context,
                            const std::vector<Rows>& gradients) const {
    OpOutputList indices, values;
    TF_RETURN_IF_ERROR(context->output_list("sparse_indices", &indices));
    TF_RETURN_IF_ERROR(context->output_list("sparse_values", &values));
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Rows& rows = gradients[i];
      TensorShape shape = sparse_shapes_[i];
      if (shape.dims() < 1 || RowsShapeOf(shape).length != rows.length) {
        return absl::InvalidArgumentError(
            absl::StrCat("sparse_shapes[", i, "]: variable ", sparse_ids_[i],
                         " has rows of ", rows.length, " values, got shape ",
                         shape.DebugString()));
      }
      shape.set_dim(0, rows.count());
      Tensor *output_indices = nullptr, *output_values = nullptr;
      TF_RETURN_IF_ERROR(
          indices.allocate(i, TensorShape({rows.count()}), &output_indices));
      TF_RETURN_IF_ERROR(values.allocate(i, shape, &output_values));
      std::copy(rows.indices.begin(), rows.indices.end(),
                output_indices->flat<int64_t>().data());
      std::copy(rows.values.begin(), rows.values.end(),
                output_values->flat<float>().data());
    }
    return absl::OkStatus();
  }

  std::vector<uint32_t> ids_, sparse_ids_;
  std::vector<TensorShape> shapes_, sparse_shapes_;
};

class CountedPushesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    std::vector<int64_t> unsettled, counted;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadVector(context, 1, "unsettled", &unsettled));
    OP_REQUIRES_OK(context, server->CountedPushes(unsettled, &counted));
    OP_REQUIRES_OK(context, SetVector(context, 0, counted));
  }
};

class BeginUpdateOp : public OpKernel {
 public:
  explicit BeginUpdateOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetId(context, "channel", &channel_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    int64_t round;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadScalar(context, "round", &round));
    OP_REQUIRES_OK(context,
                   SetScalar(context, 0, server->BeginUpdate(channel_, round)));
  }

 private:
  uint32_t channel_;
};

class EndUpdateOp : public OpKernel {
 public:
  explicit EndUpdateOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetIds(context, "ids", &ids_));
    OP_REQUIRES_OK(context, GetId(context, "channel", &channel_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    std::vector<std::pair<uint32_t, float>> multipliers;
    int64_t round, version;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadScalar(context, "round", &round));
    OP_REQUIRES_OK(context, ReadMultipliers(context, &multipliers));
    OP_REQUIRES_OK(context, server->EndUpdate(
                                channel_, round, multipliers, ReadFrom(context),
                                IntraOpThreads(context), &version));
    OP_REQUIRES_OK(context, SetScalar(context, 0, version));
  }

 private:
  absl::Status ReadMultipliers(
      OpKernelContext* context,
      std::vector<std::pair<uint32_t, float>>* multipliers) const {
    const Tensor* input;
    TF_RETURN_IF_ERROR(context->input("multipliers", &input));
    TF_RETURN_IF_ERROR(CheckVector(*input, "multipliers"));
    if (input->NumElements() != static_cast<int64_t>(ids_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("multipliers must be one for each of ids, ", ids_.size(),
                       ", got ", input->NumElements()));
    }
    for (size_t i = 0; i < ids_.size(); ++i) {
      multipliers->emplace_back(ids_[i], input->flat<float>()(i));
    }
    return absl::OkStatus();
  }

  uint32_t channel_;
  std::vector<uint32_t> ids_;
};

class PublishWholeOp : public OpKernel {
 public:
  explicit PublishWholeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetIds(context, "ids", &ids_));
    OP_REQUIRES_OK(context, GetIds(context, "outdated", &outdated_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context,
                   server->PublishWhole(ids_, outdated_, ReadFrom(context)));
  }

 private:
  std::vector<uint32_t> ids_, outdated_;
};

class ForgetVariablesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    std::vector<int64_t> ids, channels;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, ReadVector(context, 1, "ids", &ids));
    OP_REQUIRES_OK(context, ReadVector(context, 2, "channels", &channels));
    server->Forget(ids, channels);
  }
};

class SetServerStepOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    OP_REQUIRES_OK(context, CheckScalar(context->input(1), "step"));
    const int64_t step = context->input(1).scalar<int64_t>()();
    OP_REQUIRES(context, step >= 0,
                absl::InvalidArgumentError(
                    absl::StrCat("step must be at least 0, got ", step)));
    server->SetStep(step);
  }
};

class ServerStatisticsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Server> server;
    OP_REQUIRES_OK(context, LookupServer(context, &server));
    const ServerStatistics s = server->Statistics();
    std::vector<std::vector<int64_t>> outputs(7);
    outputs[0] = {
        s.version,        s.step,      s.updates,         s.pushes_accepted,
        s.pushes_dropped, s.pulls,     s.bytes_pushed,    s.bytes_pulled,
        s.encodings,      s.log_bytes, s.pushes_in_round, s.leases_passed_on,
        s.parked_pulls};
    for (const auto& [id, traffic] : s.variables) {
      outputs[1].push_back(id);
      outputs[2].push_back(traffic.values_pushed);
      outputs[3].push_back(traffic.bytes_pushed);
      outputs[4].push_back(traffic.second_moment_bytes_pushed);
      outputs[5].push_back(traffic.values_pulled);
      outputs[6].push_back(traffic.bytes_pulled);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      OP_REQUIRES_OK(context, SetVector(context, i, outputs[i]));
    }
  }
};

class ReadRoundOp : public ReadOp {
 public:
  using ReadOp::ReadOp;

 private:
  absl::Status Read(OpKernelContext* context, uint32_t id,
                    const TensorShape& shape, Tensor* value) override {
    RefCountPtr<Server> server;
    Tensor sum;
    TF_RETURN_IF_ERROR(LookupServer(context, &server));
    TF_RETURN_IF_ERROR(server->ReadRound(id, IntraOpThreads(context), &sum));
    if (sum.NumElements() == 0) {
      *value = sum;
      return absl::OkStatus();
    }
    if (value->CopyFrom(sum, shape)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("shape: variable ", id, " has ", sum.NumElements(),
                     " values, got shape ", shape.DebugString()));
  }
};

class LibraryVersionOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(
        context, SetScalar(context, 0,
                           tensorflow::tstring(absl::StrCat(
                               kWireVersion, " ", TF_GC_TENSORFLOW_VERSION))));
  }
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>ParameterServer", ParameterServerOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>CleanUp", CleanUpOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>AddVariable", AddVariableOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>Pull", PullOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>AccumulatePush", AccumulatePushOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>TakeGradients", TakeGradientsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>BeginUpdate", BeginUpdateOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>CountedPushes", CountedPushesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>EndUpdate", EndUpdateOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>PublishWhole", PublishWholeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ForgetVariables", ForgetVariablesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SetServerStep", SetServerStepOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ServerStatistics", ServerStatisticsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ReadRound", ReadRoundOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>LibraryVersion", LibraryVersionOp);

}  // namespace
}  // namespace tf_gc::parameter_server
