// What exchanges tell of the network: kernels.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/collectives/link_monitor.h"
#include "ops/collectives/pair_probe.h"
#include "ops/collectives/wait_clock.h"
#include "ops/tensorflow/exchange_op.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class NetworkSamplesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const std::vector<LinkMonitor::Sample> samples =
        LinkMonitor::OfProcess()->Take();
    const int64_t rows = samples.size();
    Tensor* output;
    OP_REQUIRES_OK(
        context, context->allocate_output(0, TensorShape({rows, 4}), &output));
    auto matrix = output->matrix<double>();
    for (int64_t i = 0; i < rows; ++i) {
      matrix(i, 0) = samples[i].bytes;
      matrix(i, 1) = samples[i].seconds;
      matrix(i, 2) = samples[i].transfers;
      matrix(i, 3) = samples[i].is_asked_for;
    }
  }
};

class TimeWaitedOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const WaitClock::Seconds seconds = WaitClock::OfProcess()->Read();
    Tensor* waited;
    Tensor* total;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({}), &waited));
    OP_REQUIRES_OK(context,
                   context->allocate_output(1, TensorShape({}), &total));
    waited->scalar<double>()() = seconds.waited;
    total->scalar<double>()() = seconds.total;
  }
};

class ExchangeProbeOp : public ExchangeOp {
 public:
  explicit ExchangeProbeOp(OpKernelConstruction* context)
      : ExchangeOp(context) {
    OP_REQUIRES_OK(context, ReadMaxBytes(context, &max_bytes_));
  }

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& input = context->input(0);
    TF_RETURN_IF_ERROR(CheckVector(input, "sizes"));
    const auto values = input.flat<int64_t>();
    const std::vector<int64_t> sizes(values.data(),
                                     values.data() + values.size());
    std::vector<double> seconds;
    TF_RETURN_IF_ERROR(ProbePairs(sizes, *session, max_bytes_, &seconds));
    for (int rank = 0; rank < session->ranks; ++rank) {
      if (rank == session->rank) continue;
      session->traffic.shared_bytes_sent += sizes[rank];
    }
    Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(0, input.shape(), &output));
    std::copy(seconds.begin(), seconds.end(), output->flat<double>().data());
    return absl::OkStatus();
  }

  int64_t max_bytes_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>NetworkSamples", NetworkSamplesOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>TimeWaited", TimeWaitedOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeProbe", ExchangeProbeOp);

}  // namespace
}  // namespace tf_gc
