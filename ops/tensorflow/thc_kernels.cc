// THC's quantiser on the CPU: checks of the inputs around ops/kernels.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/thc.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/quantization_inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/thc_inputs.h"
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

bool IsMatrixOfBlocks(const Tensor& tensor) {
  if (tensor.dims() != 2) return false;
  const int64_t size = tensor.dim_size(1);
  return kernels::IsHadamardSize(size) &&
         size >= kernels::ThcBlocks::kSmallest &&
         size <= kernels::ThcBlocks::kLargest;
}

absl::Status CheckLimits(const Tensor& limits, int64_t blocks) {
  TF_RETURN_IF_ERROR(CheckVector(limits, "limits"));
  if (limits.NumElements() != blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("limits must be one for each of ", blocks, " blocks, got ",
                     limits.NumElements()));
  }
  const auto values = limits.flat<float>();
  for (int64_t i = 0; i < blocks; ++i) {
    if (values(i) < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "limits must not be negative, got ", values(i), " at ", i));
    }
  }
  return absl::OkStatus();
}

// The input `size`, of which blocks can be counted.
absl::Status ReadSize(const Tensor& tensor, int64_t* size) {
  TF_RETURN_IF_ERROR(ReadCount(tensor, "size", size));
  constexpr int64_t kMost =
      std::numeric_limits<int64_t>::max() / 16 - kernels::ThcBlocks::kLargest;
  if (*size <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("size must be at most ", kMost, ", got ", *size));
}

class ThcBlocksOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    OP_REQUIRES_OK(context, CheckVector(values, "values"));
    const int64_t n = values.NumElements();
    const kernels::ThcBlocks blocks(n);
    Tensor* padded = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({blocks.count, blocks.size}), &padded));
    float* const out = padded->flat<float>().data();
    std::copy_n(values.flat<float>().data(), n, out);
    std::fill(out + n, out + blocks.padded(), 0.0f);
  }
};

class ThcQuantizeOp : public PackingOp {
 public:
  explicit ThcQuantizeOp(OpKernelConstruction* context) : PackingOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("nearest", &is_nearest_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &values = context->input(0), &limits = context->input(1);
    OP_REQUIRES(context, IsMatrixOfBlocks(values),
                absl::InvalidArgumentError(absl::StrCat(
                    "blocks must be a matrix with rows of a power of two, ",
                    kernels::ThcBlocks::kSmallest, " ... ",
                    kernels::ThcBlocks::kLargest, ", got shape ",
                    values.shape().DebugString())));
    const kernels::ThcBlocks blocks(values.dim_size(1), values.dim_size(0));
    OP_REQUIRES_OK(context, CheckLimits(limits, blocks.count));
    kernels::ThcTable table;
    OP_REQUIRES_OK(context, ReadThcTable(context->input(2), bits_, &table));
    kernels::Seed signs;
    OP_REQUIRES_OK(context, ReadSeed(context->input(3), &signs));
    std::optional<kernels::Seed> rounding;
    if (!is_nearest_) {
      OP_REQUIRES_OK(context, ReadSeed(context->input(4), &rounding.emplace()));
    }
    Tensor rotated, *packed = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_temp(
                       {0}, tensorflow::DT_FLOAT, values.shape(), &rotated));
    OP_REQUIRES_OK(
        context,
        context->allocate_output(
            0, TensorShape({kernels::PackedSize(blocks.padded(), bits_)}),
            &packed));
    kernels::ThcQuantize(
        values.flat<float>().data(), blocks, limits.flat<float>().data(), table,
        signs, rounding, rotated.flat<float>().data(),
        packed->flat<uint8_t>().data(), IntraOpThreads(context));
  }

 private:
  bool is_nearest_;
};

// Calls decode(values) with room for the values of all blocks, and
// makes the first `n` of them the output.
template <typename Decode>
absl::Status DecodeBlocks(OpKernelContext* context, int64_t n,
                          const kernels::ThcBlocks& blocks,
                          const Decode& decode) {
  Tensor padded, *values = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({n}), &values));
  float* const out = values->flat<float>().data();
  if (blocks.padded() == n) {
    decode(out);
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(context->allocate_temp(
      tensorflow::DT_FLOAT, TensorShape({blocks.padded()}), &padded));
  const float* const decoded = padded.flat<float>().data();
  decode(padded.flat<float>().data());
  std::copy_n(decoded, n, out);
  return absl::OkStatus();
}

class ThcDecodeOp : public PackingOp {
 public:
  using PackingOp::PackingOp;

  void Compute(OpKernelContext* context) override {
    const Tensor &packed = context->input(0), &limits = context->input(1);
    int64_t n;
    OP_REQUIRES_OK(context, ReadSize(context->input(4), &n));
    const kernels::ThcBlocks blocks(n);
    OP_REQUIRES_OK(context, CheckPacked(packed, blocks.padded(), bits_));
    OP_REQUIRES_OK(context, CheckLimits(limits, blocks.count));
    kernels::ThcTable table;
    OP_REQUIRES_OK(context, ReadThcTable(context->input(2), bits_, &table));
    kernels::Seed signs;
    OP_REQUIRES_OK(context, ReadSeed(context->input(3), &signs));
    OP_REQUIRES_OK(context,
                   DecodeBlocks(context, n, blocks, [&](float* values) {
                     kernels::ThcDecode(BytesOf(packed), blocks,
                                        limits.flat<float>().data(), table,
                                        signs, values, IntraOpThreads(context));
                   }));
  }
};

template <typename Lane>
class ThcDecodeSumsOp : public OpKernel {
 public:
  explicit ThcDecodeSumsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("granularity", &granularity_));
    OP_REQUIRES_OK(context, context->GetAttr("workers", &workers_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &sums = context->input(0), &limits = context->input(1);
    OP_REQUIRES_OK(context, CheckVector(sums, "sums"));
    int64_t n;
    OP_REQUIRES_OK(context, ReadSize(context->input(3), &n));
    const kernels::ThcBlocks blocks(n);
    OP_REQUIRES(context, sums.NumElements() == blocks.padded(),
                absl::InvalidArgumentError(
                    absl::StrCat("sums must be ", blocks.padded(), " for ", n,
                                 " values in blocks of ", blocks.size, ", got ",
                                 sums.NumElements())));
    OP_REQUIRES_OK(context, CheckLimits(limits, blocks.count));
    kernels::Seed signs;
    OP_REQUIRES_OK(context, ReadSeed(context->input(2), &signs));
    OP_REQUIRES_OK(
        context, DecodeBlocks(context, n, blocks, [&](float* values) {
          kernels::ThcDecodeSums(
              sums.flat<Lane>().data(), blocks, limits.flat<float>().data(),
              granularity_, workers_, signs, values, IntraOpThreads(context));
        }));
  }

 private:
  int64_t granularity_, workers_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>ThcBlocks", ThcBlocksOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ThcQuantize", ThcQuantizeOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>ThcDecode", ThcDecodeOp);
TF_GC_REGISTER_TYPE(DEVICE_CPU, "TfGc>ThcDecodeSums", uint8_t, ThcDecodeSumsOp);
TF_GC_REGISTER_TYPE(DEVICE_CPU, "TfGc>ThcDecodeSums", uint16_t,
                    ThcDecodeSumsOp);

}  // namespace
}  // namespace tf_gc
