// Calls that wait for an event, or for a time, without holding a thread each.

#ifndef TF_GC_OPS_PARAMETER_SERVER_PARKED_CALLS_H_
#define TF_GC_OPS_PARAMETER_SERVER_PARKED_CALLS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace tf_gc::parameter_server {

// Every call is made once, on the thread that wakes it, or on one of its own
// after its deadline: it must not block. Thread-safe.
class ParkedCalls {
 public:
  using Clock = std::chrono::steady_clock;
  using Call = std::function<void()>;

  ParkedCalls() = default;
  // No call is made any more.
  ~ParkedCalls();
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;

  // A number for a call, before it is parked.
  int64_t Ticket();

  void Park(int64_t ticket, Clock::time_point deadline, Call call);
  void Wake(int64_t ticket);  // if it is still parked
  void WakeAll();

  int64_t size() const;

 private:
  struct Parked {
    Clock::time_point deadline;
    Call call;
  };

  void WakeAtDeadlines();
  Clock::time_point NextDeadline() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closing_ = false;
  int64_t next_ticket_ = 0;
  std::map<int64_t, Parked> parked_;
  std::thread timer_;  // from the first call on
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_PARKED_CALLS_H_
