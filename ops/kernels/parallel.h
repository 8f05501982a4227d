// How kernels share work among threads without knowing whose threads they are.

#ifndef TF_GC_OPS_KERNELS_PARALLEL_H_
#define TF_GC_OPS_KERNELS_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>

namespace tf_gc::kernels {

// Calls work(begin, end), perhaps on several threads at once, for parts that
// make up [0, total), none of them empty, and returns when all are done. `cost`
// is about how many processor cycles one of `total` takes. How the parts are
// cut differs from machine to machine: no result may depend on it.
using ParallelWork = std::function<void(int64_t begin, int64_t end)>;
using ParallelFor =
    std::function<void(int64_t total, int64_t cost, const ParallelWork& work)>;

// The ParallelFor of one thread.
inline void SingleThread(int64_t total, int64_t /*cost*/,
                         const ParallelWork& work) {
  if (total > 0) work(0, total);
}

// The same for parts that begin at multiples of `unit`. `cost` is that of one
// of `total`, too.
inline void ParallelForUnits(const ParallelFor& parallel_for, int64_t total,
                             int64_t unit, int64_t cost,
                             const ParallelWork& work) {
  const int64_t units = total / unit + (total % unit != 0);
  parallel_for(units, unit * cost, [&](int64_t begin, int64_t end) {
    work(begin * unit, std::min(end * unit, total));
  });
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_PARALLEL_H_
