// How values lie in the bodies of messages.

#ifndef TF_GC_OPS_WIRE_CODEC_H_
#define TF_GC_OPS_WIRE_CODEC_H_

#include <cstdint>

namespace tf_gc {

// One number for each encoding, on every wire; docs/wire_format.md has the
// bytes.
enum class Codec : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kThreeLc = 3,
  // Of the collectives alone.
  kBytes = 4,  // plain: what they mean is the program's business
  kByteLanes = 5,
  kWordLanes = 6,
  kSignMerge = 7,
  kSignMajority = 8,
  kCascadingSign = 9,
  // Of the parameter server alone.
  kInt8 = 10,
  kThcIndices = 11,
  kThcNorms = 12,
  kRows = 13,  // of a gradient that has few: indices and values
  // Of the collectives alone.
  kMixedFloats = 14,  // of float32, float16 and bfloat16, variable by variable
  // Of the parameter server alone.
  kPackedRows = 15,  // of a gradient that has few, in few bytes
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_CODEC_H_
