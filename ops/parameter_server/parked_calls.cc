#include "ops/parameter_server/parked_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tf_gc::parameter_server {

ParkedCalls::~ParkedCalls() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_one();
  if (timer_.joinable()) timer_.join();
}

int64_t ParkedCalls::Ticket() {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_ticket_++;
}

void ParkedCalls::Park(int64_t ticket, Clock::time_point deadline, Call call) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    parked_.insert({ticket, {deadline, std::move(call)}});
    if (!timer_.joinable()) {
      timer_ = std::thread(&ParkedCalls::WakeAtDeadlines, this);
    }
  }
  changed_.notify_one();
}

void ParkedCalls::Wake(int64_t ticket) {
  Call call;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = parked_.find(ticket);
    if (found == parked_.end()) return;
    call = std::move(found->second.call);
    parked_.erase(found);
  }
  call();
}

void ParkedCalls::WakeAll() {
  std::map<int64_t, Parked> woken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    woken.swap(parked_);
  }
  for (const auto& [ticket, parked] : woken) parked.call();
}

int64_t ParkedCalls::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(parked_.size());
}

ParkedCalls::Clock::time_point ParkedCalls::NextDeadline() const {
  // Some day: the last time point there is would overflow in a wait.
  Clock::time_point next = Clock::now() + std::chrono::hours(24);
  for (const auto& [ticket, parked] : parked_) {
    next = std::min(next, parked.deadline);
  }
  return next;
}

void ParkedCalls::WakeAtDeadlines() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_closing_) {
    changed_.wait_until(lock, NextDeadline());
    const Clock::time_point now = Clock::now();
    std::vector<Call> due;
    for (auto it = parked_.begin(); it != parked_.end();) {
      const auto parked = it++;
      if (parked->second.deadline > now) continue;
      due.push_back(std::move(parked->second.call));
      parked_.erase(parked);
    }
    lock.unlock();
    for (const Call& call : due) call();
    due.clear();
    lock.lock();
  }
}

}  // namespace tf_gc::parameter_server
