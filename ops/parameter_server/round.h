// The pushes that make one update of the model.

#ifndef TF_GC_OPS_PARAMETER_SERVER_ROUND_H_
#define TF_GC_OPS_PARAMETER_SERVER_ROUND_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/rows.h"
#include "ops/parameter_server/tensor_pool.h"
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

// Sums of pushes that CheckPush finds right. Thread-safe: each variable has a
// lock of its own, so that pushes of different variables add up side by side.
class Round {
 public:
  // The caller keeps the pool, which sums come from.
  explicit Round(TensorPool* pool) : pool_(*pool) {}

  // Counts a push, which then is to be added. False, with nothing done, if sums
  // of THC could overflow.
  bool Admit(const std::vector<PushEntry>& push);

  // Adds a push that was admitted. ResourceExhausted, with nothing of it added,
  // if there is no memory for it; nobody waits for it then, either. (Some of it
  // may be, if memory fails because a sum was taken, or scales have changed,
  // just meanwhile.)
  absl::Status Add(const std::vector<PushEntry>& push,
                   const kernels::ParallelFor& parallel_for);

  // Takes notice of the norms of a push, and of nothing else.
  void AddNorms(const std::vector<PushEntry>& push);

  // Those that were admitted.
  int64_t pushes() const;
  // Whether all of them have been added; and waits till they are.
  bool IsAddedUp() const;
  void WaitTillAddedUp() const;

  // Whether a push had values of a variable.
  bool Has(uint32_t id) const;
  // The sum of a variable, decoded; zeros if no push had it. Nobody writes to
  // it any more.
  tensorflow::Tensor Sum(const VariableInfo& variable,
                         const kernels::ParallelFor& parallel_for) const;

  // The rows of all pushes, one after the other. InvalidArgument if a push had
  // all values of the variable.
  absl::Status TakeRows(const VariableInfo& variable, Rows* rows) const;

  // The sum of the pushes' statistics; empty if no push had any.
  std::vector<float> Statistics(const VariableInfo& variable) const;

  // The largest norm of each block over the pushes, for THC; empty if no push
  // had any that were finite.
  std::vector<float> Norms(const VariableInfo& variable) const;

  // Forgets what pushes have had of a variable, with its memory.
  void Remove(uint32_t id);

 private:
  struct Accumulator {
    bool HasRoom(const PushEntry& entry) const;
    void Admit(const PushEntry& entry);

    int64_t lane_pushes = 0;  // admitted, which the round's mutex guards

    // These, and all that follows, need the accumulator's own. Reserve gets the
    // memory that Add then needs, and decodes rows, which Add takes.
    void Reserve(const PushEntry& entry, TensorPool* pool, Rows* decoded);
    void Add(const PushEntry& entry, const Rows& decoded,
             const kernels::ParallelFor& parallel_for, TensorPool* pool);
    void AddNorms(const PushEntry& entry);
    void AddStatistics(const PushEntry& entry);
    void AddIndices(const PushEntry& entry,
                    const kernels::ParallelFor& parallel_for, TensorPool* pool);
    void AddValues(const PushEntry& entry,
                   const kernels::ParallelFor& parallel_for, TensorPool* pool);
    // Adds what the lanes are to the sum, and empties them.
    void DecodeLanes(const VariableInfo& variable,
                     const kernels::ParallelFor& parallel_for,
                     TensorPool* pool);
    void AddLanes(const VariableInfo& variable,
                  const kernels::ParallelFor& parallel_for, float* to) const;
    // Gets room for a sum, or one's own copy of a sum that others hold.
    void ReserveSum(int64_t n, TensorPool* pool);
    float* PrepareSum(int64_t n, TensorPool* pool);

    mutable std::mutex mutex;
    std::optional<tensorflow::Tensor> room;  // for the sum, till there is one
    std::optional<tensorflow::Tensor> sum;
    bool is_sum_taken = false;
    int64_t pushes_in_lanes = 0;
    std::vector<uint16_t> lanes;
    ThcScales scales;  // of the lanes
    Rows rows;
    std::vector<float> norms;       // empty if there are none
    std::vector<float> statistics;  // the same
  };

  absl::Status AddEntries(const std::vector<PushEntry>& push,
                          const kernels::ParallelFor& parallel_for);

  // Null if no push had the variable, or it was removed.
  std::shared_ptr<Accumulator> Find(uint32_t id) const;

  TensorPool& pool_;
  mutable std::mutex mutex_;
  mutable std::condition_variable added_up_;
  int64_t pushes_ = 0;  // that were admitted
  int64_t added_ = 0;   // of these
  std::map<uint32_t, std::shared_ptr<Accumulator>> accumulators_;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_ROUND_H_
