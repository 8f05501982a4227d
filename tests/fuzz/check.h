// What every fuzzer says when something is wrong.

#ifndef TF_GC_TESTS_FUZZ_CHECK_H_
#define TF_GC_TESTS_FUZZ_CHECK_H_

#include <cstdlib>

namespace tf_gc {

inline void Check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace tf_gc

#endif  // TF_GC_TESTS_FUZZ_CHECK_H_
