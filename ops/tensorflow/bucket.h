// The state of one bucket of variables on one worker.

#ifndef TF_GC_OPS_TENSORFLOW_BUCKET_H_
#define TF_GC_OPS_TENSORFLOW_BUCKET_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ops/collectives/link_monitor.h"
#include "ops/collectives/size_history.h"
#include "tensorflow/core/framework/resource_base.h"

namespace tf_gc {

// What a bucket has handed to the transport, so far or in one exchange. Bytes
// of messages have headers and padding in them, payload bytes have not.
struct Traffic {
  explicit Traffic(int variables)
      : values_sent(variables), payload_bytes_sent(variables) {}

  Traffic& operator+=(const Traffic& other) {
    steps += other.steps;
    exchanges += other.exchanges;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    result_bytes_sent += other.result_bytes_sent;
    shared_bytes_sent += other.shared_bytes_sent;
    microseconds_waited += other.microseconds_waited;
    for (size_t v = 0; v < values_sent.size(); ++v) {
      values_sent[v] += other.values_sent[v];
      payload_bytes_sent[v] += other.payload_bytes_sent[v];
    }
    return *this;
  }

  // Counts one step of gradients that travel together: variables of these sizes
  // on `ranks` ranks. Of each value a rank sends as much as in an all-reduce
  // that wastes nothing: (ranks - 1) / ranks of it up, and the same down.
  void AddStep(const std::vector<int64_t>& sizes, int ranks) {
    ++steps;
    for (size_t v = 0; v < sizes.size(); ++v) {
      values_sent[v] += (2 * sizes[v] * (ranks - 1) + ranks / 2) / ranks;
    }
  }

  // Undoes AddStep.
  void TakeBackSteps(const Traffic& other) {
    steps -= other.steps;
    for (size_t v = 0; v < values_sent.size(); ++v) {
      values_sent[v] -= other.values_sent[v];
    }
  }

  int64_t steps = 0;      // in which the bucket's gradients were reduced
  int64_t exchanges = 0;  // of which a step may take several
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t result_bytes_sent = 0;  // of bytes_sent, those of results
  // By variable: values that were encoded and sent, counted once per receiver,
  // and the payload bytes that they took.
  std::vector<int64_t> values_sent;
  std::vector<int64_t> payload_bytes_sent;
  // Payload bytes that belong to all variables together.
  int64_t shared_bytes_sent = 0;
  // In which exchanges waited for messages to come, or to be taken.
  int64_t microseconds_waited = 0;
};

// Being an input of every op of the bucket, it makes TensorFlow run these ops
// one after the other, and those of other buckets beside them.
class Bucket : public tensorflow::ResourceBase {
 public:
  // `key` names the bucket in the messages: the same on all workers, and no
  // other bucket's. `label` says in warnings what is in it.
  Bucket(std::string key, int variables, std::string label)
      : key_(std::move(key)),
        variables_(variables),
        label_(std::move(label)),
        traffic_(variables),
        uncounted_(variables),
        provisional_(variables) {}

  std::string DebugString() const override { return "tf_gc bucket " + key_; }

  const std::string& key() const { return key_; }
  int variables() const { return variables_; }
  const std::string& label() const { return label_; }

  // The next exchanges belong to this step of the optimizer. `values` are
  // counted if the step has exchanges and no op that counts its values by
  // itself.
  void BeginStep(int64_t step, LinkMeasurement measurement, Traffic values) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      uncounted_ = std::move(values);
      provisional_ = Traffic(variables_);
    }
    step_ = step;
    measurement_ = measurement;
    has_steps_ = true;
    history_.BeginStep();
  }
  int64_t step() const { return step_; }
  LinkMeasurement measurement() const { return measurement_; }

  // That of the messages' sizes; null without steps.
  SizeHistory* history() { return has_steps_ ? &history_ : nullptr; }

  // Held while an exchange is under way.
  std::mutex& exchange_mutex() { return exchange_mutex_; }

  Traffic traffic() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return traffic_;
  }
  void Count(const Traffic& traffic) {
    std::lock_guard<std::mutex> lock(mutex_);
    traffic_ += traffic;
    if (traffic.steps > 0) {
      traffic_.TakeBackSteps(provisional_);
      provisional_ = Traffic(variables_);
    } else {
      traffic_ += uncounted_;
      provisional_ += uncounted_;
    }
    uncounted_ = Traffic(variables_);
  }

 private:
  const std::string key_;
  const int variables_;
  const std::string label_;
  std::atomic<int64_t> step_{0};
  std::atomic<LinkMeasurement> measurement_{LinkMeasurement::kNone};
  std::atomic<bool> has_steps_{false};
  SizeHistory history_;
  std::mutex exchange_mutex_;
  mutable std::mutex mutex_;  // of the traffic
  Traffic traffic_;
  // The values of this step: not counted yet, and counted until an op does it.
  Traffic uncounted_, provisional_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_BUCKET_H_
