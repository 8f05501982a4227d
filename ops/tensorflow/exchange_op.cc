#include "ops/tensorflow/exchange_op.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ops/collectives/patience.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/tensorflow/collective_transport.h"
#include "ops/tensorflow/handles.h"
#include "tsl/profiler/lib/traceme.h"

namespace tf_gc {
namespace {

using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::CollectiveExecutor;
using ::tensorflow::CollectiveParams;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::core::RefCountPtr;
using ::tsl::profiler::TraceMe;
using ::tsl::profiler::TraceMeEncode;

// The runtime resolves groups as part of instances. One instance serves every
// call: each other would cost an RPC and an entry in its table for good.
constexpr int kInstanceKey = 0x7fff0000;

bool IsCancelled(OpKernelContext* context) {
  CancellationManager* manager = context->cancellation_manager();
  return manager != nullptr &&
         (manager->IsCancelled() || manager->IsCancelling());
}

void Warn(const Bucket& bucket, const std::string& what, double seconds) {
  // TF_CPP_MIN_LOG_LEVEL=2, which many programs set, lets errors through.
  LOG(ERROR) << "tf_gc: the exchange of " << bucket.label() << " waits for "
             << absl::StrFormat("%.0f s: ", seconds) << what;
}

// An exchange that fails ends all others of the process and of its peers, which
// see their transfers cancelled. This is what they report in place of that.
class FirstError {
 public:
  absl::Status Explain(const absl::Status& status, bool is_step_cancelled) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!absl::IsCancelled(status)) {
      if (first_.ok()) first_ = status;
      return status;
    }
    if (first_.ok() && is_step_cancelled) {
      first_ = absl::AbortedError(
          "a step was cancelled in the middle of an exchange: start all "
          "workers again from a checkpoint");
      return first_;
    }
    if (first_.ok()) {
      return absl::UnavailableError(absl::StrCat(
          "another worker has given up the exchange: ", status.message()));
    }
    return absl::Status(
        first_.code(),
        absl::StrCat("another exchange has failed before: ", first_.message()));
  }

 private:
  std::mutex mutex_;
  absl::Status first_;
};

// Ends all collectives of the process; returns the error that tells why.
absl::Status Abort(OpKernelContext* context, const absl::Status& status) {
  static auto* const first_error = new FirstError;
  const absl::Status error = first_error->Explain(status, IsCancelled(context));
  context->collective_executor()->StartAbort(error);
  return error;
}

}  // namespace

absl::Status ReadMaxBytes(OpKernelConstruction* context, int64_t* max_bytes) {
  TF_RETURN_IF_ERROR(context->GetAttr("max_bytes", max_bytes));
  if (*max_bytes >= 0 && *max_bytes <= kMaxPlainBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "max_bytes must be in 0 ... ", kMaxPlainBytes, ", got ", *max_bytes));
}

ExchangeOp::ExchangeOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
  OP_REQUIRES_OK(context, context->GetAttr("group_key", &group_key_));
  OP_REQUIRES_OK(context, context->GetAttr("group_size", &group_size_));
  OP_REQUIRES_OK(context,
                 context->GetAttr("timeout_seconds", &timeout_seconds_));
}

void ExchangeOp::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  CollectiveExecutor* const executor = context->collective_executor();
  OP_REQUIRES_ASYNC(
      context, executor != nullptr && executor->remote_access() != nullptr,
      absl::FailedPreconditionError(
          "no collective runtime: create tf_gc.MultiWorkerMirroredStrategy, "
          "with TF_CONFIG set, before any other TensorFlow operation"),
      done);
  executor->RunClosure([this, context, done = std::move(done)] {
    const absl::Status status = [&] {
      const TraceMe trace(
          [&] { return TraceMeEncode("tf_gc exchange", {{"op", name()}}); });
      return ResolveAndRun(context);
    }();
    // A step that was cancelled before its exchange began leaves the others be.
    if (!status.ok()) {
      context->SetStatus(IsCancelled(context) ? status
                                              : Abort(context, status));
    }
    done();
  });
}

absl::Status ExchangeOp::ResolveAndRun(OpKernelContext* context) {
  RefCountPtr<Bucket> bucket;
  TF_RETURN_IF_ERROR(LookupBucket(context, &bucket));
  std::lock_guard<std::mutex> lock(bucket->exchange_mutex());
  RefCountPtr<CollectiveParams> params(new CollectiveParams());
  TF_RETURN_IF_ERROR(ResolveGroup(context, *bucket, params.get()));
  return RunInGroup(context, params->group, bucket.get());
}

absl::Status ExchangeOp::ResolveGroup(OpKernelContext* context,
                                      const Bucket& bucket,
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
  if (!Patience(timeout_seconds_)
           .Wait(&lock, &resolved, is_done, [&](double seconds) {
             Warn(bucket, "not all workers have come to it", seconds);
           })) {
    const absl::Status timeout = absl::DeadlineExceededError(absl::StrCat(
        "not all ", group_size_, " workers came to the exchange within ",
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

// On a thread of the runtime, where nobody catches what is thrown.
absl::Status ExchangeOp::RunWithinMemory(OpKernelContext* context,
                                         Session* session) try {
  return Run(context, session);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory for an exchange's messages");
}

absl::Status ExchangeOp::RunInGroup(OpKernelContext* context,
                                    const tensorflow::CollGroupParams& group,
                                    Bucket* bucket) {
  // Loops run the same op again and again: the iteration is part of the key.
  const auto& iteration = context->frame_iter();
  const auto transport = std::make_shared<CollectiveTransport>(
      context, group,
      absl::StrCat("tf_gc:", bucket->key(), ":", iteration.frame_id, ":",
                   iteration.iter_id));
  if (transport->rank() < 0) {
    return absl::InternalError(absl::StrCat(
        context->device()->name(), " is not a member of group ", group_key_));
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
  Mailbox mailbox(
      transport.get(), Patience(timeout_seconds_),
      [&](const std::string& what, double seconds) {
        Warn(*bucket, what, seconds);
      },
      static_cast<uint32_t>(bucket->step()), LinkMonitor::OfProcess(),
      bucket->history(), bucket->measurement());
  Session session = {
      {transport->rank(), transport->size(),
       static_cast<uint32_t>(bucket->traffic().exchanges), &mailbox},
      Traffic(bucket->variables())};
  session.traffic.exchanges = 1;
  const absl::Status status = RunWithinMemory(context, &session);
  // Before the mailbox cancels what is under way: peers learn of the error.
  // Also of one that is the end of this worker's step alone: what was sent of
  // the step cannot be taken back.
  if (!status.ok()) return Abort(context, status);
  session.traffic.bytes_sent = mailbox.bytes_sent();
  session.traffic.bytes_received = mailbox.bytes_received();
  session.traffic.result_bytes_sent = mailbox.result_bytes_sent();
  session.traffic.microseconds_waited =
      std::chrono::duration_cast<std::chrono::microseconds>(
          mailbox.time_waited())
          .count();
  bucket->Count(session.traffic);
  return absl::OkStatus();
}

}  // namespace tf_gc
