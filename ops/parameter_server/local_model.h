// A worker's side: its copy of the model, and what its pushes left over.

#ifndef TF_GC_OPS_PARAMETER_SERVER_LOCAL_MODEL_H_
#define TF_GC_OPS_PARAMETER_SERVER_LOCAL_MODEL_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/clock.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/rows.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_gc::parameter_server {

// The gradient of a variable, as a worker pushes it.
struct DenseGradient {
  uint32_t id;
  const CodecSpec* codec;
  float multiplier;             // of 3LC's scale
  int64_t start_step;           // of the model, from which on the codec is used
  tensorflow::Tensor gradient;  // float32
};
struct SparseGradient {
  uint32_t id;
  tensorflow::Tensor indices;  // int64 [rows]
  tensorflow::Tensor values;   // float32 [rows, ...]
  // Of the variable.
  int64_t rows = std::numeric_limits<int64_t>::max();
  // Of a value in packed rows (ops/wire/rows.h); 0: the rows travel as they
  // are.
  int bits = 0;
  int64_t start_step = 0;  // of the model; before, packed rows are exact
  uint64_t seed = 0;       // of the random numbers of packed rows
};

// Of a pull.
struct PulledVariable {
  uint32_t id;
  tensorflow::TensorShape shape;
};

// Thread-safe.
class LocalModel : public tensorflow::ResourceBase {
 public:
  // `worker` is the number of the worker among all: they round differently, and
  // alike in every run.
  explicit LocalModel(uint64_t worker = 0, Clock clock = SteadyMicros);

  std::string DebugString() const override { return "tf_gc local model"; }

  // ---- Pulls

  // What there is of these variables. Its patience is the time that the last
  // step took, from its pull to the server's answer to its push, if the model
  // is still the one that it was computed on; else 0.
  PullRequest Request(const std::vector<uint32_t>& ids) const;

  // Makes the copies those of the server's version. Nothing is changed if the
  // message is not right (DataLoss), nor if what there is of these variables
  // has changed since they were requested. `step` is the number of updates that
  // the version has seen.
  absl::Status Apply(const uint8_t* bytes, int64_t size,
                     const std::vector<PulledVariable>& variables,
                     const kernels::ParallelFor& parallel_for, int64_t* version,
                     int64_t* step);

  // The copy of a variable, shared: it is not changed while somebody has it.
  absl::Status Read(uint32_t id, const tensorflow::TensorShape& shape,
                    tensorflow::Tensor* value) const;

  // ---- Pushes

  // Where a message of so many bytes goes.
  using Allocate = std::function<absl::Status(int64_t size, uint8_t** bytes)>;

  // Writes a push, to a channel, of gradients plus residuals, in the codecs or,
  // before a variable's start_step, in float32. What is not delivered
  // becomes the residual; where gradient plus residual is not finite it stays.
  // Statistics follow the gradients alone, and stay where one is not finite.
  // What it carries is kept until the push, or a later one of the channel, is
  // settled. ResourceExhausted if there is no memory for it: what has waited
  // waits for the next one.
  absl::Status EncodePush(uint32_t channel,
                          const std::vector<DenseGradient>& dense,
                          const std::vector<SparseGradient>& sparse,
                          const kernels::ParallelFor& parallel_for,
                          const Allocate& allocate);

  // The server's answer to a push. Takes back what it has carried, if it was
  // not accepted, and what earlier pushes of its channel have that never had an
  // answer, but for those that have `counted`.
  absl::Status SettlePush(const uint8_t* bytes, int64_t size, bool accepted,
                          const std::set<uint64_t>& counted,
                          const kernels::ParallelFor& parallel_for);

  // The pushes that have no answer: the worker's number, and the channel and
  // number of each.
  std::vector<int64_t> UnsettledPushes() const;

  // Of all pushes that UnsettledPushes has listed, settles those that have
  // `counted`. The others may yet, as their steps may be under way: till they
  // are settled, ReadResidual adds what they carry.
  void SettleUnsettled(const std::vector<int64_t>& unsettled,
                       const std::set<uint64_t>& counted);

  // ---- Checkpoints. A residual is what waits for the next push, of rows too,
  // and empty if nothing waits; statistics, with their weight at the end, are
  // zeros before the first gradient.

  absl::Status ReadResidual(uint32_t id, const tensorflow::TensorShape& shape,
                            tensorflow::Tensor* residual) const;
  // Pushes from before are of no more account.
  void WriteResidual(uint32_t id, const tensorflow::Tensor& residual);
  absl::Status ReadSecondMoment(uint32_t id,
                                const tensorflow::TensorShape& shape,
                                tensorflow::Tensor* statistics) const;
  void WriteSecondMoment(uint32_t id, const tensorflow::Tensor& statistics);

  // Frees all that there is of variables, in pushes without an answer too.
  void Forget(const std::vector<int64_t>& ids);

 private:
  // THC's quantisation of a push.
  struct SentThc {
    ThcSpec spec;
    ThcScales scales;
  };
  struct Variable {
    int64_t version = 0;  // of the copy; 0 if there is none
    tensorflow::Tensor value;
    ThcScales scales;                            // from the server
    std::optional<tensorflow::Tensor> residual;  // none: zeros
    Rows pending;                                // of pushes taken back
    // Means of the gradients' (UpdateSecondMoment); none: zeros.
    std::vector<float> statistics;
    float statistics_weight = 0;
  };
  // What it takes to decode the gradient of a variable in a push.
  struct Sent {
    RowsShape shape;          // a dense one is one row
    int64_t matrix_rows = 0;  // that statistics are of, if any
    bool in_units = true;
    SentThc thc = {};
  };
  // A push that the server has not answered.
  struct Unsettled {
    uint32_t channel;
    std::vector<MessageWriter::Entry> entries;
    std::map<uint32_t, Sent> sent;  // by variable
    bool has_not_counted = false;   // when the server was asked
  };

  // All of these need the mutex.
  PullRequest RequestLocked(const std::vector<uint32_t>& ids) const;
  absl::Status CheckEntry(const Message::Entry& entry,
                          const std::map<uint32_t, int64_t>& sizes,
                          const kernels::ParallelFor& parallel_for) const;
  void ApplyEntry(const Message::Entry& entry, int64_t n,
                  const kernels::ParallelFor& parallel_for);
  absl::Status CheckDense(const DenseGradient& gradient) const;
  // The shape of a variable's gradients of so many rows, 1 of dense ones, in
  // pushes that have no answer; by default that of such rows.
  RowsShape UnsettledShape(uint32_t id, int64_t rows, int64_t length) const;
  absl::Status CheckSparse(const SparseGradient& gradient) const;
  PushNumber NextNumber(uint32_t channel);
  void DropUnsettled(uint32_t id);
  void Settle(uint64_t sequence, bool has_arrived,
              const kernels::ParallelFor& parallel_for);
  absl::Status EncodeAll(const std::vector<DenseGradient>& dense,
                         const std::vector<SparseGradient>& sparse,
                         const kernels::ParallelFor& parallel_for,
                         MessageWriter* writer, Unsettled* push);
  void EncodeDense(const DenseGradient& gradient,
                   const kernels::ParallelFor& parallel_for,
                   MessageWriter* writer, Unsettled* push);
  static void UpdateStatistics(const DenseGradient& gradient,
                               const kernels::ParallelFor& parallel_for,
                               Variable* variable);
  void EncodeThc(const DenseGradient& gradient,
                 const kernels::ParallelFor& parallel_for,
                 MessageWriter* writer, Unsettled* push);
  tensorflow::Tensor Quantize(const DenseGradient& gradient,
                              const tensorflow::Tensor& t,
                              const tensorflow::Tensor& norms,
                              const kernels::ParallelFor& parallel_for,
                              Variable* variable) const;
  void EncodeSparse(const SparseGradient& gradient,
                    const kernels::ParallelFor& parallel_for,
                    MessageWriter* writer, Unsettled* push);
  void EncodeRowsOf(const SparseGradient& gradient,
                    const kernels::ParallelFor& parallel_for,
                    MessageWriter* writer, Unsettled* push,
                    Variable* variable) const;
  static Rows TakeWaiting(const Rows& added, Variable* variable);
  // Moves rows that wait to the residual of n values.
  static void MakeWaitingDense(int64_t n, Variable* variable);
  void TakeBack(const kernels::ParallelFor& parallel_for, Unsettled* push);
  static void TakeBackEntry(const MessageWriter::Entry& entry, const Sent& sent,
                            const kernels::ParallelFor& parallel_for,
                            Variable* variable);
  static void TakeBackRows(const MessageWriter::Entry& entry,
                           const RowsShape& shape, Variable* variable);
  static tensorflow::Tensor DecodePushed(
      const MessageWriter::Entry& entry, const Sent& sent,
      const kernels::ParallelFor& parallel_for);

  const Clock clock_;
  const uint64_t worker_;
  const uint64_t number_;  // random: a worker that starts anew is another one

  mutable std::mutex mutex_;  // of all that follows
  int64_t version_ = 0;
  int64_t step_ = 0;
  std::map<uint32_t, Variable> variables_;
  uint64_t pushes_ = 0;
  std::map<uint64_t, Unsettled> unsettled_;  // by sequence number
  uint64_t applied_micros_ = 0;
  uint64_t settled_micros_ = 0;
  int64_t settled_version_ = -1;  // of the last push; -1 while it is under way
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_LOCAL_MODEL_H_
