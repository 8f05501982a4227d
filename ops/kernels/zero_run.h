// Zero-run encoding: runs of the quartic byte 121 in one byte (3LC, section
// 3.3).
//
// A run of k bytes 121, 2 <= k <= 14, becomes the byte 243 + (k - 2). Longer
// runs are cut greedily in 14s, a single 121 stays, and so does every other
// byte. The encoding is lossless and never longer than its input.
//
// Pointers need no alignment; input and output must not overlap. m = 0 gives
// zero bytes. Every instruction set gives the same bytes.

#ifndef TF_GC_OPS_KERNELS_ZERO_RUN_H_
#define TF_GC_OPS_KERNELS_ZERO_RUN_H_

#include <cstdint>

#include "ops/kernels/parallel.h"

namespace tf_gc::kernels {

inline constexpr int kMaxZeroRun = 14;

// Encodes m quartic bytes (each at most 242) and returns the encoding's size,
// 0 ... m. `encoded` has room for m bytes; those behind the encoding may be
// overwritten, as parts are encoded there.
int64_t ZeroRunEncode(const uint8_t* quartic, int64_t m, uint8_t* encoded,
                      const ParallelFor& parallel_for);

// The number of quartic bytes that `size` encoded bytes stand for. Any byte
// string is a valid encoding of some length.
int64_t ZeroRunDecodedSize(const uint8_t* encoded, int64_t size,
                           const ParallelFor& parallel_for);

// Decodes exactly m quartic bytes and returns how many of the `size` encoded
// bytes they took, or -1, with `quartic` undefined, if the encoding ends
// before, or a run goes beyond, the m-th byte. Writes only quartic[0 ... m-1].
// Reads only encoded[0 ... size-1].
int64_t ZeroRunDecode(const uint8_t* encoded, int64_t size, int64_t m,
                      uint8_t* quartic, const ParallelFor& parallel_for);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_ZERO_RUN_H_
