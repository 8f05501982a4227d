// The state of one bucket of variables on one worker.

#ifndef TF_GC_OPS_COLLECTIVES_BUCKET_H_
#define TF_GC_OPS_COLLECTIVES_BUCKET_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/resource_base.h"

namespace tf_gc {

// What the exchanges of a bucket have handed to the transport so far.
struct Traffic {
  explicit Traffic(int variables)
      : values_sent(variables), payload_bytes_sent(variables) {}

  int64_t rounds = 0;
  int64_t steps = 0;
  int64_t bytes_sent = 0;  // headers and padding included
  int64_t bytes_received = 0;
  // By variable: values that were encoded and sent, counted once per receiver,
  // and the bytes that they took.
  std::vector<int64_t> values_sent;
  std::vector<int64_t> payload_bytes_sent;
};

// Being an input of every op of the bucket, it makes TensorFlow run these ops
// one after the other, and those of other buckets beside them.
class Bucket : public tensorflow::ResourceBase {
 public:
  // `key` names the bucket in the messages: the same on all workers, and no
  // other bucket's.
  Bucket(std::string key, int variables)
      : key_(std::move(key)), variables_(variables), traffic_(variables) {}

  std::string DebugString() const override { return "tf_gc bucket " + key_; }

  const std::string& key() const { return key_; }
  int variables() const { return variables_; }

  // Held while an exchange is under way.
  std::mutex& exchange_mutex() { return exchange_mutex_; }

  Traffic traffic() const {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    return traffic_;
  }
  void set_traffic(Traffic traffic) {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    traffic_ = std::move(traffic);
  }

  // Counts a step in which `ranks` workers add up variables of these sizes:
  // each of the workers sends its values, and has its share of the results to
  // send, too.
  void CountStep(const std::vector<int64_t>& sizes, int ranks) {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    ++traffic_.steps;
    for (size_t v = 0; v < sizes.size(); ++v) {
      const int64_t sent = 2 * sizes[v] * (ranks - 1);
      traffic_.values_sent[v] += (sent + ranks / 2) / ranks;  // rounded
    }
  }

 private:
  const std::string key_;
  const int variables_;
  std::mutex exchange_mutex_;
  mutable std::mutex traffic_mutex_;
  Traffic traffic_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_BUCKET_H_
