#include "ops/collectives/wait_clock.h"

#include <utility>

namespace tf_gc {

WaitClock* WaitClock::OfProcess() {
  static auto* const clock = new WaitClock;
  return clock;
}

void WaitClock::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_++ > 0) return;
  begin_ = now_();
  if (!std::exchange(has_begun_, true)) first_ = last_ = begin_;
}

void WaitClock::End() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--waiting_ > 0) return;
  last_ = now_();
  waited_ += last_ - begin_;
}

WaitClock::Seconds WaitClock::Read() const {
  using Duration = std::chrono::duration<double>;
  std::lock_guard<std::mutex> lock(mutex_);
  return {Duration(waited_).count(), Duration(last_ - first_).count()};
}

}  // namespace tf_gc
