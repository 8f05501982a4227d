// C names for the CPU's kernels of signs, for tools/gpu_check.py.

#include "ops/kernels/signs.h"

using namespace tf_gc::kernels;

extern "C" {

void tf_gc_cpu_sign_pack(const float* values, int64_t n, uint8_t* packed) {
  SignPack(values, n, packed);
}

void tf_gc_cpu_sign_unpack(const uint8_t* packed, int64_t n, float* values) {
  SignUnpack(packed, n, values);
}

void tf_gc_cpu_sign_merge(const uint8_t* first, const uint8_t* second,
                          int64_t bytes, int64_t first_count,
                          int64_t second_count, uint64_t seed_key,
                          uint64_t seed_stream, int64_t first_byte,
                          uint8_t* merged) {
  SignMerge(first, second, bytes, first_count, second_count,
            Seed{seed_key, seed_stream}, first_byte, merged);
}

}  // extern "C"
