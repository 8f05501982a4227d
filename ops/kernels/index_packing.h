// Sets of indices in few bytes: k of n, strictly ascending, as a bitmap or in
// Elias-Fano form, whichever is smaller.
//
// Both sides know k and n, and from them the form and the size: there is no
// header. Bit b of a bit string is bit b % 8 of byte b / 8; every string begins
// on a byte of its own, and what pads its last byte is 0.
//
//   bitmap         n bits; bit i is 1 where i is among the indices.
//   Elias-Fano, l  Of every index, l low bits and the rest above them. First
//                  k + ((n - 1) >> l) bits, of which bit (indices[j] >> l) + j
//                  is 1 for each j; then k times l bits, the low bits.
//
// Of equally small forms the bitmap is taken, then the smaller l. k = 0 takes
// no bytes. The most that it takes is ceil(n / 8) bytes; far below n / 2
// indices it is about 2 + log2(n / k) bits for each index, within 0.6 bits of
// the least that any code can do.
//
// 0 <= k <= n <= 2^31 - 1 everywhere. Pointers need no alignment beyond that of
// their types; input and output must not overlap. Every instruction set gives
// the same bytes.

#ifndef TF_GC_OPS_KERNELS_INDEX_PACKING_H_
#define TF_GC_OPS_KERNELS_INDEX_PACKING_H_

#include <cstdint>

namespace tf_gc::kernels {

inline constexpr int64_t kMaxPackedSize = 0x7fffffff;

// The form of k indices below n: l, or kBitmap.
inline constexpr int kBitmap = -1;
int PackedIndicesForm(int64_t k, int64_t n);

// The number of bytes of k indices below n.
int64_t PackedIndicesSize(int64_t k, int64_t n);

// The first position j of which indices[j] is negative, at least n, or not
// above indices[j - 1]; -1 if there is none.
int64_t FindNotAscending(const int32_t* indices, int64_t k, int64_t n);

// Packs k strictly ascending indices below n (FindNotAscending says -1) in
// exactly PackedIndicesSize(k, n) bytes.
void PackIndices(const int32_t* indices, int64_t k, int64_t n, uint8_t* packed);

// Unpacks exactly PackedIndicesSize(k, n) bytes. Returns null, or, with
// `indices` undefined, what is wrong with them, as the end of a sentence that
// begins with their name. Only what PackIndices writes is accepted.
const char* UnpackIndices(const uint8_t* packed, int64_t k, int64_t n,
                          int32_t* indices);

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_INDEX_PACKING_H_
