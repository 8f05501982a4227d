// The pushes that make one update of the model.

#ifndef TF_GC_OPS_PARAMETER_SERVER_ROUND_H_
#define TF_GC_OPS_PARAMETER_SERVER_ROUND_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/rows.h"
#include "ops/parameter_server/thc.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

// What a push has of one variable; its bytes are in the message.
struct PushEntry {
  const VariableInfo* variable;
  Codec codec;
  const uint8_t* body;
  int64_t size;
  ThcScales scales;  // for kThcIndices: those that the worker has used
};

// DataLoss unless all bodies can be decoded, in the codec of their variable or
// float32, and none comes twice; the error names the variable.
absl::Status CheckPush(const std::vector<PushEntry>& push,
                       const kernels::ParallelFor& parallel_for);

// The values of a gradient that an entry, of a checked push, stands for.
int64_t CountValues(const PushEntry& entry);

// The bytes of such an entry that are statistics.
int64_t CountStatisticsBytes(const PushEntry& entry);

// Sums of pushes that CheckPush finds right. Not thread-safe: the server guards
// it.
class Round {
 public:
  // Adds a push. False, with nothing done, if sums of THC could overflow, or
  // are those of other scales.
  bool Add(const std::vector<PushEntry>& push,
           const kernels::ParallelFor& parallel_for);

  // Takes notice of the norms of a push, and of nothing else.
  void AddNorms(const std::vector<PushEntry>& push);

  int64_t pushes() const { return pushes_; }

  // Writes the sum of a variable, decoded; zeros if no push had it.
  void Sum(const VariableInfo& variable, float* sum,
           const kernels::ParallelFor& parallel_for) const;

  // The rows of all pushes, one after the other. InvalidArgument if a push had
  // all values of the variable.
  absl::Status TakeRows(const VariableInfo& variable, Rows* rows) const;

  // The sum of the pushes' statistics; null if no push had any.
  const std::vector<float>* Statistics(const VariableInfo& variable) const;

  // The largest norm of each block over the pushes, for THC; null if no push
  // had any that were finite.
  const std::vector<float>* Norms(const VariableInfo& variable) const;

  // Starts anew.
  void Clear();

  // Forgets what pushes have had of a variable, with its memory.
  void Remove(uint32_t id) { accumulators_.erase(id); }

 private:
  struct Accumulator {
    bool HasRoom(const PushEntry& entry) const;
    void Add(const PushEntry& entry, const kernels::ParallelFor& parallel_for);
    void AddNorms(const PushEntry& entry);
    void AddStatistics(const PushEntry& entry);
    void AddIndices(const PushEntry& entry,
                    const kernels::ParallelFor& parallel_for);
    float* PrepareSum(int64_t n);

    // The memory stays from round to round.
    bool has_sum = false;
    tensorflow::Tensor sum;
    int64_t lane_pushes = 0;  // of which the lanes are the sum
    std::vector<uint16_t> lanes;
    ThcScales scales;  // of the lanes
    Rows rows;
    std::vector<float> norms;       // empty if there are none
    std::vector<float> statistics;  // the same
  };

  const Accumulator* Find(const VariableInfo& variable) const;

  int64_t pushes_ = 0;
  std::map<uint32_t, Accumulator> accumulators_;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_ROUND_H_
