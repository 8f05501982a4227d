// C names for the CPU's Hadamard transforms, for tools/gpu_check.py.

#include "ops/kernels/hadamard.h"

#include "ops/kernels/parallel.h"

using namespace tf_gc::kernels;

extern "C" {

void tf_gc_cpu_hadamard(const float* values, int64_t rows, int64_t size,
                        float* transformed) {
  Hadamard(values, rows, size, transformed, SingleThread);
}

void tf_gc_cpu_randomized_hadamard(const float* values, int64_t rows,
                                   int64_t size, uint64_t key,
                                   uint64_t seed_stream, float* transformed) {
  RandomizedHadamard(values, rows, size, {key, seed_stream}, transformed,
                     SingleThread);
}

void tf_gc_cpu_inverse_randomized_hadamard(const float* values, int64_t rows,
                                           int64_t size, uint64_t key,
                                           uint64_t seed_stream,
                                           float* transformed) {
  InverseRandomizedHadamard(values, rows, size, {key, seed_stream}, transformed,
                            SingleThread);
}

}  // extern "C"
