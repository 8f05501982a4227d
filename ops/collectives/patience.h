// How long to wait for others: from the last progress, and not without a word.

#ifndef TF_GC_OPS_COLLECTIVES_PATIENCE_H_
#define TF_GC_OPS_COLLECTIVES_PATIENCE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

namespace tf_gc {

// A time without progress, under the mutex of what is waited for.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  // Is told after how many seconds, and again later.
  using Report = std::function<void(double seconds)>;

  // No end if timeout_seconds is 0.
  explicit Patience(double timeout_seconds,
                    Clock::duration first_report = std::chrono::seconds(30))
      : timeout_(timeout_seconds > 0 ? timeout_seconds : kLongestSeconds),
        first_report_(first_report) {
    Progress();
  }

  double timeout_seconds() const { return timeout_; }

  // Time begins anew.
  void Progress() {
    begin_ = Clock::now();
    next_report_ = begin_ + first_report_;
  }

  // Waits until `over`; false if there was no progress for too long. What the
  // caller has done before, however long it took, is no silence of the others.
  template <typename Predicate>
  bool Wait(std::unique_lock<std::mutex>* lock,
            std::condition_variable* changed, Predicate over,
            const Report& report) {
    if (over()) return true;
    Progress();
    while (!over()) {
      const Clock::time_point now = Clock::now();
      if (now >= End()) return false;
      if (now >= next_report_) {
        report(std::chrono::duration<double>(now - begin_).count());
        next_report_ = now + 10 * first_report_;
      }
      changed->wait_until(*lock, std::min(End(), next_report_));
    }
    return true;
  }

 private:
  // Any longer time would overflow the clock's 64 bits of nanoseconds.
  static constexpr double kLongestSeconds = 1e9;

  Clock::time_point End() const {
    return begin_ + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(
                            std::min(timeout_, kLongestSeconds)));
  }

  const double timeout_;
  const Clock::duration first_report_;
  Clock::time_point begin_;
  Clock::time_point next_report_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PATIENCE_H_
