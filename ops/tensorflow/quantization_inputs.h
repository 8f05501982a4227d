// What the ops of quantisation check of their inputs, on the CPU and on GPUs.

#ifndef TF_GC_OPS_TENSORFLOW_QUANTIZATION_INPUTS_H_
#define TF_GC_OPS_TENSORFLOW_QUANTIZATION_INPUTS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/tensorflow/inputs.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc {

// The attribute `bits`, of a kernel's construction or of a shape function.
template <typename Context>
absl::Status GetBits(Context* context, int* bits) {
  int64_t value;
  TF_RETURN_IF_ERROR(context->GetAttr("bits", &value));
  if (!kernels::IsPackableBits(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bits must be 2, 3, 4, 5 or 8, got ", value));
  }
  *bits = static_cast<int>(value);
  return absl::OkStatus();
}

// Fails if `packed` is known not to have the bytes of `count` values.
inline absl::Status CheckPackedShape(
    tensorflow::shape_inference::InferenceContext* c,
    tensorflow::shape_inference::ShapeHandle packed,
    tensorflow::shape_inference::DimensionHandle count, int bits) {
  TF_RETURN_IF_ERROR(c->WithRank(packed, 1, &packed));
  const tensorflow::shape_inference::DimensionHandle size = c->Dim(packed, 0);
  if (!c->ValueKnown(size) || !c->ValueKnown(count)) return absl::OkStatus();
  const int64_t expected = kernels::PackedSize(c->Value(count), bits);
  if (c->Value(size) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "packed must have ", expected, " bytes for ", c->Value(count),
      " values of ", bits, " bits, got ", c->Value(size)));
}

// The shape of what PackBits makes of `count` values.
inline tensorflow::shape_inference::ShapeHandle PackedShape(
    tensorflow::shape_inference::InferenceContext* c,
    tensorflow::shape_inference::DimensionHandle count, int bits) {
  return c->Vector(c->ValueKnown(count)
                       ? c->MakeDim(kernels::PackedSize(c->Value(count), bits))
                       : c->UnknownDim());
}

// `levels` is in the host's memory.
inline absl::Status CheckLevels(const tensorflow::Tensor& levels) {
  TF_RETURN_IF_ERROR(CheckVector(levels, "levels"));
  const int64_t count = levels.NumElements();
  if (count < kernels::kMinLevels || count > kernels::kMaxLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("levels must be ", kernels::kMinLevels, " to ",
                     kernels::kMaxLevels, ", got ", count));
  }
  const float* values = levels.flat<float>().data();
  const int wrong = kernels::FindBadLevel(values, static_cast<int>(count));
  if (wrong < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("levels must be finite and ascending, got ", values[wrong],
                   " at index ", wrong));
}

// What the ops on packed values have in common.
class PackingOp : public tensorflow::OpKernel {
 public:
  explicit PackingOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, GetBits(context, &bits_));
  }

 protected:
  int bits_;
};

// Of PackBits' input, of which indices[i] is `index`.
inline absl::Status NotPackable(int index, int64_t i, int bits) {
  return absl::InvalidArgumentError(
      absl::StrCat("indices must be less than 2^bits = ", 1 << bits, ", got ",
                   index, " at index ", i));
}

// Of what should be PackBits' output for n values.
inline absl::Status CheckPackedSize(const tensorflow::Tensor& packed, int64_t n,
                                    int bits) {
  TF_RETURN_IF_ERROR(CheckVector(packed, "packed"));
  const int64_t size = kernels::PackedSize(n, bits);
  if (packed.NumElements() == size) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("packed must have ", size,
                                          " bytes for ", n, " values of ", bits,
                                          " bits, got ", packed.NumElements()));
}

// The same, where the last byte's padding is not 0.
inline absl::Status BadPadding(int last_byte) {
  return absl::DataLossError(absl::StrCat(
      "packed must have padding of 0, got the last byte ", last_byte));
}

// `packed`, in the host's memory, are what PackBits makes of n values.
inline absl::Status CheckPacked(const tensorflow::Tensor& packed, int64_t n,
                                int bits) {
  TF_RETURN_IF_ERROR(CheckPackedSize(packed, n, bits));
  if (kernels::PaddingIsZero(BytesOf(packed), n, bits)) return absl::OkStatus();
  return BadPadding(BytesOf(packed)[packed.NumElements() - 1]);
}

// Copies TableSum's table of 2^bits values, which `tensor` has in the host's
// memory.
template <typename Lane>
absl::Status ReadTable(const tensorflow::Tensor& tensor, int bits,
                       Lane* table) {
  const int64_t entries = int64_t{1} << bits;
  if (tensor.dims() != 1 || tensor.NumElements() != entries) {
    return absl::InvalidArgumentError(
        absl::StrCat("table must be a vector of 2^bits = ", entries,
                     " values, got shape ", tensor.shape().DebugString()));
  }
  constexpr int32_t kLargest = std::numeric_limits<Lane>::max();
  const int32_t* values = tensor.flat<int32_t>().data();
  for (int64_t z = 0; z < entries; ++z) {
    if (values[z] < 0 || values[z] > kLargest) {
      return absl::InvalidArgumentError(
          absl::StrCat("table must hold values in 0 ... ", kLargest, ", got ",
                       values[z], " at index ", z));
    }
    table[z] = static_cast<Lane>(values[z]);
  }
  return absl::OkStatus();
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_QUANTIZATION_INPUTS_H_
