// The ops of gradients that have few rows, on the CPU.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/denormals.h"
#include "ops/tensorflow/bucket.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/wire/rows.h"
#include "ops/wire/seeds.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::core::RefCountPtr;

absl::Status ReadRows(const Tensor& indices, const Tensor& values, int i,
                      const RowsShape& shape, Rows* rows) {
  if (indices.dims() != 1 || values.dims() < 1 ||
      values.dim_size(0) != indices.NumElements() ||
      RowsShapeOf(values.shape()).length != shape.length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "values[", i, "] must have a row of ", shape.length, " values for each",
        " of indices[", i, "], got shapes ", values.shape().DebugString(),
        " and ", indices.shape().DebugString()));
  }
  if (!CanPackRows(shape)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shapes[", i, "] must have less than 2^31 rows, got ", shape.rows));
  }
  const auto all = indices.flat<int64_t>();
  for (int64_t j = 0; j < all.size(); ++j) {
    if (all(j) < 0 || all(j) >= shape.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("indices[", i, "] must be in 0 ... ", shape.rows - 1,
                       ", got ", all(j), " at index ", j));
    }
  }
  const auto flat = values.flat<float>();
  *rows = {shape.length,
           {all.data(), all.data() + all.size()},
           {flat.data(), flat.data() + flat.size()}};
  return absl::OkStatus();
}

// The variables' shapes. The op's shape function, which checks the same, is not
// called eagerly.
absl::Status ReadShapes(OpKernelConstruction* context,
                        std::vector<TensorShape>* shapes) {
  int variables;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &variables));
  TF_RETURN_IF_ERROR(context->GetAttr("shapes", shapes));
  if (static_cast<int>(shapes->size()) != variables) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes must be one for each of ", variables,
                     " variables, got ", shapes->size()));
  }
  for (size_t i = 0; i < shapes->size(); ++i) {
    if ((*shapes)[i].dims() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes[", i, "] must have rows, got []"));
    }
  }
  return absl::OkStatus();
}

class PackRowsOp : public OpKernel {
 public:
  explicit PackRowsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadShapes(context, &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("bits", &bits_));
    OP_REQUIRES(context, IsRowBits(bits_),
                absl::InvalidArgumentError(absl::StrCat(
                    "bits must be 2, 3, 4, 5, 8 or 32, got ", bits_)));
    OP_REQUIRES_OK(context, context->GetAttr("group_size", &group_size_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    std::vector<Rows> rows;
    const Tensor* seed_input;
    kernels::Seed seed;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    OP_REQUIRES_OK(context, ReadAll(context, &rows));
    OP_REQUIRES_OK(context, context->input("seed", &seed_input));
    OP_REQUIRES_OK(context, ReadSeed(*seed_input, &seed));
    OP_REQUIRES(context, bucket->variables() == static_cast<int>(rows.size()),
                absl::InvalidArgumentError(absl::StrCat(
                    "indices: ", rows.size(), " tensors for a bucket of ",
                    bucket->variables(), " variables")));
    OP_REQUIRES_OK(context, Pack(context, rows, seed));
    std::vector<int64_t> sizes;
    for (const Rows& r : rows) sizes.push_back(r.count() * r.length);
    Traffic step(bucket->variables());
    step.AddStep(sizes, group_size_);
    bucket->Count(step);
  }

 private:
  absl::Status ReadAll(OpKernelContext* context,
                       std::vector<Rows>* gradients) const {
    OpInputList indices, values;
    TF_RETURN_IF_ERROR(context->input_list("indices", &indices));
    TF_RETURN_IF_ERROR(context->input_list("values", &values));
    for (int i = 0; i < indices.size(); ++i) {
      Rows rows;
      TF_RETURN_IF_ERROR(
          ReadRows(indices[i], values[i], i, RowsShapeOf(shapes_[i]), &rows));
      gradients->push_back(SumRows(rows));
    }
    return absl::OkStatus();
  }

  absl::Status Pack(OpKernelContext* context, const std::vector<Rows>& rows,
                    kernels::Seed seed) const {
    int64_t size = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      size += PackedRowsSize(rows[i].count(), RowsShapeOf(shapes_[i]), bits_);
    }
    Tensor* message = nullptr;
    TF_RETURN_IF_ERROR(
        context->allocate_output(0, TensorShape({size}), &message));
    uint8_t* at = message->flat<uint8_t>().data();
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowsShape shape = RowsShapeOf(shapes_[i]);
      PackRows(rows[i], shape, bits_, {MixBits(seed.key ^ i), seed.stream},
               IntraOpThreads(context), at);
      at += PackedRowsSize(rows[i].count(), shape, bits_);
    }
    return absl::OkStatus();
  }

  std::vector<TensorShape> shapes_;
  int bits_;
  int group_size_;
};

class SumPackedRowsOp : public OpKernel {
 public:
  explicit SumPackedRowsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadShapes(context, &shapes_));
  }

  void Compute(OpKernelContext* context) override {
    const kernels::KeepDenormals keep_denormals;
    OpOutputList indices, values;
    OP_REQUIRES_OK(context, context->output_list("indices", &indices));
    OP_REQUIRES_OK(context, context->output_list("values", &values));
    const uint8_t* const messages = BytesOf(context->input(0));
    const Tensor& splits = context->input(1);
    OP_REQUIRES_OK(context, CheckSplits(splits, context->input(0)));
    std::vector<Rows> all(shapes_.size());
    for (int m = 0; m + 1 < splits.NumElements(); ++m) {
      OP_REQUIRES_OK(context,
                     Append(m, messages + splits.vec<int64_t>()(m),
                            messages + splits.vec<int64_t>()(m + 1), &all));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const Rows sums = SumRows(all[i]);
      TensorShape shape = shapes_[i];
      shape.set_dim(0, sums.count());
      Tensor *of_indices = nullptr, *of_values = nullptr;
      OP_REQUIRES_OK(context, indices.allocate(i, TensorShape({sums.count()}),
                                               &of_indices));
      OP_REQUIRES_OK(context, values.allocate(i, shape, &of_values));
      std::copy(sums.indices.begin(), sums.indices.end(),
                of_indices->flat<int64_t>().data());
      std::copy(sums.values.begin(), sums.values.end(),
                of_values->flat<float>().data());
    }
  }

 private:
  static absl::Status CheckSplits(const Tensor& splits,
                                  const Tensor& messages) {
    TF_RETURN_IF_ERROR(CheckVector(messages, "messages"));
    TF_RETURN_IF_ERROR(CheckVector(splits, "row_splits"));
    const auto begins = splits.flat<int64_t>();
    if (begins.size() >= 2 && begins(0) == 0 &&
        begins(begins.size() - 1) == messages.NumElements() &&
        std::is_sorted(begins.data(), begins.data() + begins.size())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("row_splits must ascend from 0 to the ",
                     messages.NumElements(), " bytes of messages"));
  }

  // Reads the m-th message, and adds its rows to those of all.
  absl::Status Append(int m, const uint8_t* at, const uint8_t* end,
                      std::vector<Rows>* all) const {
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Rows rows;
      TF_RETURN_IF_ERROR(
          UnpackRows(absl::StrCat("messages[", m, "], variable ", i),
                     RowsShapeOf(shapes_[i]), &at, end, &rows));
      AppendRows(rows, &(*all)[i]);
      (*all)[i].length = rows.length;
    }
    if (at == end) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("messages[", m, "]: ", end - at,
                                            " bytes behind the last rows"));
  }

  std::vector<TensorShape> shapes_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>PackRows", PackRowsOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>SumPackedRows", SumPackedRowsOp);

}  // namespace
}  // namespace tf_gc
