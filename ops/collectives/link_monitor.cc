#include "ops/collectives/link_monitor.h"

#include <algorithm>

namespace tf_gc {

LinkMonitor* LinkMonitor::OfProcess() {
  static auto* const monitor = new LinkMonitor;
  return monitor;
}

void LinkMonitor::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (under_way_++ > 0) return;
  begin_ = now_();
  interval_ = {};
  carried_ = 0;
  failed_ = false;
}

void LinkMonitor::End(std::optional<int64_t> bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  --under_way_;
  if (!bytes) {
    failed_ = true;
    return;
  }
  if (carried_ > 0) {
    --carried_;
    return;
  }
  interval_.bytes += *bytes;
  ++interval_.transfers;
  if (under_way_ == 0 || interval_.transfers == kMaxTransfers) Record(now_());
}

void LinkMonitor::Record(TimePoint now) {
  if (!failed_) {
    interval_.seconds = std::chrono::duration<double>(now - begin_).count();
    samples_[recorded_++ % kMaxSamples] = interval_;
  }
  begin_ = now;
  interval_ = {};
  carried_ = under_way_;
  failed_ = false;
}

std::vector<LinkMonitor::Sample> LinkMonitor::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  taken_ = std::max(taken_, recorded_ - kMaxSamples);
  std::vector<Sample> samples;
  samples.reserve(recorded_ - taken_);
  while (taken_ < recorded_) {
    samples.push_back(samples_[taken_++ % kMaxSamples]);
  }
  return samples;
}

}  // namespace tf_gc
