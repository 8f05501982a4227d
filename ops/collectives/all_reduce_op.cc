#include "ops/collectives/all_reduce_op.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/collective_transport.h"
#include "ops/collectives/mailbox.h"
#include "ops/collectives/sharded_server.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_gc {
namespace {

using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::CollectiveExecutor;
using ::tensorflow::CollectiveParams;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::core::RefCountPtr;

// The runtime resolves groups as part of instances. One instance serves every
// call: each other would cost an RPC and an entry in its table for good.
constexpr int kInstanceKey = 0x7fff0000;

bool IsCancelled(OpKernelContext* context) {
  CancellationManager* manager = context->cancellation_manager();
  return manager != nullptr &&
         (manager->IsCancelled() || manager->IsCancelling());
}

// Adds what one exchange has sent to the bucket's counts.
void CountTraffic(const Exchange& exchange, const Mailbox& mailbox,
                  Bucket* bucket) {
  Traffic traffic = bucket->traffic();
  ++traffic.rounds;
  traffic.bytes_sent += mailbox.bytes_sent();
  traffic.bytes_received += mailbox.bytes_received();
  for (int v = 0; v < bucket->variables(); ++v) {
    traffic.values_sent[v] += exchange.traffic()[v].values;
    traffic.payload_bytes_sent[v] += exchange.traffic()[v].bytes;
  }
  bucket->set_traffic(std::move(traffic));
}

}  // namespace

absl::Status GetHandle(const tensorflow::Tensor& input, const std::string& name,
                       tensorflow::ResourceHandle* handle) {
  if (!tensorflow::TensorShapeUtils::IsScalar(input.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a scalar resource handle, got shape ",
                     input.shape().DebugString()));
  }
  *handle = input.scalar<tensorflow::ResourceHandle>()();
  return absl::OkStatus();
}

AllReduceOp::AllReduceOp(OpKernelConstruction* context)
    : AsyncOpKernel(context) {
  std::string reduce_op;
  OP_REQUIRES_OK(context, context->GetAttr("group_key", &group_key_));
  OP_REQUIRES_OK(context, context->GetAttr("group_size", &group_size_));
  OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &reduce_op));
  OP_REQUIRES_OK(context,
                 context->GetAttr("timeout_seconds", &timeout_seconds_));
  mean_ = reduce_op == "MEAN";
}

void AllReduceOp::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  CollectiveExecutor* const executor = context->collective_executor();
  OP_REQUIRES_ASYNC(
      context, executor != nullptr && executor->remote_access() != nullptr,
      absl::FailedPreconditionError(
          "no collective runtime: create tf_gc.MultiWorkerMirroredStrategy, "
          "with TF_CONFIG set, before any other TensorFlow operation"),
      done);
  executor->RunClosure([this, context, executor, done = std::move(done)] {
    const absl::Status status = Run(context);
    if (!status.ok()) {
      if (!IsCancelled(context)) executor->StartAbort(status);
      context->SetStatus(status);
    }
    done();
  });
}

absl::Status AllReduceOp::Run(OpKernelContext* context) {
  const tensorflow::Tensor* input;
  TF_RETURN_IF_ERROR(context->input("bucket", &input));
  tensorflow::ResourceHandle handle;
  TF_RETURN_IF_ERROR(GetHandle(*input, "bucket", &handle));
  RefCountPtr<Bucket> bucket;
  TF_RETURN_IF_ERROR(LookupResource(context, handle, &bucket));
  OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
  if (gradients.size() != bucket->variables()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gradients: ", gradients.size(), " tensors for a bucket of ",
        bucket->variables(), " variables"));
  }
  std::lock_guard<std::mutex> lock(bucket->exchange_mutex());
  RefCountPtr<CollectiveParams> params(new CollectiveParams());
  TF_RETURN_IF_ERROR(ResolveGroup(context, params.get()));
  return AllReduce(context, [&](Hop* hop) {
    return RunExchange(context, params->group, bucket.get(), hop);
  });
}

absl::Status AllReduceOp::ResolveGroup(OpKernelContext* context,
                                       CollectiveParams* params) {
  params->name = name();
  params->group.group_key = group_key_;
  params->group.group_size = group_size_;
  params->group.device_type = tensorflow::DeviceType(tensorflow::DEVICE_CPU);
  params->instance.type = tensorflow::ALL_TO_ALL_COLLECTIVE;
  params->instance.data_type = tensorflow::DT_FLOAT;
  params->instance.instance_key = kInstanceKey;
  params->instance.shape = tensorflow::TensorShape({group_size_});
  // A timeout given here would start a sleeping thread for every call.
  params->instance.impl_details.timeout_seconds = 0;

  std::mutex mutex;
  std::condition_variable resolved;
  bool done = false;
  absl::Status status;
  CollectiveExecutor* const executor = context->collective_executor();
  executor->CompleteParamsAsync(context->device()->attributes(), params,
                                context->cancellation_manager(),
                                [&](const absl::Status& s) {
                                  std::lock_guard<std::mutex> lock(mutex);
                                  status = s;
                                  done = true;
                                  resolved.notify_one();
                                });
  std::unique_lock<std::mutex> lock(mutex);
  const auto is_done = [&] { return done; };
  if (timeout_seconds_ > 0 &&
      !resolved.wait_for(lock, std::chrono::duration<double>(timeout_seconds_),
                         is_done)) {
    const absl::Status timeout = absl::DeadlineExceededError(absl::StrCat(
        "not all ", group_size_, " workers came to the all-reduce within ",
        timeout_seconds_, " s (CommunicationOptions.timeout_seconds)"));
    lock.unlock();
    executor->StartAbort(timeout);  // makes the callback come
    lock.lock();
    resolved.wait(lock, is_done);
    return timeout;
  }
  resolved.wait(lock, is_done);
  return status;
}

absl::Status AllReduceOp::RunExchange(OpKernelContext* context,
                                      const tensorflow::CollGroupParams& group,
                                      Bucket* bucket, Hop* hop) {
  // Loops run the same op again and again: the iteration is part of the key.
  const auto& iteration = context->frame_iter();
  const auto transport = std::make_shared<CollectiveTransport>(
      context, group,
      absl::StrCat("tf_gc:", bucket->key(), ":", iteration.frame_id, ":",
                   iteration.iter_id));
  const int rank = transport->rank(), ranks = transport->size();
  if (rank < 0) {
    return absl::InternalError(absl::StrCat(
        context->device()->name(), " is not a member of group ", group_key_));
  }
  OpInputList gradients;
  TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
  std::vector<int64_t> sizes;
  for (const tensorflow::Tensor& gradient : gradients) {
    sizes.push_back(gradient.NumElements());
  }

  CancellationManager* const manager = context->cancellation_manager();
  CancellationToken token = CancellationManager::kInvalidToken;
  if (manager != nullptr) {
    token = manager->get_cancellation_token();
    if (!manager->RegisterCallback(token,
                                   [transport] { transport->Cancel(); })) {
      return absl::CancelledError("the step was cancelled");
    }
  }
  const absl::Cleanup deregister = [manager, token] {
    if (manager != nullptr) manager->DeregisterCallback(token);
  };
  const BucketLayout layout(sizes, ranks, hop->piece_values(),
                            hop->alignment());
  Mailbox mailbox(transport.get(), timeout_seconds_);
  Exchange exchange(&layout, rank, bucket->traffic().rounds, hop, &mailbox);
  TF_RETURN_IF_ERROR(ShardedServerAllReduce(&exchange));
  CountTraffic(exchange, mailbox, bucket);
  return absl::OkStatus();
}

}  // namespace tf_gc
