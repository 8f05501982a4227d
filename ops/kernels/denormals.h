// Arithmetic that keeps denormal numbers.

#ifndef TF_GC_OPS_KERNELS_DENORMALS_H_
#define TF_GC_OPS_KERNELS_DENORMALS_H_

#include <immintrin.h>

namespace tf_gc::kernels {

// While one exists, denormal numbers count on its thread. TensorFlow's threads
// take them as zeros and the caller of an op may not: results must not depend
// on whose thread computes them.
class KeepDenormals {
 public:
  KeepDenormals() : mode_(_mm_getcsr()) {
    _mm_setcsr(mode_ & ~(_MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK));
  }
  ~KeepDenormals() { _mm_setcsr(mode_); }
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
  const unsigned int mode_;
};

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_DENORMALS_H_
