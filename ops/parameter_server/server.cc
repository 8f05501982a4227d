#include "ops/parameter_server/server.h"

#include <algorithm>
#include <new>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "ops/kernels/second_moment.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/push_body.h"
#include "ops/parameter_server/thc.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::ParallelFor;
using ::tensorflow::Tensor;

// Where the load says when a version is due: after so many times the updates
// that were made while the last one was encoded, or so many times the time that
// this took, from its begin. Encoding then takes at most about a quarter of the
// time; where no update is made meanwhile, as with one worker, each makes a
// version.
constexpr int64_t kVersionFactor = 4;

// Kept of one version: at most so many messages, and about so many models'
// bytes.
constexpr size_t kMostMessages = 64;
constexpr int64_t kMostModels = 2;

constexpr int64_t kLongestPatienceMicros = int64_t{3600} * 1000 * 1000;

// So that no limit of the quantiser overflows: t_p is less than 40.
constexpr float kLargestScale = 1e36f;

absl::Status CheckInfo(const VariableInfo& info, const ServerOptions& options) {
  if (!IsPlain(info.pull.codec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull: \"", info.pull.text, "\" is for pushes only; variable ",
        info.name, " needs float32, float16, bfloat16, int8 or three_lc"));
  }
  if (!HasMatrix(info.push.rows, info.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("push: the ", info.size(), " values of variable ",
                     info.name, " do not make ", info.push.rows, " rows"));
  }
  if (info.pull.rows != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pull: rows are for pushes only, got \"", info.pull.text, "\""));
  }
  if (info.push.codec != Codec::kThcIndices || !options.synchronous) {
    return absl::OkStatus();
  }
  const int64_t g = info.push.thc.table.granularity();
  if (options.pushes_per_round <= kLargestThcSum / g) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "push: the table of variable ", info.name, " goes up to ", g, ", and ",
      options.pushes_per_round, " pushes of a round overflow ", kLargestThcSum,
      "; use a smaller granularity"));
}

// Whether it is known what all indices of THC stand for.
bool HasScales(const std::vector<PushEntry>& push) {
  return std::all_of(push.begin(), push.end(), [](const PushEntry& entry) {
    return entry.codec != Codec::kThcIndices || entry.scales.version > 0;
  });
}

// Of the mean of a round. Where noise prevails, the squares of the mean of N
// pushes are 1 / N of the mean of their squares. Where all squares are 0, as of
// a row of which only residuals have come, it is the mean's.
Tensor SecondMoment(const Round& round, const VariableInfo& variable,
                    const float* mean, const ParallelFor& parallel_for,
                    TensorPool* pool) {
  const int64_t rows = variable.push.rows;
  if (rows == 0) return NewFloats(0);
  const int64_t n = variable.size();
  const std::vector<float> sums = round.Statistics(variable);
  if (sums.empty()) return Zeros(n);
  const int64_t columns = n / rows;
  const float pushes = round.pushes();
  std::vector<float> factors(sums.size());
  kernels::SecondMomentFactors(sums.data(), rows, columns,
                               1 / (pushes * pushes), factors.data());
  Tensor moments = pool->Floats(n);
  float* const values = FloatsOf(&moments);
  kernels::OuterProduct(factors.data(), rows, columns, values, parallel_for);
  parallel_for(n, /*cost=*/1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = values[i] == 0 ? mean[i] * mean[i] : values[i];
      values[i] =
          value + (mean[i] - mean[i]);  // NaN where the mean is not finite
    }
  });
  return moments;
}

Tensor Divide(const Tensor& sum, float divisor, const ParallelFor& parallel_for,
              TensorPool* pool) {
  if (divisor == 1) return sum;
  Tensor mean = pool->Floats(sum.NumElements());
  const float* const from = FloatsOf(sum);
  float* const to = FloatsOf(&mean);
  parallel_for(sum.NumElements(), /*cost=*/1, [=](int64_t begin, int64_t end) {
    std::transform(from + begin, from + end, to + begin,
                   [=](float value) { return value / divisor; });
  });
  return mean;
}

absl::Status ForgottenError(uint32_t id) {
  return absl::FailedPreconditionError(absl::StrCat(
      "push: variable ", id, " is gone: the program has dropped its model ",
      "while a step with it was under way. Join the coordinator before"));
}

bool AreEqual(const VariableInfo& a, const VariableInfo& b) {
  return a.name == b.name && a.shape == b.shape && a.push.text == b.push.text &&
         a.pull.text == b.pull.text && a.start_step == b.start_step;
}

}  // namespace

bool ServerOptions::operator==(const ServerOptions& other) const {
  const auto all = [](const ServerOptions& o) {
    return std::tie(o.synchronous, o.pushes_per_round, o.max_staleness,
                    o.updates_per_version, o.lease_seconds);
  };
  return all(*this) == all(other);
}

absl::Status Server::AddVariable(const VariableInfo& info,
                                 const WeakHandle& handle) {
  TF_GC_RETURN_IF_ERROR(CheckInfo(info, options_));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [added, is_new] = variables_.insert(
      {info.id, {std::make_shared<const VariableInfo>(info), handle, {}}});
  Variable& variable = added->second;
  if (is_new) {
    model_.Add(variable.info);
    ids_end_ = std::max<int64_t>(ids_end_, int64_t{info.id} + 1);
    return absl::OkStatus();
  }
  if (!AreEqual(*variable.info, info)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "id: ", info.id, " is that of variable ", variable.info->name,
        ", which was added with another name, shape, codec or start_step"));
  }
  variable.handle = handle;
  return absl::OkStatus();
}

void Server::Forget(const std::vector<int64_t>& ids,
                    const std::vector<int64_t>& channels) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const int64_t channel : channels) channels_.erase(channel);
  for (const int64_t id : ids) {
    for (auto& [number, channel] : channels_) channel->round->Remove(id);
    model_.Remove(id);
    variables_.erase(id);
  }
  messages_.clear();
  pool_.Trim();
}

// ---- Reading variables

absl::Status Server::ReadValues(const std::vector<uint32_t>& ids,
                                const Read& read, Values* values) const {
  std::vector<Handle> handles;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<const Variable*> variables;
    TF_GC_RETURN_IF_ERROR(FindThoseLeft(ids, &variables));
    for (const Variable* variable : variables) {
      handles.push_back({variable->info, variable->handle});
    }
  }
  return read(handles, values);
}

absl::Status Server::Find(uint32_t id, const Variable** variable) const {
  const auto found = variables_.find(id);
  if (found == variables_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids: no variable ", id, " was added to this server"));
  }
  *variable = &found->second;
  return absl::OkStatus();
}

absl::Status Server::FindThoseLeft(
    const std::vector<uint32_t>& ids,
    std::vector<const Variable*>* variables) const {
  for (const uint32_t id : ids) {
    if (IsForgotten(id)) continue;
    variables->emplace_back();
    TF_GC_RETURN_IF_ERROR(Find(id, &variables->back()));
  }
  return absl::OkStatus();
}

absl::Status Server::CheckNotForgotten(const Push& push) const {
  for (const PushEntry& entry : push.entries) {
    if (IsForgotten(entry.variable->id)) {
      return ForgottenError(entry.variable->id);
    }
  }
  return absl::OkStatus();
}

absl::Status Server::FindAll(
    const std::vector<uint32_t>& ids,
    std::vector<std::shared_ptr<const VariableInfo>>* variables) const {
  for (const uint32_t id : ids) {
    const Variable* variable = nullptr;
    TF_GC_RETURN_IF_ERROR(Find(id, &variable));
    variables->push_back(variable->info);
  }
  return absl::OkStatus();
}

// ---- Pulls

absl::Status Server::Refresh(const std::vector<uint32_t>& ids, const Read& read,
                             const ParallelFor& parallel_for) try {
  std::unique_lock<std::mutex> publishing(publishing_mutex_, std::try_to_lock);
  if (!publishing) {
    std::vector<Handle> unpublished;
    TF_GC_RETURN_IF_ERROR(FindUnpublished(ids, &unpublished));
    Values first;
    if (!unpublished.empty()) TF_GC_RETURN_IF_ERROR(read(unpublished, &first));
    // Those that have gone have none.
    if (first.empty()) return absl::OkStatus();
    publishing.lock();
  }
  Publication publication;
  Values values;
  const uint64_t begin_micros = clock_();
  TF_GC_RETURN_IF_ERROR(PreparePublication(ids, &publication));
  if (publication.handles.empty() && !publication.is_version) {
    return absl::OkStatus();
  }
  TF_GC_RETURN_IF_ERROR(read(publication.handles, &values));
  // Those that have never been published may have gone.
  if (values.empty() && !publication.is_version) return absl::OkStatus();
  std::vector<Change> changes;
  if (publication.is_version) changes = Encode(values, parallel_for);
  std::lock_guard<std::mutex> lock(mutex_);
  messages_.clear();
  if (!publication.is_version) {
    model_.Capture(values);
    return absl::OkStatus();
  }
  updates_due_ -= publication.updates;
  updates_while_encoding_ = updates_due_;
  const uint64_t encoding_micros = clock_() - begin_micros;
  next_version_micros_ = begin_micros + kVersionFactor * encoding_micros;
  model_.Publish(changes, step_ - updates_due_);
  AgePushes();
  for (auto& [number, channel] : channels_) EndRound(channel.get());
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemoryError("a version of the model");
}

absl::Status Server::FindUnpublished(const std::vector<uint32_t>& ids,
                                     std::vector<Handle>* handles) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Variable*> variables;
  TF_GC_RETURN_IF_ERROR(FindThoseLeft(ids, &variables));
  for (const Variable* variable : variables) {
    if (model_.HasValue(variable->info->id)) continue;
    handles->push_back({variable->info, variable->handle});
  }
  return absl::OkStatus();
}

absl::Status Server::PreparePublication(const std::vector<uint32_t>& ids,
                                        Publication* publication) const {
  TF_GC_RETURN_IF_ERROR(FindUnpublished(ids, &publication->handles));
  std::lock_guard<std::mutex> lock(mutex_);
  publication->is_version = IsVersionDue();
  publication->updates = updates_due_;
  if (!publication->is_version) return absl::OkStatus();
  for (const auto& [id, variable] : variables_) {
    if (!model_.HasValue(id)) continue;
    publication->handles.push_back({variable.info, variable.handle});
  }
  return absl::OkStatus();
}

bool Server::IsVersionDue() const {
  if (options_.synchronous || updates_due_ == 0) return false;
  if (options_.updates_per_version > 0) {
    return updates_due_ >= options_.updates_per_version;
  }
  return updates_due_ >= kVersionFactor * updates_while_encoding_ ||
         clock_() >= next_version_micros_;
}

std::vector<Change> Server::Encode(const Values& values,
                                   const ParallelFor& parallel_for) const {
  std::vector<Change> changes;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    changes = model_.Changes(values);
  }
  for (Change& change : changes) change.Encode(parallel_for, &pool_);
  return changes;
}

absl::Status Server::Pull(const PullRequest& request,
                          const std::vector<uint32_t>& ids, Tensor* bytes) try {
  std::shared_ptr<SharedMessage> message;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<const Variable*> variables;
    TF_GC_RETURN_IF_ERROR(FindThoseLeft(ids, &variables));
    message = FindMessage(request, variables);
    for (const Variable* variable : variables) {
      variables_.at(variable->info->id).traffic.values_pulled +=
          variable->info->size();
    }
    for (const MessageWriter::Entry& entry : message->writer.entries()) {
      variables_.at(entry.id).traffic.bytes_pulled +=
          EntrySize(entry.id, entry.size);
    }
    ++pulls_;
    bytes_pulled_ += message->writer.size();
  }
  std::call_once(message->once, [&] { message->Write(); });
  *bytes = message->bytes;
  if (bytes->IsInitialized()) return absl::OkStatus();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_.clear();  // which frees memory, and the next pull tries again
  }
  return NoMemoryError(
      absl::StrCat("a pull of ", message->writer.size(), " bytes"));
} catch (const std::bad_alloc&) {
  return NoMemoryError("a pull");
}

std::shared_ptr<Server::SharedMessage> Server::FindMessage(
    const PullRequest& request, const std::vector<const Variable*>& variables) {
  const std::map<uint32_t, int64_t> others(request.others.begin(),
                                           request.others.end());
  std::vector<std::pair<uint32_t, int64_t>> versions;
  for (const Variable* variable : variables) {
    const uint32_t id = variable->info->id;
    const auto other = others.find(id);
    versions.emplace_back(
        id, other == others.end() ? request.version : other->second);
  }
  const uint32_t tag = request.Fingerprint();
  const auto found = messages_.find({tag, versions});
  if (found != messages_.end()) return found->second;
  const auto message = std::make_shared<SharedMessage>(tag);
  message->writer.set_version(model_.version(), model_.step());
  for (const auto& [id, version] : versions) {
    model_.AddEntries(id, version, &message->writer);
  }
  int64_t kept_bytes = 0, model_bytes = 0;
  for (const auto& [key, kept] : messages_) kept_bytes += kept->writer.size();
  for (const auto& [id, variable] : variables_) {
    model_bytes += variable.info->size() * sizeof(float);
  }
  if (messages_.size() >= kMostMessages ||
      kept_bytes > kMostModels * model_bytes) {
    messages_.clear();
  }
  messages_[{tag, versions}] = message;
  return message;
}

void Server::SharedMessage::Write() {
  // Not NewBytes: nothing may be thrown here.
  bytes =
      Tensor(tensorflow::DT_UINT8, tensorflow::TensorShape({writer.size()}));
  if (bytes.IsInitialized()) writer.Write(BytesOf(&bytes));
}

bool Server::Park(const PullRequest& request, int64_t ticket,
                  ParkedCalls::Call call) {
  if (!options_.synchronous || request.patience_micros == 0) return false;
  const std::chrono::microseconds patience(
      std::min(request.patience_micros, kLongestPatienceMicros));
  std::lock_guard<std::mutex> lock(mutex_);
  if (request.version != model_.version()) return false;
  for (const auto& [id, version] : request.others) {
    // One that has gone before it was published brings nothing, either.
    const bool is_gone =
        IsForgotten(id) || (variables_.count(id) > 0 && !model_.HasValue(id));
    if (!is_gone) return false;
  }
  parked_calls_.Park(ticket, ParkedCalls::Clock::now() + patience,
                     std::move(call));
  return true;
}

// ---- Pushes

absl::Status Server::ReadPush(const uint8_t* bytes, int64_t size,
                              const ParallelFor& parallel_for,
                              Push* push) const {
  Message message;
  TF_GC_RETURN_IF_ERROR(ReadMessage(Kind::kPush, bytes, size, &message));
  *push = {message.version, message.tag, std::move(message.number), {}, {}};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Message::Entry& entry : message.entries) {
      const auto found = variables_.find(entry.id);
      if (IsForgotten(entry.id)) return ForgottenError(entry.id);
      if (found == variables_.end()) {
        return absl::DataLossError(absl::StrCat("push message: no variable ",
                                                entry.id,
                                                " was added to this server"));
      }
      push->variables.push_back(found->second.info);
      push->entries.push_back({found->second.info.get(), entry.codec,
                               entry.body, entry.size,
                               model_.Scales(entry.id, message.version)});
    }
  }
  return CheckPush(push->entries, parallel_for);
}

absl::Status Server::AccumulatePush(const uint8_t* bytes, int64_t size,
                                    bool master,
                                    const ParallelFor& parallel_for,
                                    Answer* answer) try {
  Push push;
  TF_GC_RETURN_IF_ERROR(ReadPush(bytes, size, parallel_for, &push));
  std::shared_ptr<Channel> channel;
  std::shared_ptr<Round> round;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TF_GC_RETURN_IF_ERROR(CheckNotForgotten(push));
    CountPush(size, push);
    channel = FindChannel(push.channel);
    round = channel->round;
    const bool is_new = Admit(push, master, channel.get(), answer);
    if (!is_new || !answer->accepted || !options_.synchronous) {
      return absl::OkStatus();
    }
  }
  const absl::Status status = round->Add(push.entries, parallel_for);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!status.ok()) {
    // The worker's next push takes back what this one has.
    channel->pushes[push.number.worker].counted.erase(push.number.sequence);
    --pushes_accepted_;
    ++pushes_dropped_;
  }
  // Another thread may have ended that round, and others begun the next one.
  if (channel->round == round && channel->is_complete && round->IsAddedUp()) {
    // Where this worker cannot, the next one that pushes makes the update.
    channel->is_complete = false;
    answer->ready = status.ok();
    if (answer->ready) Lease(channel.get());
  }
  return status;
} catch (const std::bad_alloc&) {
  return NoMemoryError("a push");
}

// False if the push has come before, or too late.
bool Server::Admit(const Push& push, bool master, Channel* channel,
                   Answer* answer) {
  Pushes& pushes = channel->pushes[push.number.worker];
  const uint64_t sequence = push.number.sequence;
  for (const uint64_t earlier : push.number.unsettled) {
    if (pushes.counted.count(earlier) > 0) answer->counted.push_back(earlier);
  }
  if (sequence <= pushes.last) {
    answer->accepted = pushes.counted.count(sequence) > 0;
    return false;
  }
  pushes = {sequence, {answer->counted.begin(), answer->counted.end()}};
  if (options_.synchronous) {
    AdmitToRound(push, master, channel, answer);
    if (answer->accepted) pushes.counted.insert(sequence);
  } else {
    answer->accepted = answer->ready =
        !IsTooOld(push) && HasScales(push.entries);
    if (answer->accepted) channel->round->AddNorms(push.entries);
  }
  ++(answer->accepted ? pushes_accepted_ : pushes_dropped_);
  return true;
}

absl::Status Server::CountedPushes(const std::vector<int64_t>& unsettled,
                                   std::vector<int64_t>* counted) const {
  if (unsettled.size() % 2 == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("unsettled must be a number and pairs, got ",
                     unsettled.size(), " numbers"));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 1; i < unsettled.size(); i += 2) {
    const auto channel = channels_.find(unsettled[i]);
    if (channel == channels_.end()) continue;
    const auto pushes = channel->second->pushes.find(unsettled[0]);
    if (pushes == channel->second->pushes.end()) continue;
    const int64_t sequence = unsettled[i + 1];
    if (pushes->second.counted.count(sequence) > 0) {
      counted->push_back(sequence);
    }
  }
  return absl::OkStatus();
}

void Server::CountPush(int64_t size, const Push& push) {
  bytes_pushed_ += size;
  for (const PushEntry& entry : push.entries) {
    const uint32_t id = entry.variable->id;
    VariableTraffic& traffic = variables_.at(id).traffic;
    traffic.values_pushed += CountValues(entry);
    traffic.bytes_pushed += EntrySize(id, entry.size);
    traffic.second_moment_bytes_pushed += CountStatisticsBytes(entry);
  }
}

std::shared_ptr<Server::Channel> Server::FindChannel(uint32_t channel) {
  std::shared_ptr<Channel>& found = channels_[channel];
  if (found == nullptr) found = std::make_shared<Channel>(&pool_);
  return found;
}

bool Server::IsTooOld(const Push& push) const {
  if (options_.max_staleness < 0) return false;
  const auto newer = std::upper_bound(aging_versions_.begin(),
                                      aging_versions_.end(), push.version);
  return aging_versions_.end() - newer > options_.max_staleness;
}

// Notes that the newest version makes pushes that were computed before older.
void Server::AgePushes() {
  if (options_.max_staleness < 0) return;
  if (static_cast<int64_t>(aging_versions_.size()) > options_.max_staleness) {
    aging_versions_.pop_front();
  }
  aging_versions_.push_back(model_.version());
}

bool Server::IsFresh(const Push& push, const Channel& channel) const {
  return push.version >= channel.since && push.version <= model_.version() &&
         std::all_of(push.entries.begin(), push.entries.end(),
                     [&](const PushEntry& entry) {
                       return push.version >=
                              variables_.at(entry.variable->id).since;
                     });
}

// The round's last push closes it. Whoever then is the last to add up makes the
// update.
void Server::AdmitToRound(const Push& push, bool master, Channel* channel,
                          Answer* answer) {
  answer->round = channel->number;
  if (channel->is_updating) {
    // Whoever was to make the update may have died.
    answer->ready = master && !channel->is_complete &&
                    clock_() >= channel->lease_end_micros;
    leases_passed_on_ += answer->ready;
    if (answer->ready) Lease(channel);
    return;
  }
  answer->accepted = IsFresh(push, *channel) && HasScales(push.entries) &&
                     channel->round->Admit(push.entries);
  if (!answer->accepted) return;
  for (const PushEntry& entry : push.entries) {
    channel->ids.insert(entry.variable->id);
  }
  channel->is_complete =
      master && channel->round->pushes() >= options_.pushes_per_round;
  channel->is_updating = channel->is_complete;
}

void Server::Lease(Channel* channel) const {
  channel->is_updating = true;
  channel->lease_end_micros =
      clock_() + std::max(static_cast<uint64_t>(options_.lease_seconds * 1e6),
                          3 * channel->longest_micros);
}

bool Server::BeginUpdate(uint32_t channel, int64_t round) {
  std::shared_ptr<Round> closed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<Channel> found = FindChannel(channel);
    if (round < found->number || found->is_outdated) return false;
    found->began_micros = clock_();
    Lease(found.get());
    closed = found->round;
  }
  closed->WaitTillAddedUp();
  return true;
}

absl::Status Server::TakeGradients(const uint8_t* bytes, int64_t size,
                                   const std::vector<uint32_t>& ids,
                                   const std::vector<uint32_t>& sparse_ids,
                                   const ParallelFor& parallel_for,
                                   Gradients* gradients) try {
  Push push;
  absl::Status status = ReadPush(bytes, size, parallel_for, &push);
  std::vector<std::shared_ptr<const VariableInfo>> dense, sparse;
  std::shared_ptr<Channel> channel;
  std::shared_ptr<Round> round;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    status.Update(CheckNotForgotten(push));
    status.Update(FindAll(ids, &dense));
    status.Update(FindAll(sparse_ids, &sparse));
    if (!status.ok()) return status;
    channel = FindChannel(push.channel);
    round = channel->round;
  }
  if (options_.synchronous) {
    return TakeMeans(*round, dense, sparse, parallel_for, gradients);
  }
  if (!HasScales(push.entries)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push: the scales of version ", push.version,
        " are forgotten: take the gradients of accepted pushes only"));
  }
  Round own(&pool_);
  own.Admit(push.entries);
  TF_GC_RETURN_IF_ERROR(own.Add(push.entries, parallel_for));
  TF_GC_RETURN_IF_ERROR(TakeMeans(own, dense, sparse, parallel_for, gradients));
  // It counts now that there has been memory for it.
  std::lock_guard<std::mutex> lock(mutex_);
  return TakePush(push, channel.get());
} catch (const std::bad_alloc&) {
  return NoMemoryError("the gradients of an update");
}

absl::Status Server::TakePush(const Push& push, Channel* channel) {
  Pushes& pushes = channel->pushes[push.number.worker];
  if (push.number.sequence < pushes.last) {
    return absl::AbortedError(
        "push: its worker has given it up, and pushed again");
  }
  pushes.counted.insert(push.number.sequence);
  return absl::OkStatus();
}

absl::Status Server::TakeMeans(
    const Round& round,
    const std::vector<std::shared_ptr<const VariableInfo>>& dense,
    const std::vector<std::shared_ptr<const VariableInfo>>& sparse,
    const ParallelFor& parallel_for, Gradients* gradients) const {
  // A round without a push has zeros.
  const float divisor = std::max<int64_t>(round.pushes(), 1);
  for (const auto& variable : dense) {
    gradients->dense.push_back(Divide(round.Sum(*variable, parallel_for),
                                      divisor, parallel_for, &pool_));
    gradients->second_moments.push_back(
        SecondMoment(round, *variable, FloatsOf(gradients->dense.back()),
                     parallel_for, &pool_));
  }
  for (const auto& variable : sparse) {
    gradients->sparse.emplace_back();
    Rows* const rows = &gradients->sparse.back();
    TF_GC_RETURN_IF_ERROR(round.TakeRows(*variable, rows));
    for (float& value : rows->values) value /= divisor;
  }
  return absl::OkStatus();
}

absl::Status Server::EndUpdate(
    uint32_t channel, int64_t round,
    const std::vector<std::pair<uint32_t, float>>& multipliers,
    const Read& read, const ParallelFor& parallel_for, int64_t* version) try {
  TF_GC_RETURN_IF_ERROR(SetMultipliers(multipliers));
  if (options_.synchronous) {
    std::vector<uint32_t> ids;
    for (const auto& [id, multiplier] : multipliers) ids.push_back(id);
    TF_GC_RETURN_IF_ERROR(
        PublishRound(channel, round, ids, read, parallel_for));
    parked_calls_.WakeAll();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (!options_.synchronous) {
    CountUpdate();
    ++updates_due_;
  }
  *version = model_.version();
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemoryError("a version of the model");
}

absl::Status Server::PublishRound(uint32_t channel, int64_t round,
                                  const std::vector<uint32_t>& ids,
                                  const Read& read,
                                  const ParallelFor& parallel_for) {
  std::lock_guard<std::mutex> publishing(publishing_mutex_);
  const auto is_over = [&] { return round < FindChannel(channel)->number; };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_over()) return absl::OkStatus();
  }
  Values values;
  TF_GC_RETURN_IF_ERROR(ReadValues(ids, read, &values));
  const std::vector<Change> changes = Encode(values, parallel_for);
  std::lock_guard<std::mutex> lock(mutex_);
  messages_.clear();
  Channel* const ended = FindChannel(channel).get();
  if (!ended->is_outdated) CountUpdate();
  model_.Publish(changes, step_);
  if (ended->began_micros > 0) {
    const uint64_t micros = clock_() - ended->began_micros;
    ended->longest_micros = std::max(ended->longest_micros, micros);
  }
  ended->number = round + 1;
  EndRound(ended);
  return absl::OkStatus();
}

void Server::CountUpdate() {
  ++updates_;
  ++step_;
}

absl::Status Server::SetMultipliers(
    const std::vector<std::pair<uint32_t, float>>& multipliers) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, multiplier] : multipliers) {
    if (IsForgotten(id)) continue;
    const Variable* variable = nullptr;
    TF_GC_RETURN_IF_ERROR(Find(id, &variable));
    kernels::ThreeLcScaling scaling = 1;
    TF_GC_RETURN_IF_ERROR(MakeScaling(variable->info->pull, multiplier,
                                      variable->info->name, &scaling));
    model_.SetScaling(id, scaling);
  }
  return absl::OkStatus();
}

void Server::BeginRound(Channel* channel) {
  channel->round = std::make_shared<Round>(&pool_);
  channel->ids.clear();
}

// A version has been published. THC's scales follow from the round's norms.
void Server::EndRound(Channel* channel) {
  for (const auto& [id, variable] : variables_) {
    const VariableInfo& info = *variable.info;
    const std::vector<float> norms = channel->round->Norms(info);
    if (norms.empty()) continue;
    const float headroom = info.push.thc.headroom;
    std::vector<float> scales(norms.size());
    std::transform(norms.begin(), norms.end(), scales.begin(), [=](float norm) {
      return std::min(headroom * norm, kLargestScale);
    });
    model_.SetScales(id, scales);
  }
  BeginRound(channel);
  channel->is_updating = channel->is_complete = channel->is_outdated = false;
  channel->began_micros = 0;
  channel->since = model_.version();
}

absl::Status Server::PublishWhole(const std::vector<uint32_t>& ids,
                                  const std::vector<uint32_t>& outdated,
                                  const Read& read) {
  {
    std::lock_guard<std::mutex> publishing(publishing_mutex_);
    Values values;
    TF_GC_RETURN_IF_ERROR(ReadValues(ids, read, &values));
    std::lock_guard<std::mutex> lock(mutex_);
    model_.PublishWhole(values);
    messages_.clear();
    if (!outdated.empty()) AgePushes();
    for (const uint32_t id : outdated) {
      const auto found = variables_.find(id);
      if (found != variables_.end()) found->second.since = model_.version();
      for (auto& [number, channel] : channels_) {
        if (channel->ids.count(id) == 0) continue;
        // What has begun is made, and counted.
        channel->is_outdated =
            channel->is_updating && channel->began_micros == 0;
        if (!channel->is_updating) BeginRound(channel.get());
      }
    }
  }
  parked_calls_.WakeAll();
  return absl::OkStatus();
}

void Server::SetStep(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  step_ = step;
  model_.SetStep(step);
  messages_.clear();
}

// ---- What there is

absl::Status Server::ReadRound(uint32_t id, const ParallelFor& parallel_for,
                               Tensor* sum) const {
  std::vector<std::shared_ptr<const VariableInfo>> variable;
  std::vector<std::shared_ptr<Round>> rounds;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    TF_GC_RETURN_IF_ERROR(FindAll({id}, &variable));
    for (const auto& [number, channel] : channels_) {
      rounds.push_back(channel->round);
    }
  }
  const int64_t n = variable[0]->size();
  *sum = Tensor(tensorflow::DT_FLOAT, tensorflow::TensorShape({0}));
  for (const std::shared_ptr<Round>& round : rounds) {
    if (!round->Has(id)) continue;
    const Tensor part = round->Sum(*variable[0], parallel_for);
    // It would spoil the residuals of a checkpoint.
    if (!kernels::AllFinite(FloatsOf(part), n, parallel_for)) continue;
    if (sum->NumElements() == 0) *sum = Zeros(n);
    kernels::AddResidual(FloatsOf(part), FloatsOf(*sum), n, FloatsOf(sum));
  }
  return absl::OkStatus();
}

ServerStatistics Server::Statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  ServerStatistics statistics = {model_.version(),
                                 step_,
                                 updates_,
                                 pushes_accepted_,
                                 pushes_dropped_,
                                 pulls_,
                                 bytes_pushed_,
                                 bytes_pulled_,
                                 model_.encodings(),
                                 model_.log_bytes(),
                                 /*pushes_in_round=*/0,
                                 leases_passed_on_,
                                 parked_calls_.size(),
                                 {}};
  for (const auto& [number, channel] : channels_) {
    statistics.pushes_in_round += channel->round->pushes();
  }
  for (const auto& [id, variable] : variables_) {
    statistics.variables[id] = variable.traffic;
  }
  return statistics;
}

}  // namespace tf_gc::parameter_server
