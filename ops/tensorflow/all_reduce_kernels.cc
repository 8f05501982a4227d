// The all-reduces of gradients: kernels.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/exact_hop.h"
#include "ops/collectives/thc_all_reduce.h"
#include "ops/collectives/three_lc_hop.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/tensorflow/all_reduce_op.h"
#include "ops/tensorflow/bucket.h"
#include "ops/tensorflow/exact_variables.h"
#include "ops/tensorflow/feedback_buffers.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/hop_op.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/thc_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_gc {
namespace {

using kernels::ThreeLcScaling;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::core::RefCountPtr;

class BucketOp : public OpKernel {
 public:
  explicit BucketOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("variables", &variables_));
    OP_REQUIRES_OK(context, context->GetAttr("label", &label_));
    if (label_.empty()) label_ = absl::StrCat("bucket ", key_);
  }

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, OutputHandle(context, [this] {
                     return new Bucket(key_, variables_, label_);
                   }));
  }

 private:
  std::string key_;
  int variables_;
  std::string label_;
};

class BeginStepOp : public OpKernel {
 public:
  explicit BeginStepOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(context, context->GetAttr("group_size", &group_size_));
    std::string measures;
    OP_REQUIRES_OK(context, context->GetAttr("measures", &measures));
    measurement_ = measures == "latency" ? LinkMeasurement::kLatency
                                         : LinkMeasurement::kBandwidth;
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    OP_REQUIRES_OK(context, CheckScalar(context->input(1), "step"));
    OP_REQUIRES_OK(context, CheckScalar(context->input(2), "measures_links"));
    OP_REQUIRES(context,
                sizes_.empty() ||
                    static_cast<int>(sizes_.size()) == bucket->variables(),
                absl::InvalidArgumentError(absl::StrCat(
                    "sizes must be one for each of ", bucket->variables(),
                    " variables, got ", sizes_.size())));
    Traffic values(bucket->variables());
    if (!sizes_.empty()) values.AddStep(sizes_, group_size_);
    bucket->BeginStep(context->input(1).scalar<int64_t>()(),
                      context->input(2).scalar<bool>()()
                          ? measurement_
                          : LinkMeasurement::kNone,
                      std::move(values));
  }

 private:
  std::vector<int64_t> sizes_;
  int group_size_;
  LinkMeasurement measurement_;
};

class BucketTrafficOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    const Traffic traffic = bucket->traffic();
    const TensorShape scalar, by_variable({bucket->variables()});
    const struct {
      const TensorShape& shape;
      const int64_t* values;
    } outputs[] = {
        {scalar, &traffic.steps},
        {scalar, &traffic.exchanges},
        {scalar, &traffic.bytes_sent},
        {scalar, &traffic.bytes_received},
        {scalar, &traffic.result_bytes_sent},
        {by_variable, traffic.values_sent.data()},
        {by_variable, traffic.payload_bytes_sent.data()},
        {scalar, &traffic.shared_bytes_sent},
        {scalar, &traffic.microseconds_waited},
    };
    int index = 0;
    for (const auto& output : outputs) {
      OP_REQUIRES_OK(context,
                     Output(context, index++, output.shape, output.values));
    }
  }

 private:
  static absl::Status Output(OpKernelContext* context, int index,
                             const TensorShape& shape, const int64_t* values) {
    Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(index, shape, &output));
    std::copy_n(values, shape.num_elements(), output->flat<int64_t>().data());
    return absl::OkStatus();
  }
};

class ExactAllReduceOp : public AllReduceOp {
 public:
  explicit ExactAllReduceOp(OpKernelConstruction* context)
      : AllReduceOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("statistics", &statistics_));
  }

 private:
  absl::Status AllReduce(OpKernelContext* context, const RunHop& run) override {
    std::vector<ExactVariable> variables;
    TF_RETURN_IF_ERROR(ReadExactVariables(context, "gradients", "reduced",
                                          divisor(), statistics_, &variables));
    ExactHop hop(std::move(variables));
    return run(&hop);
  }

  int statistics_;
};

template <typename T>
class ThreeLcAllReduceOp : public AllReduceOp {
 public:
  explicit ThreeLcAllReduceOp(OpKernelConstruction* context)
      : AllReduceOp(context) {
    OP_REQUIRES_OK(context, GetRows(context, "rows", &rows_));
    std::string scale;
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale));
    scale_of_ = scale == "unit"   ? ThreeLcScaling::Of::kUnit
                : scale == "mean" ? ThreeLcScaling::Of::kMean
                                  : ThreeLcScaling::Of::kMax;
  }

 private:
  absl::Status AllReduce(OpKernelContext* context, const RunHop& run) override {
    ThreeLcScaling scaling(0, scale_of_);
    TF_RETURN_IF_ERROR(ReadMultiplier(context, &scaling));
    FeedbackBuffers<T> buffers(context);
    TF_RETURN_IF_ERROR(buffers.Prepare(rows_, "rows"));
    OpInputList statistics;
    TF_RETURN_IF_ERROR(context->input_list("statistics", &statistics));
    for (int i = 0; i < statistics.size(); ++i) {
      FeedbackVariable& variable = (*buffers.variables())[i];
      TF_RETURN_IF_ERROR(AreSmall(statistics[i], i, &variable));
    }
    ThreeLcHop hop(buffers.variables(), scaling, divisor(), buffers.commit(),
                   IntraOpThreads(context));
    TF_RETURN_IF_ERROR(run(&hop));
    return buffers.SetOutputs();
  }

  static absl::Status ReadMultiplier(OpKernelContext* context,
                                     ThreeLcScaling* scaling) {
    TF_RETURN_IF_ERROR(ReadScalar(context, "multiplier", &scaling->multiplier));
    if (scaling->IsValid()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("multiplier must be above 0 and less than ",
                     scaling->limit(), ", got ", scaling->multiplier));
  }

  std::vector<int64_t> rows_;
  ThreeLcScaling::Of scale_of_;
};

template <typename T>
class ThcAllReduceOp : public HopOp {
 public:
  explicit ThcAllReduceOp(OpKernelConstruction* context)
      : HopOp(context), companions_(context) {
    OP_REQUIRES_OK(context, GetRows(context, "unit_rows", &rows_));
    OP_REQUIRES_OK(context, GetBits(context, &bits_));
    OP_REQUIRES_OK(context, context->GetAttr("nearest", &is_nearest_));
    OP_REQUIRES_OK(context, context->GetAttr("truncation", &truncation_));
    OP_REQUIRES(
        context, truncation_ > 0 && std::isfinite(truncation_),
        absl::InvalidArgumentError(absl::StrCat(
            "truncation must be positive and finite, got ", truncation_)));
    OP_REQUIRES_OK(context, GetIsMean(context, &is_mean_));
  }

 private:
  absl::Status Run(OpKernelContext* context, Session* session) override {
    ThcScheme scheme;
    TF_RETURN_IF_ERROR(ReadScheme(context, &scheme));
    std::vector<int64_t> sizes;
    TF_RETURN_IF_ERROR(ReadSizes(context, *session, &sizes));
    FeedbackBuffers<T> buffers(context);
    TF_RETURN_IF_ERROR(buffers.Prepare(rows_, "unit_rows"));
    const kernels::ParallelFor threads = IntraOpThreads(context);
    const float divisor = is_mean_ ? group_size() : 1;
    ThcBucket bucket(buffers.variables(), std::move(scheme), session->ranks,
                     divisor, threads);
    Companions::Step companions;
    TF_RETURN_IF_ERROR(companions_.Read(context, divisor, &companions));
    TF_RETURN_IF_ERROR(ThcAllReduce(&bucket, buffers.commit(), topology(),
                                    *session, threads, companions.hop(),
                                    &session->traffic.shared_bytes_sent));
    companions.Count(session->ranks);
    session->traffic.exchanges = kThcRounds;
    session->traffic.AddStep(sizes, session->ranks);
    return buffers.SetOutputs();
  }

  absl::Status ReadScheme(OpKernelContext* context, ThcScheme* scheme) const {
    const Tensor *table, *signs, *rounding;
    TF_RETURN_IF_ERROR(context->input("table", &table));
    TF_RETURN_IF_ERROR(context->input("signs", &signs));
    TF_RETURN_IF_ERROR(context->input("rounding", &rounding));
    TF_RETURN_IF_ERROR(ReadThcTable(*table, bits_, &scheme->table));
    TF_RETURN_IF_ERROR(ReadSeed(*signs, &scheme->signs));
    if (!is_nearest_) {
      TF_RETURN_IF_ERROR(ReadSeed(*rounding, &scheme->rounding.emplace()));
    }
    scheme->truncation = truncation_;
    return absl::OkStatus();
  }

  std::vector<int64_t> rows_;
  int bits_;
  float truncation_;
  bool is_mean_, is_nearest_;
  const Companions companions_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>Bucket", BucketOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>BeginStep", BeginStepOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>BucketTraffic", BucketTrafficOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ExactAllReduce", ExactAllReduceOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ThreeLcAllReduce", ThreeLcAllReduceOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>ThcAllReduce", ThcAllReduceOp);

}  // namespace
}  // namespace tf_gc
