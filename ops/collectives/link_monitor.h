// How long transfers take on this worker's link, as exchanges see it.

#ifndef TF_GC_OPS_COLLECTIVES_LINK_MONITOR_H_
#define TF_GC_OPS_COLLECTIVES_LINK_MONITOR_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace tf_gc {

// What the first message of each phase from one rank to another measures of the
// link between them; both must go through a phase's messages in the same order.
enum class LinkMeasurement {
  kNone,
  // A few bytes are sent just before the message, whose time begins when they
  // come.
  kBandwidth,
  // They are ready with the message, and asked for when it has come. Nothing
  // but the end of the exchange waits for them.
  kLatency,
};

// Transfers that are under way at the same time share the link, so that none
// of them alone tells its bandwidth. What is recorded are busy intervals: from
// when a first transfer is under way until none is. One that shares less than
// a quarter of its time with those before it, as the message of the next hop,
// begins an interval of its own: latency is the first part of that time. Of
// transfers that their senders have ready, and of those whose first bytes have
// come, the time of an interval is the network's alone. Transfers of a few
// bytes hardly load the link: they are in intervals of their own.
//
// Thread-safe; allocates nothing but in Take.
class LinkMonitor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Sample {
    int64_t bytes;  // that came
    double seconds;
    int64_t transfers;  // that ended
    bool is_asked_for;  // the time begins with a request, else with first bytes
  };

  // Of these the latest are kept until they are taken.
  static constexpr int kMaxSamples = 512;
  // An interval ends with so many transfers, even if others are under way. Of
  // those a part has come already, so they are not counted in the next one.
  static constexpr int kMaxTransfers = 64;
  static constexpr int64_t kFewBytes = 64;

  explicit LinkMonitor(TimePoint (*now)() = std::chrono::steady_clock::now)
      : now_(now) {
    interval_.reserve(kMaxTransfers);
  }

  // That of all exchanges of this process.
  static LinkMonitor* OfProcess();

  // A transfer is asked for, or begins to come. Returns when.
  TimePoint Begin();
  // One that began then has come, with so many bytes; with none if it has
  // failed. The interval of a transfer that has failed is dropped.
  void End(TimePoint begin, std::optional<int64_t> bytes,
           bool is_asked_for = true);

  // Returns the samples, the oldest first, and forgets them.
  std::vector<Sample> Take();

 private:
  struct Transfer {
    TimePoint begin, end;
    int64_t bytes;
    bool is_asked_for;

    bool is_short() const { return bytes <= kFewBytes; }
  };

  // Ends the interval.
  void Record();
  void Keep(const Sample& sample);  // of no transfers: nothing

  TimePoint (*const now_)();

  std::mutex mutex_;
  int under_way_ = 0;
  TimePoint begin_;                 // of this interval
  std::vector<Transfer> interval_;  // those of this interval that have ended
  bool failed_ = false;             // one of this interval
  std::array<Sample, kMaxSamples> samples_;
  int64_t recorded_ = 0;  // samples; number i is samples_[i % kMaxSamples]
  int64_t taken_ = 0;
};

// One transfer, for a monitor. Thread-safe.
class TransferClock {
 public:
  // Without a monitor it does nothing.
  TransferClock(LinkMonitor* monitor, bool is_asked_for)
      : monitor_(monitor), is_asked_for_(is_asked_for) {}

  void Begin();
  // With none if it has failed. Of a transfer that has not begun before, the
  // monitor is never told.
  void End(std::optional<int64_t> bytes);

 private:
  LinkMonitor* const monitor_;
  const bool is_asked_for_;

  std::mutex mutex_;
  std::optional<LinkMonitor::TimePoint> begin_;
  bool has_ended_ = false;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_LINK_MONITOR_H_
