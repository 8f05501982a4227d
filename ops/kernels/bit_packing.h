// Indices of a few bits, packed: what is sent of quantised values.
//
// Value i is the bits [bits i, bits (i + 1)) of a little-endian bit string: bit
// b of the string is bit b % 8 of byte b / 8. Eight values take `bits` whole
// bytes, so that what begins at a multiple of eight values can be packed and
// unpacked by itself. The padding in the last byte is 0.
//
// `bits` is 2, 3, 4, 5 or 8 everywhere. Pointers need no alignment; input and
// output must not overlap. n = 0 gives zero bytes. Every instruction set gives
// the same bytes.

#ifndef TF_GC_OPS_KERNELS_BIT_PACKING_H_
#define TF_GC_OPS_KERNELS_BIT_PACKING_H_

#include <cstdint>

namespace tf_gc::kernels {

constexpr bool IsPackableBits(int64_t bits) {
  return (bits >= 2 && bits <= 5) || bits == 8;
}

// The bytes that n values take: ceil(n bits / 8).
constexpr int64_t PackedSize(int64_t n, int bits) {
  return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

// Index of the first of n indices that is 2^bits or more, or -1.
int64_t FindUnpackable(const uint8_t* indices, int64_t n, int bits);

// Writes PackedSize(n, bits) bytes. Precondition: FindUnpackable(indices, n,
// bits) == -1.
void PackBits(const uint8_t* indices, int64_t n, int bits, uint8_t* packed);

// False if PackBits cannot have written these PackedSize(n, bits) bytes: the
// padding, which is in the last of them, is not 0.
bool PaddingIsZero(const uint8_t* packed, int64_t n, int bits);

// Writes n indices, each less than 2^bits, from any PackedSize(n, bits) bytes;
// does not look at the padding.
void UnpackBits(const uint8_t* packed, int64_t n, int bits, uint8_t* indices);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_BIT_PACKING_H_
