// In how much of the time exchanges wait.

#ifndef TF_GC_OPS_COLLECTIVES_WAIT_CLOCK_H_
#define TF_GC_OPS_COLLECTIVES_WAIT_CLOCK_H_

#include <chrono>
#include <mutex>

namespace tf_gc {

// Adds up the time in which at least one exchange waits, so that those which
// wait at the same time count once. Thread-safe.
class WaitClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Seconds {
    double waited = 0;
    double total = 0;  // from the first Begin to the last End
  };

  explicit WaitClock(TimePoint (*now)() = std::chrono::steady_clock::now)
      : now_(now) {}

  // That of all exchanges of this process.
  static WaitClock* OfProcess();

  void Begin();
  void End();

  // Of waits that have ended.
  Seconds Read() const;

 private:
  TimePoint (*const now_)();

  mutable std::mutex mutex_;
  int waiting_ = 0;
  bool has_begun_ = false;
  TimePoint first_;  // Begin of all
  TimePoint begin_;  // of the wait that goes on
  TimePoint last_;   // End
  TimePoint::duration waited_{0};
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_WAIT_CLOCK_H_
