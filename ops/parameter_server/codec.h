// How the values of a variable travel between the workers and a parameter
// server: the codecs, and the strings that choose them.

#ifndef TF_GC_OPS_PARAMETER_SERVER_CODEC_H_
#define TF_GC_OPS_PARAMETER_SERVER_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/kernels/units.h"
#include "ops/parameter_server/thc.h"
#include "ops/wire/codec.h"

namespace tf_gc::parameter_server {

// Whether it holds all values of a variable and needs nothing else to be
// decoded.
constexpr bool IsPlain(Codec codec) {
  return codec <= Codec::kThreeLc || codec == Codec::kInt8;
}

// Whether an entry of a message may have it.
constexpr bool IsOfEntries(Codec codec) {
  return IsPlain(codec) ||
         (codec >= Codec::kThcIndices && codec <= Codec::kRows) ||
         codec == Codec::kPackedRows;
}

// What a string like "three_lc feedback=0" says.
struct CodecSpec {
  std::string text;
  Codec codec = Codec::kFloat32;
  // Of pushes: whether what a push has not delivered stays in the residual.
  bool feedback = true;
  ThcSpec thc;  // for kThcIndices alone
  // For kThreeLc alone: what its scale is a multiple of; the rows of the matrix
  // that a variable is seen as, 0 if its pushes have no statistics
  // (push_body.h); these' decay; and whether values are in units of theirs.
  kernels::ThreeLcScaling::Of scale = kernels::ThreeLcScaling::Of::kMax;
  int64_t rows = 0;
  float decay = 0;
  bool units = true;
};

// The scale of a codec with this multiplier, which counts for kThreeLc alone.
// InvalidArgument, saying of which variable it is, if it is out of range.
absl::Status MakeScaling(const CodecSpec& spec, float multiplier,
                         const std::string& variable,
                         kernels::ThreeLcScaling* scaling);

// "float32", "float16", "bfloat16", "int8", "three_lc" or "three_lc
// scale=mean" (or unit), for pushes these with "rows=128 decay=0.999" or
// "rows=128 decay=0.999 units=0" too, or "thc bits=4 truncation=2.15
// headroom=1.2 seed=7 table=0,1,3,...", with all of these fields, and
// "rounding=nearest" if it is not stochastic. "feedback=0" may follow each.
// InvalidArgument, naming the field, for anything else.
absl::Status ParseCodecSpec(std::string_view text, CodecSpec* spec);

// What follows is for the plain codecs. With t = values + residual:
//
//   float32, float16, bfloat16    t, rounded to nearest, ties to even
//   int8                          M = max |t|, q = round(127 t / M) for each
//                                 value, which stands for (M / 127) q
//   3LC                           ops/kernels/three_lc_tensor.h
//
// Where t is not finite, or becomes infinite in the codec's type, nothing is
// delivered: int8 and 3LC then have the scale M = NaN and nothing behind it,
// and decode to NaN everywhere; the others hold t as it is.
//
// Denormal numbers count, whatever the thread's mode. Decoding gives the same
// bits on every processor, and with any number of threads.

// Room that Encode needs: the largest encoding of n values.
int64_t MaxEncodedSize(Codec codec, int64_t n);

struct Encoded {
  int64_t size;
  bool is_finite;  // else nothing is delivered
};

// Writes the body, and what it does not deliver: new_residual = t - delivered,
// or the old residual. 3LC quantises with this scale, in these units. A null
// residual counts as zeros. `new_residual` may be `values` or `residual`.
Encoded Encode(Codec codec, kernels::ThreeLcScaling scaling,
               const float* values, const float* residual, int64_t n,
               float* new_residual, uint8_t* body,
               const kernels::ParallelFor& parallel_for,
               const kernels::Units& units = {});

// DataLoss unless these are a body of n values. `what` is what the error calls
// the message.
absl::Status CheckBody(Codec codec, const uint8_t* body, int64_t size,
                       int64_t n, const std::string& what,
                       const kernels::ParallelFor& parallel_for);

// Writes the values of a body that CheckBody finds right; `units` are those
// that it was encoded in.
void Decode(Codec codec, const uint8_t* body, int64_t size, int64_t n,
            float* values, const kernels::ParallelFor& parallel_for,
            const kernels::Units& units = {});

// The same, but sum[i] += value i, rounded once after value i has been.
void DecodeAdd(Codec codec, const uint8_t* body, int64_t size, int64_t n,
               float* sum, const kernels::ParallelFor& parallel_for,
               const kernels::Units& units = {});

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_CODEC_H_
