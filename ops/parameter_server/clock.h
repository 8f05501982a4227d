// The time that servers and workers measure durations with.

#ifndef TF_GC_OPS_PARAMETER_SERVER_CLOCK_H_
#define TF_GC_OPS_PARAMETER_SERVER_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>

namespace tf_gc::parameter_server {

// Returns microseconds since some moment; never fewer than before.
using Clock = std::function<uint64_t()>;

// The system's time of day may be set back in between, or far ahead.
inline uint64_t SteadyMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_CLOCK_H_
