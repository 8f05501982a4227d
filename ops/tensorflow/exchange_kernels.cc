// The exchanges that compressors are made of: kernels.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/collectives/exact_hop.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/tensorflow/exchange_op.h"
#include "ops/tensorflow/hop_op.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename T>
class ExchangeSumOp : public HopOp {
 public:
  using HopOp::HopOp;

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& values = context->input(0);
    TF_RETURN_IF_ERROR(CheckVector(values, "values"));
    Tensor* sum;
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(
        {0}, 0, values.shape(), &sum));
    const Exact<T> vector = {values.flat<T>().data(),
                             sum->template flat<T>().data()};
    ExactHop hop({vector});
    return AllReduceAndCarry(context, values.NumElements(), &hop, session);
  }
};

// Exchanges messages of at most the attribute `max_bytes`.
class PlainExchangeOp : public ExchangeOp {
 public:
  explicit PlainExchangeOp(OpKernelConstruction* context)
      : ExchangeOp(context) {
    OP_REQUIRES_OK(context, ReadMaxBytes(context, &max_bytes_));
  }

 protected:
  int64_t max_bytes() const { return max_bytes_; }

 private:
  int64_t max_bytes_;
};

class ExchangeAllGatherOp : public PlainExchangeOp {
 public:
  using PlainExchangeOp::PlainExchangeOp;

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor& data = context->input(0);
    TF_RETURN_IF_ERROR(CheckVector(data, "data"));
    std::vector<Bytes> parts;
    TF_RETURN_IF_ERROR(AllGather([&] { return BytesOf(data); },
                                 data.NumElements(), *session, &parts,
                                 max_bytes()));
    session->traffic.shared_bytes_sent =
        (session->ranks - 1) * data.NumElements();

    int64_t total = 0;
    for (const Bytes& part : parts) total += part.size();
    Tensor *gathered, *sizes;
    TF_RETURN_IF_ERROR(
        context->allocate_output(0, TensorShape({total}), &gathered));
    TF_RETURN_IF_ERROR(
        context->allocate_output(1, TensorShape({session->ranks}), &sizes));
    uint8_t* out = gathered->flat<uint8_t>().data();
    for (int rank = 0; rank < session->ranks; ++rank) {
      out = std::copy_n(parts[rank].data(), parts[rank].size(), out);
      sizes->flat<int64_t>()(rank) = parts[rank].size();
    }
    return absl::OkStatus();
  }
};

class ExchangeBroadcastOp : public PlainExchangeOp {
 public:
  using PlainExchangeOp::PlainExchangeOp;

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    const Tensor &data = context->input(0), &root = context->input(1);
    TF_RETURN_IF_ERROR(CheckVector(data, "data"));
    TF_RETURN_IF_ERROR(CheckScalar(root, "root"));
    Bytes bytes;
    int receivers = 0;
    TF_RETURN_IF_ERROR(Broadcast(BytesOf(data), data.NumElements(),
                                 root.scalar<int32_t>()(), *session, &bytes,
                                 &receivers, max_bytes()));
    session->traffic.shared_bytes_sent = receivers * bytes.size();
    Tensor* received;
    TF_RETURN_IF_ERROR(
        context->allocate_output(0, TensorShape({bytes.size()}), &received));
    std::copy_n(bytes.data(), bytes.size(), received->flat<uint8_t>().data());
    return absl::OkStatus();
  }
};

TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ExchangeSum", ExchangeSumOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeAllGather", ExchangeAllGatherOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExchangeBroadcast", ExchangeBroadcastOp);

}  // namespace
}  // namespace tf_gc
