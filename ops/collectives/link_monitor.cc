#include "ops/collectives/link_monitor.h"

#include <algorithm>
#include <tuple>

namespace tf_gc {

LinkMonitor* LinkMonitor::OfProcess() {
  static auto* const monitor = new LinkMonitor;
  return monitor;
}

LinkMonitor::TimePoint LinkMonitor::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  const TimePoint now = now_();
  if (under_way_++ == 0) begin_ = now;
  return now;
}

void LinkMonitor::End(TimePoint begin, std::optional<int64_t> bytes,
                      bool is_asked_for) {
  std::lock_guard<std::mutex> lock(mutex_);
  --under_way_;
  if (!bytes) {
    failed_ = true;
  } else if (begin >= begin_) {
    interval_.push_back({begin, now_(), *bytes, is_asked_for});
  }
  if (under_way_ == 0 || interval_.size() == kMaxTransfers) Record();
}

void LinkMonitor::Record() {
  if (failed_) interval_.clear();
  std::sort(interval_.begin(), interval_.end(),
            [](const Transfer& a, const Transfer& b) {
              return std::make_tuple(a.is_short(), a.begin, a.end) <
                     std::make_tuple(b.is_short(), b.begin, b.end);
            });
  Sample sample{};
  TimePoint begin, end;
  bool is_short = false;
  for (const Transfer& transfer : interval_) {
    const auto shared = end - transfer.begin;
    if (sample.transfers == 0 || transfer.is_short() != is_short ||
        4 * shared < transfer.end - transfer.begin) {
      Keep(sample);
      is_short = transfer.is_short();
      sample = {};
      sample.is_asked_for = transfer.is_asked_for;
      begin = end = transfer.begin;
    }
    sample.bytes += transfer.bytes;
    ++sample.transfers;
    end = std::max(end, transfer.end);
    sample.seconds = std::chrono::duration<double>(end - begin).count();
  }
  Keep(sample);
  begin_ = now_();
  interval_.clear();
  failed_ = false;
}

void LinkMonitor::Keep(const Sample& sample) {
  if (sample.transfers > 0) samples_[recorded_++ % kMaxSamples] = sample;
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

void TransferClock::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (monitor_ != nullptr && !has_ended_) begin_ = monitor_->Begin();
}

void TransferClock::End(std::optional<int64_t> bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  has_ended_ = true;
  if (begin_) monitor_->End(*begin_, bytes, is_asked_for_);
}

}  // namespace tf_gc
