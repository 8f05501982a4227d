// Zero-run encoding and decoding of parts on several threads, around functions
// of kernel_table.h that do one part.

#ifndef TF_GC_OPS_KERNELS_ZERO_RUN_PARTS_H_
#define TF_GC_OPS_KERNELS_ZERO_RUN_PARTS_H_

#include <cstdint>
#include <functional>

#include "ops/kernels/kernel_table.h"
#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

// Encodes the quartic bytes [begin, end) into at most end - begin bytes and
// returns their number, without the `pending` zeros at its end.
using ZeroRunEncodePart = std::function<int64_t(
    int64_t begin, int64_t end, uint8_t* encoded, int64_t* pending)>;

// Encodes m quartic bytes as one part would and returns the encoding's size.
// Part [begin, end) is encoded at encoded + begin, and then moved. Writes only
// encoded[0 ... m-1].
int64_t ZeroRunEncodeParts(int64_t m, int64_t cost,
                           const ParallelFor& parallel_for,
                           const ZeroRunEncodePart& encode_part,
                           uint8_t* encoded);

// Decodes the quartic bytes [begin, end) from `position` on, which it moves;
// false if it cannot.
using ZeroRunDecodePart =
    std::function<bool(int64_t begin, int64_t end, ZeroRunPosition* position)>;

// Decodes m quartic bytes and returns how many of the `size` encoded bytes they
// took, or -1 if a part cannot be decoded, the encoding ends before, or a run
// goes beyond, the m-th byte.
int64_t ZeroRunDecodeParts(const uint8_t* encoded, int64_t size, int64_t m,
                           int64_t cost, const ParallelFor& parallel_for,
                           const ZeroRunDecodePart& decode_part);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_ZERO_RUN_PARTS_H_
