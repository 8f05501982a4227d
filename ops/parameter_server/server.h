// A parameter server's side: the published model, the open round, and who may
// do what when.

#ifndef TF_GC_OPS_PARAMETER_SERVER_SERVER_H_
#define TF_GC_OPS_PARAMETER_SERVER_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/parameter_server/clock.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/parked_calls.h"
#include "ops/parameter_server/published_model.h"
#include "ops/parameter_server/round.h"
#include "ops/parameter_server/rows.h"
#include "ops/parameter_server/tensor_pool.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_gc::parameter_server {

struct ServerOptions {
  // Pushes are collected in rounds; else each makes an update of its own.
  bool synchronous = true;
  int64_t pushes_per_round = 1;
  // Asynchronously: how many versions old a push may be, negative for any, not
  // counting those of what training steps have written; and how many updates
  // make a version, 0 for as many as the load asks for.
  int64_t max_staleness = -1;
  int64_t updates_per_version = 1;
  // How long the update of a round may take, or three times as long as the
  // longest one so far if that is more, before somebody else is asked to make
  // it.
  double lease_seconds = 0;

  bool operator==(const ServerOptions& other) const;
};

// What a variable has cost so far; bytes are those of entries.
struct VariableTraffic {
  int64_t values_pushed = 0;
  int64_t bytes_pushed = 0;
  int64_t second_moment_bytes_pushed = 0;  // of these, those of statistics
  int64_t values_pulled = 0;
  int64_t bytes_pulled = 0;
};

struct ServerStatistics {
  int64_t version;
  int64_t step;
  int64_t updates;
  int64_t pushes_accepted;
  int64_t pushes_dropped;
  int64_t pulls;
  int64_t bytes_pushed;
  int64_t bytes_pulled;
  int64_t encodings;
  int64_t log_bytes;
  int64_t pushes_in_round;
  int64_t leases_passed_on;
  int64_t parked_pulls;
  std::map<uint32_t, VariableTraffic> variables;
};

// A handle of a variable that does not keep it alive: the variable's name, or
// where handles count who holds them, a weak reference.
using WeakHandle =
    std::variant<tensorflow::ResourceHandle,
                 tensorflow::core::WeakPtr<tensorflow::ResourceBase>>;

// Means of pushes, in the order in which they are asked for.
struct Gradients {
  std::vector<tensorflow::Tensor> dense;  // float32 vectors
  // By dense gradient: what to expect of the squares of its values, from the
  // pushes' statistics; NaN where it is not finite. Empty for a variable that
  // has none.
  std::vector<tensorflow::Tensor> second_moments;
  std::vector<Rows> sparse;
};

// What a worker learns of a push.
struct Answer {
  bool accepted = false;  // it takes part in an update
  bool ready = false;     // the sender makes an update now
  int64_t round = 0;      // which one
  // Of the earlier pushes that the worker has not heard of: those that took
  // part. The others never will.
  std::vector<uint64_t> counted;
};

// Thread-safe.
class Server : public tensorflow::ResourceBase {
 public:
  explicit Server(const ServerOptions& options, Clock clock = SteadyMicros)
      : options_(options), clock_(std::move(clock)) {}

  std::string DebugString() const override { return "tf_gc server"; }

  const ServerOptions& options() const { return options_; }

  // A variable that is there already must be as it was added.
  absl::Status AddVariable(const VariableInfo& info, const WeakHandle& handle);

  // Frees all that there is of variables, and of channels. Pulls, and the ends
  // of updates, may still name them, and leave them out. Pushes of them are
  // FailedPrecondition.
  void Forget(const std::vector<int64_t>& ids,
              const std::vector<int64_t>& channels);

  // Reads what variables hold that are there and initialized: the caller's
  // part.
  struct Handle {
    std::shared_ptr<const VariableInfo> variable;
    WeakHandle handle;
  };
  using Read = std::function<absl::Status(const std::vector<Handle>&, Values*)>;

  // ---- Pulls

  // Comes before a pull: publishes what has never been and, if a version is due
  // (asynchronously), what has. While somebody else does that, a pull takes the
  // version that there is.
  absl::Status Refresh(const std::vector<uint32_t>& ids, const Read& read,
                       const kernels::ParallelFor& parallel_for);

  // Gives what a worker lacks of these variables: one buffer for all workers
  // that lack the same. ResourceExhausted if there is no memory for it.
  absl::Status Pull(const PullRequest& request,
                    const std::vector<uint32_t>& ids,
                    tensorflow::Tensor* message);

  // If a pull now would bring nothing new, and the request has patience, parks
  // `call`: it is made when there is a new version, patience is over, or the
  // ticket is woken. False if the pull should be made at once.
  bool Park(const PullRequest& request, int64_t ticket, ParkedCalls::Call call);
  ParkedCalls& parked_calls() { return parked_calls_; }

  // ---- Pushes

  // Every push belongs to a channel, which has rounds of its own: that of one
  // of several optimizers. Where there is no memory for what is done with it,
  // that is ResourceExhausted, and the push does not count.

  // Counts a push once, however often it comes. In rounds only a `master` among
  // several servers says that a sender is ready.
  absl::Status AccumulatePush(const uint8_t* bytes, int64_t size, bool master,
                              const kernels::ParallelFor& parallel_for,
                              Answer* answer);

  // Of a worker's pushes without an answer, as LocalModel lists them, those
  // that take part in an update by now. The others may yet: a step may be under
  // way.
  absl::Status CountedPushes(const std::vector<int64_t>& unsettled,
                             std::vector<int64_t>* counted) const;

  // In rounds: closes this one till EndUpdate. False if its update was made
  // already, by somebody to whom the lease was passed on, or from whom.
  bool BeginUpdate(uint32_t channel, int64_t round);

  // The mean of the closed round or, asynchronously, the values of this push,
  // which counts from now on: Aborted if the worker has given it up. Zeros, or
  // no rows, for variables that it has not.
  absl::Status TakeGradients(const uint8_t* bytes, int64_t size,
                             const std::vector<uint32_t>& ids,
                             const std::vector<uint32_t>& sparse_ids,
                             const kernels::ParallelFor& parallel_for,
                             Gradients* gradients);

  // An update has been made. In rounds that publishes these variables, and
  // opens the channel's next round, unless somebody else has done so; else a
  // pull may publish. Each variable has the multiplier of its pull codec's
  // scale, for 3LC.
  absl::Status EndUpdate(
      uint32_t channel, int64_t round,
      const std::vector<std::pair<uint32_t, float>>& multipliers,
      const Read& read, const kernels::ParallelFor& parallel_for,
      int64_t* version);

  // Publishes these variables as they are, to which somebody has written. If
  // that was not a step, pushes for `outdated` variables are forgotten whose
  // update has not begun, as are those to come that were computed before.
  absl::Status PublishWhole(const std::vector<uint32_t>& ids,
                            const std::vector<uint32_t>& outdated,
                            const Read& read);

  // Sets the number of updates that there have been, in earlier programs too.
  void SetStep(int64_t step);

  // The sum of what open rounds have of a variable, but for one that is not
  // finite; empty if they have nothing.
  absl::Status ReadRound(uint32_t id, const kernels::ParallelFor& parallel_for,
                         tensorflow::Tensor* sum) const;

  ServerStatistics Statistics() const;

 private:
  struct Variable {
    std::shared_ptr<const VariableInfo> info;
    WeakHandle handle;
    VariableTraffic traffic;
    int64_t since = 1;  // pushes to rounds on earlier versions are stale
  };

  // What has come from one worker.
  struct Pushes {
    uint64_t last = 0;           // those before it come too late
    std::set<uint64_t> counted;  // of it and those that are unsettled
  };

  struct Channel {
    explicit Channel(TensorPool* pool) : round(std::make_shared<Round>(pool)) {}

    std::shared_ptr<Round> round;
    std::set<uint32_t> ids;     // that its pushes have, decoded or not
    int64_t number = 0;         // of the round
    int64_t since = 1;          // pushes on earlier versions are stale
    bool is_updating = false;   // the round is closed
    bool is_complete = false;   // the same, and nobody was asked to update yet
    bool is_outdated = false;   // the same, and nobody begins its update
    uint64_t began_micros = 0;  // of the update, once it has begun
    uint64_t lease_end_micros = 0;
    uint64_t longest_micros = 0;        // of all updates
    std::map<uint64_t, Pushes> pushes;  // by worker
  };

  struct Push {
    int64_t version;
    uint32_t channel;
    PushNumber number;
    std::vector<PushEntry> entries;
    std::vector<std::shared_ptr<const VariableInfo>> variables;  // of entries
  };

  // Checks all of it. This, and what follows, does not need the mutex.
  absl::Status ReadPush(const uint8_t* bytes, int64_t size,
                        const kernels::ParallelFor& parallel_for,
                        Push* push) const;

  // What must be read before a pull, and what it then makes.
  struct Publication {
    std::vector<Handle> handles;
    bool is_version;
    int64_t updates;  // since the last version
  };
  absl::Status PreparePublication(const std::vector<uint32_t>& ids,
                                  Publication* publication) const;
  absl::Status FindUnpublished(const std::vector<uint32_t>& ids,
                               std::vector<Handle>* handles) const;
  // With the publishing mutex.
  std::vector<Change> Encode(const Values& values,
                             const kernels::ParallelFor& parallel_for) const;
  absl::Status PublishRound(uint32_t channel, int64_t round,
                            const std::vector<uint32_t>& ids, const Read& read,
                            const kernels::ParallelFor& parallel_for);
  absl::Status SetMultipliers(
      const std::vector<std::pair<uint32_t, float>>& multipliers);
  absl::Status ReadValues(const std::vector<uint32_t>& ids, const Read& read,
                          Values* values) const;

  absl::Status TakeMeans(
      const Round& round,
      const std::vector<std::shared_ptr<const VariableInfo>>& dense,
      const std::vector<std::shared_ptr<const VariableInfo>>& sparse,
      const kernels::ParallelFor& parallel_for, Gradients* gradients) const;

  // The pull of workers that lack the same. Whoever is the first writes it.
  struct SharedMessage {
    explicit SharedMessage(uint32_t tag) : writer(Kind::kPull, tag) {}
    void Write();

    MessageWriter writer;
    std::once_flag once;
    tensorflow::Tensor bytes;
  };

  // These need it, for a short time: nothing in them goes by the number of
  // values.
  bool IsForgotten(uint32_t id) const {
    return id < ids_end_ && variables_.count(id) == 0;
  }
  absl::Status Find(uint32_t id, const Variable** variable) const;
  // Leaves out what is forgotten.
  absl::Status FindThoseLeft(const std::vector<uint32_t>& ids,
                             std::vector<const Variable*>* variables) const;
  absl::Status CheckNotForgotten(const Push& push) const;
  absl::Status FindAll(
      const std::vector<uint32_t>& ids,
      std::vector<std::shared_ptr<const VariableInfo>>* variables) const;
  std::shared_ptr<Channel> FindChannel(
      uint32_t channel);  // makes it if need be
  std::shared_ptr<SharedMessage> FindMessage(
      const PullRequest& request,
      const std::vector<const Variable*>& variables);
  bool IsVersionDue() const;
  void CountPush(int64_t size, const Push& push);
  // Asynchronously, whether there are more newer versions than it may be old.
  bool IsTooOld(const Push& push) const;
  void AgePushes();
  // In rounds, whether it was computed on values that are still of some use.
  bool IsFresh(const Push& push, const Channel& channel) const;
  bool Admit(const Push& push, bool master, Channel* channel, Answer* answer);
  void AdmitToRound(const Push& push, bool master, Channel* channel,
                    Answer* answer);
  absl::Status TakePush(const Push& push, Channel* channel);
  void CountUpdate();
  void Lease(Channel* channel) const;
  void BeginRound(Channel* channel);
  void EndRound(Channel* channel);

  const ServerOptions options_;
  const Clock clock_;
  ParkedCalls parked_calls_;
  mutable TensorPool pool_;

  // Held from reading variables to publishing them, so that nobody publishes
  // older values after newer ones. Comes before the other one.
  std::mutex publishing_mutex_;

  mutable std::mutex mutex_;  // of all that follows
  std::map<uint32_t, Variable> variables_;
  int64_t ids_end_ = 0;  // all that have been added are less
  PublishedModel model_;
  // Of this version, by the fingerprint of the request and what was asked for.
  std::map<std::pair<uint32_t, std::vector<std::pair<uint32_t, int64_t>>>,
           std::shared_ptr<SharedMessage>>
      messages_;
  std::map<uint32_t, std::shared_ptr<Channel>> channels_;
  // The last ones, one more than a push may be old, of the versions that count.
  std::deque<int64_t> aging_versions_;
  int64_t updates_due_ = 0;  // since the last version, asynchronously
  int64_t updates_while_encoding_ = 0;  // it
  uint64_t next_version_micros_ = 0;    // when one is due, however few updates
  int64_t updates_ = 0;
  int64_t step_ = 0;  // updates_, and those before the program began
  int64_t pushes_accepted_ = 0;
  int64_t pushes_dropped_ = 0;
  int64_t pulls_ = 0;
  int64_t bytes_pushed_ = 0;
  int64_t bytes_pulled_ = 0;
  int64_t leases_passed_on_ = 0;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_SERVER_H_
