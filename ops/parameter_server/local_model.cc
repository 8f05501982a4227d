#include "ops/parameter_server/local_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/second_moment.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/push_body.h"
#include "ops/parameter_server/thc.h"
#include "ops/parameter_server/variable.h"
#include "ops/wire/rows.h"
#include "ops/wire/seeds.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::ParallelFor;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

Tensor Constant(float value) {
  Tensor tensor = NewFloats(1);
  *FloatsOf(&tensor) = value;
  return tensor;
}

// A gradient of rows and those that come before it.
Rows RowsOf(const SparseGradient& gradient) {
  const auto indices = gradient.indices.flat<int64_t>();
  const auto values = gradient.values.flat<float>();
  return {RowsShapeOf(gradient.values.shape()).length,
          {indices.data(), indices.data() + indices.size()},
          {values.data(), values.data() + values.size()}};
}

// Those rows that `keep` keeps: keep(index, row) of a row's values.
template <typename Keep>
void AppendRowsIf(const Rows& from, Keep keep, Rows* to) {
  for (int64_t i = 0; i < from.count(); ++i) {
    const int64_t index = from.indices[i];
    const float* const row = from.values.data() + i * from.length;
    if (keep(index, row)) {
      AppendRows({from.length, {index}, {row, row + from.length}}, to);
    }
  }
}

bool IsFinite(const float* row, int64_t length) {
  return kernels::AllFinite(row, length, kernels::SingleThread);
}

// All values of a variable as rows.
Rows AllRows(const Tensor& values, int64_t length) {
  Rows rows = {length, {}, {}};
  const float* const begin = FloatsOf(values);
  rows.values.assign(begin, begin + values.NumElements());
  for (int64_t i = 0; i * length < values.NumElements(); ++i) {
    rows.indices.push_back(i);
  }
  return rows;
}

// What a push of these indices delivers.
Tensor DecodeIndices(const ThcQuantizer& quantizer, int64_t n,
                     const uint8_t* indices, const ParallelFor& parallel_for) {
  std::vector<uint16_t> sums(ThcBlocks(n).padded());
  quantizer.Add(indices, sums.data(), parallel_for);
  Tensor values = Zeros(n);
  quantizer.DecodeAdd(sums.data(), /*pushes=*/1, FloatsOf(&values),
                      parallel_for);
  return values;
}

}  // namespace

LocalModel::LocalModel(uint64_t worker, Clock clock)
    : clock_(std::move(clock)), worker_(worker), number_(RandomNumber()) {}

// ---- Pulls

PullRequest LocalModel::Request(const std::vector<uint32_t>& ids) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return RequestLocked(ids);
}

PullRequest LocalModel::RequestLocked(const std::vector<uint32_t>& ids) const {
  PullRequest request;
  request.version = version_;
  if (settled_version_ == version_ && settled_micros_ > applied_micros_) {
    request.patience_micros = settled_micros_ - applied_micros_;
  }
  for (const uint32_t id : ids) {
    const auto found = variables_.find(id);
    const int64_t version =
        found == variables_.end() ? 0 : found->second.version;
    // What is not there is named even by a model that has no version yet.
    if (version == 0 || version != version_) {
      request.others.emplace_back(id, version);
    }
  }
  return request;
}

absl::Status LocalModel::Apply(const uint8_t* bytes, int64_t size,
                               const std::vector<PulledVariable>& variables,
                               const ParallelFor& parallel_for,
                               int64_t* version, int64_t* step) {
  Message message;
  TF_GC_RETURN_IF_ERROR(ReadMessage(Kind::kPull, bytes, size, &message));
  if (message.version == 0) {
    return absl::DataLossError("pull message: the version of the model is 0");
  }
  std::vector<uint32_t> ids;
  std::map<uint32_t, int64_t> sizes;
  for (const PulledVariable& variable : variables) {
    ids.push_back(variable.id);
    sizes[variable.id] = variable.shape.num_elements();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  *version = version_;
  *step = step_;
  if (message.tag != RequestLocked(ids).Fingerprint()) {
    return absl::OkStatus();
  }
  for (const Message::Entry& entry : message.entries) {
    TF_GC_RETURN_IF_ERROR(CheckEntry(entry, sizes, parallel_for));
  }
  try {
    for (const Message::Entry& entry : message.entries) {
      ApplyEntry(entry, sizes.at(entry.id), parallel_for);
    }
  } catch (const std::bad_alloc&) {
    // Of some of them there is another version now: all are pulled anew.
    for (auto& [id, variable] : variables_) variable.version = 0;
    return NoMemoryError("a copy of the model");
  }
  *version = version_ = message.version;
  *step = step_ = message.step;
  for (const uint32_t id : ids) {
    const auto found = variables_.find(id);
    if (found == variables_.end() || found->second.version == 0) continue;
    found->second.version = version_;
  }
  applied_micros_ = clock_();
  return absl::OkStatus();
}

absl::Status LocalModel::CheckEntry(const Message::Entry& entry,
                                    const std::map<uint32_t, int64_t>& sizes,
                                    const ParallelFor& parallel_for) const {
  const std::string what = absl::StrCat("variable ", entry.id, " of the pull");
  const auto error = [&](const char* problem) {
    return absl::DataLossError(absl::StrCat(what, " message: ", problem));
  };
  const auto asked = sizes.find(entry.id);
  if (asked == sizes.end()) return error("it was not asked for");
  const int64_t n = asked->second;
  if (entry.codec == Codec::kThcNorms) {
    return CheckThcScales(entry.body, entry.size, n, what);
  }
  if (!IsPlain(entry.codec)) return error("the codec is one of pushes");
  const auto found = variables_.find(entry.id);
  if (entry.codec != Codec::kFloat32 &&
      (found == variables_.end() || found->second.version == 0 ||
       found->second.value.NumElements() != n)) {
    return error("a change of values that are not there");
  }
  return CheckBody(entry.codec, entry.body, entry.size, n, what, parallel_for);
}

void LocalModel::ApplyEntry(const Message::Entry& entry, int64_t n,
                            const ParallelFor& parallel_for) {
  Variable& variable = variables_[entry.id];
  if (entry.codec == Codec::kThcNorms) {
    variable.scales = DecodeThcScales(entry.body, entry.size);
  } else if (entry.codec == Codec::kFloat32) {
    std::copy_n(entry.body, entry.size,
                reinterpret_cast<uint8_t*>(Overwrite(n, &variable.value)));
    variable.version = -1;  // there is one now
  } else {
    DecodeAdd(entry.codec, entry.body, entry.size, n, Mutable(&variable.value),
              parallel_for);
  }
}

absl::Status LocalModel::Read(uint32_t id, const TensorShape& shape,
                              Tensor* value) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = variables_.find(id);
  if (found == variables_.end() || found->second.version == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("id: variable ", id,
                     " was not pulled, or is not initialized on its server"));
  }
  if (value->CopyFrom(found->second.value, shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "shape: variable ", id, " has ", found->second.value.NumElements(),
      " values, got shape ", shape.DebugString()));
}

// ---- Pushes

absl::Status LocalModel::EncodePush(uint32_t channel,
                                    const std::vector<DenseGradient>& dense,
                                    const std::vector<SparseGradient>& sparse,
                                    const ParallelFor& parallel_for,
                                    const Allocate& allocate) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::set<uint32_t> ids;
  absl::Status status;
  const auto check_id = [&](uint32_t id) {
    if (ids.insert(id).second) return;
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("ids: variable ", id, " comes twice")));
  };
  for (const DenseGradient& gradient : dense) {
    check_id(gradient.id);
    status.Update(CheckDense(gradient));
  }
  for (const SparseGradient& gradient : sparse) {
    check_id(gradient.id);
    status.Update(CheckSparse(gradient));
  }
  if (!status.ok()) return status;

  MessageWriter writer(Kind::kPush, channel);
  writer.set_version(version_, step_);
  writer.set_number(NextNumber(channel));
  Unsettled push;
  push.channel = channel;
  status = EncodeAll(dense, sparse, parallel_for, &writer, &push);
  settled_version_ = -1;
  push.entries = writer.entries();
  uint8_t* bytes = nullptr;
  if (status.ok()) status = allocate(writer.size(), &bytes);
  if (status.ok()) writer.Write(bytes);
  push.has_not_counted = !status.ok();
  unsettled_[pushes_] = std::move(push);
  if (status.ok()) return status;
  try {
    Settle(pushes_, /*has_arrived=*/false, parallel_for);
  } catch (const std::bad_alloc&) {
    // With the answer to a later push.
  }
  return status;
}

absl::Status LocalModel::EncodeAll(const std::vector<DenseGradient>& dense,
                                   const std::vector<SparseGradient>& sparse,
                                   const ParallelFor& parallel_for,
                                   MessageWriter* writer, Unsettled* push) try {
  for (const DenseGradient& gradient : dense) {
    EncodeDense(gradient, parallel_for, writer, push);
  }
  for (const SparseGradient& gradient : sparse) {
    EncodeSparse(gradient, parallel_for, writer, push);
  }
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemoryError("a push");
}

PushNumber LocalModel::NextNumber(uint32_t channel) {
  PushNumber number = {number_, ++pushes_, {}};
  for (const auto& [sequence, push] : unsettled_) {
    if (push.channel == channel) number.unsettled.push_back(sequence);
  }
  return number;
}

absl::Status LocalModel::CheckDense(const DenseGradient& gradient) const {
  kernels::ThreeLcScaling scaling = 1;
  TF_GC_RETURN_IF_ERROR(MakeScaling(*gradient.codec, gradient.multiplier,
                                    absl::StrCat(gradient.id), &scaling));
  const int64_t n = gradient.gradient.NumElements();
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dense: variable ", gradient.id, " has ", parts...,
        ", and a gradient of shape ", gradient.gradient.shape().DebugString()));
  };
  const int64_t rows = gradient.codec->rows;
  if (!HasMatrix(rows, n)) return error(rows, " rows");
  const RowsShape unsettled = UnsettledShape(gradient.id, 1, n);
  if (unsettled.length != n) {
    return error("a push without an answer of ", unsettled.length, " values");
  }
  const auto found = variables_.find(gradient.id);
  if (found == variables_.end()) return absl::OkStatus();
  const Variable& variable = found->second;
  if (variable.residual && variable.residual->NumElements() != n) {
    return error("a residual of ", variable.residual->NumElements(), " values");
  }
  const Rows& waiting = variable.pending;
  for (const int64_t row : waiting.indices) {
    if (n % waiting.length == 0 && row < n / waiting.length) continue;
    return error("a row ", row, " of ", waiting.length, " values that waits");
  }
  const int64_t statistics = variable.statistics.size();
  if (statistics == 0 || statistics == StatisticsCount(rows, n)) {
    return absl::OkStatus();
  }
  return error(statistics, " statistics");
}

// All such pushes have the same: these checks see to it.
RowsShape LocalModel::UnsettledShape(uint32_t id, int64_t rows,
                                     int64_t length) const {
  for (const auto& [sequence, push] : unsettled_) {
    const auto found = push.sent.find(id);
    if (found != push.sent.end() && found->second.shape.rows == rows) {
      return found->second.shape;
    }
  }
  return {rows, length};
}

absl::Status LocalModel::CheckSparse(const SparseGradient& gradient) const {
  const Tensor& indices = gradient.indices;
  const Tensor& values = gradient.values;
  if (indices.dims() != 1 || values.dims() < 1 ||
      values.dim_size(0) != indices.NumElements()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sparse_values: variable ", gradient.id, " needs as many rows as ",
        "sparse_indices has values, got shapes ", values.shape().DebugString(),
        " and ", indices.shape().DebugString()));
  }
  if (gradient.bits != 0 && !CanPackRows({gradient.rows, 0})) {
    return absl::InvalidArgumentError(
        absl::StrCat("sparse_shapes: variable ", gradient.id, " has ",
                     gradient.rows, " rows, and packed rows are of less than ",
                     "2^31: leave out row_bits"));
  }
  const auto all = indices.flat<int64_t>();
  for (int64_t i = 0; i < all.size(); ++i) {
    if (all(i) < 0 || all(i) >= gradient.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("sparse_indices: one of variable ", gradient.id, " is ",
                       all(i), ", expected 0 ... ", gradient.rows - 1));
    }
  }
  const int64_t length = RowsShapeOf(values.shape()).length;
  const RowsShape unsettled =
      UnsettledShape(gradient.id, gradient.rows, length);
  if (unsettled.length != length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sparse_values: variable ", gradient.id, " has a push without an ",
        "answer of rows of ", unsettled.length, " values, got ", length));
  }
  const auto found = variables_.find(gradient.id);
  if (found == variables_.end()) return absl::OkStatus();
  const Variable& variable = found->second;
  const int64_t residual =
      variable.residual ? variable.residual->NumElements() : 0;
  if ((variable.pending.count() > 0 && variable.pending.length != length) ||
      (residual > 0 && (length == 0 || residual % length > 0))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sparse_values: variable ", gradient.id,
        " has a residual of rows of another length than ", length));
  }
  if (residual > 0 && residual / length > gradient.rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sparse_shapes: variable ", gradient.id, " has a residual of ",
        residual / length, " rows, got ", gradient.rows));
  }
  return absl::OkStatus();
}

void LocalModel::EncodeDense(const DenseGradient& gradient,
                             const ParallelFor& parallel_for,
                             MessageWriter* writer, Unsettled* push) {
  const int64_t n = gradient.gradient.NumElements();
  const int64_t rows = gradient.codec->rows;
  push->sent[gradient.id] = {{1, n}, rows, gradient.codec->units};
  Variable& variable = variables_[gradient.id];
  MakeWaitingDense(n, &variable);
  if (gradient.codec->codec == Codec::kThcIndices) {
    EncodeThc(gradient, parallel_for, writer, push);
    return;
  }
  UpdateStatistics(gradient, parallel_for, &variable);
  const Codec codec =
      step_ < gradient.start_step ? Codec::kFloat32 : gradient.codec->codec;
  const bool has_residual = variable.residual.has_value();
  if (codec == Codec::kFloat32 && !has_residual && rows == 0) {
    writer->Add(gradient.id, codec, gradient.gradient);
    return;
  }
  Tensor residual = has_residual ? *variable.residual : NewFloats(n);
  Tensor body = NewBytes(MaxPushSize(codec, rows, n));
  float* const values = FloatsOf(&residual);
  const Encoded encoded = EncodePushBody(
      codec, {gradient.multiplier, gradient.codec->scale}, rows,
      gradient.codec->units, variable.statistics, FloatsOf(gradient.gradient),
      has_residual ? values : nullptr, n, values, BytesOf(&body), parallel_for);
  writer->Add(gradient.id, codec, body, encoded.size);
  if (!encoded.is_finite) return;
  variable.residual.reset();
  if (gradient.codec->feedback && codec != Codec::kFloat32) {
    variable.residual = std::move(residual);
  }
}

void LocalModel::UpdateStatistics(const DenseGradient& gradient,
                                  const ParallelFor& parallel_for,
                                  Variable* variable) {
  const int64_t rows = gradient.codec->rows;
  if (rows == 0) return;
  const int64_t n = gradient.gradient.NumElements();
  std::vector<float> statistics(StatisticsCount(rows, n));
  variable->statistics.resize(statistics.size());
  kernels::MeanSquares(FloatsOf(gradient.gradient), rows, n / rows,
                       statistics.data(), parallel_for);
  kernels::UpdateSecondMoment(
      statistics.data(), statistics.size(), gradient.codec->decay, /*age=*/1,
      &variable->statistics_weight, variable->statistics.data());
}

void LocalModel::EncodeThc(const DenseGradient& gradient,
                           const ParallelFor& parallel_for,
                           MessageWriter* writer, Unsettled* push) {
  Variable& variable = variables_[gradient.id];
  const uint32_t id = gradient.id;
  const int64_t n = gradient.gradient.NumElements();
  Tensor t = variable.residual ? NewFloats(n) : gradient.gradient;
  if (variable.residual) {
    kernels::AddResidual(FloatsOf(gradient.gradient),
                         FloatsOf(*variable.residual), n, FloatsOf(&t));
  }
  const int64_t blocks = ThcBlocks(n).count;
  Tensor norms = NewFloats(blocks);
  const bool is_finite =
      ThcNorms(FloatsOf(t), n, FloatsOf(&norms), parallel_for);
  if (!is_finite) norms = Constant(kNan);

  const bool is_compressed = step_ >= gradient.start_step &&
                             variable.scales.version > 0 &&
                             variable.scales.values.NumElements() == blocks;
  if (!is_compressed) {
    writer->Add(id, Codec::kFloat32, t);
    writer->Add(id, Codec::kThcNorms, norms);
    // The norm of finite values may overflow.
    if (is_finite || kernels::AllFinite(FloatsOf(t), n, parallel_for)) {
      variable.residual.reset();
    }
    return;
  }
  push->sent[id].thc = {gradient.codec->thc, variable.scales};
  if (is_finite) {
    norms = Quantize(gradient, t, norms, parallel_for, &variable);
  }
  writer->Add(id, Codec::kThcIndices, norms);
}

// The norms and indices of t; what these do not deliver becomes the residual.
Tensor LocalModel::Quantize(const DenseGradient& gradient, const Tensor& t,
                            const Tensor& norms,
                            const ParallelFor& parallel_for,
                            Variable* variable) const {
  const int64_t n = t.NumElements();
  const ThcSpec& spec = gradient.codec->thc;
  const ThcQuantizer quantizer(&spec, gradient.id, n, variable->scales);
  const int64_t head = norms.TotalBytes();
  Tensor body = NewBytes(head + ThcIndicesSize(spec, n));
  std::copy_n(norms.tensor_data().data(), head, BytesOf(&body));
  uint8_t* const indices = BytesOf(&body) + head;
  quantizer.Quantize(FloatsOf(t), MixBits(worker_) + pushes_, indices,
                     parallel_for);
  std::optional<Tensor> residual;
  if (gradient.codec->feedback) {
    residual = DecodeIndices(quantizer, n, indices, parallel_for);
    std::transform(FloatsOf(t), FloatsOf(t) + n, FloatsOf(*residual),
                   FloatsOf(&*residual), std::minus<float>());
  }
  variable->residual = std::move(residual);
  return body;
}

void LocalModel::EncodeSparse(const SparseGradient& gradient,
                              const ParallelFor& parallel_for,
                              MessageWriter* writer, Unsettled* push) {
  Variable& variable = variables_[gradient.id];
  Variable before = variable;
  try {
    EncodeRowsOf(gradient, parallel_for, writer, push, &variable);
  } catch (const std::bad_alloc&) {
    variable = std::move(before);
    throw;
  }
}

void LocalModel::EncodeRowsOf(const SparseGradient& gradient,
                              const ParallelFor& parallel_for,
                              MessageWriter* writer, Unsettled* push,
                              Variable* variable) const {
  const Rows added = RowsOf(gradient);
  const RowsShape shape = {gradient.rows, added.length};
  push->sent[gradient.id] = {shape};
  Rows rows = TakeWaiting(added, variable);
  const bool has_waited = rows.count() > 0;
  AppendRows(added, &rows);
  rows.length = shape.length;
  if (gradient.bits == 0) {
    // There are never more than in the table, however often they are dropped.
    if (has_waited || rows.count() > shape.rows) rows = SumRows(rows);
    writer->Add(gradient.id, Codec::kRows, EncodeRows(rows));
    return;
  }
  const int bits = step_ < gradient.start_step ? kExactBits : gradient.bits;
  const kernels::Seed seed = {
      MixBits(worker_ ^ MixBits(gradient.seed ^ MixBits(gradient.id))),
      pushes_};
  writer->Add(gradient.id, Codec::kPackedRows,
              EncodePackedRows(rows, shape, bits, seed, parallel_for));
}

// The rows of pushes taken back, and of a restored residual. Those to which a
// row is added that is not finite stay.
Rows LocalModel::TakeWaiting(const Rows& added, Variable* variable) {
  const int64_t length = added.length;
  Rows waiting = std::exchange(variable->pending, {});
  if (variable->residual) {
    const auto is_not_zero = [=](int64_t, const float* row) {
      return std::any_of(row, row + length,
                         [](float value) { return value != 0; });
    };
    AppendRowsIf(AllRows(*variable->residual, length), is_not_zero, &waiting);
    variable->residual.reset();
  }
  if (IsFinite(added.values.data(), added.values.size())) return waiting;
  std::set<int64_t> staying;
  for (int64_t i = 0; i < added.count(); ++i) {
    if (!IsFinite(added.values.data() + i * length, length)) {
      staying.insert(added.indices[i]);
    }
  }
  const auto stays = [&](int64_t index, const float*) {
    return staying.count(index) > 0;
  };
  Rows taken;
  AppendRowsIf(waiting, stays, &variable->pending);
  AppendRowsIf(waiting, std::not_fn(stays), &taken);
  return taken;
}

void LocalModel::MakeWaitingDense(int64_t n, Variable* variable) {
  if (variable->pending.count() == 0) return;
  Tensor sum = Zeros(n);
  AddRows(std::exchange(variable->pending, {}), FloatsOf(&sum));
  if (variable->residual) {
    kernels::AddResidual(FloatsOf(sum), FloatsOf(*variable->residual), n,
                         FloatsOf(&sum));
  }
  variable->residual = std::move(sum);
}

absl::Status LocalModel::SettlePush(const uint8_t* bytes, int64_t size,
                                    bool accepted,
                                    const std::set<uint64_t>& counted,
                                    const ParallelFor& parallel_for) try {
  Message message;
  TF_GC_RETURN_IF_ERROR(ReadMessage(Kind::kPush, bytes, size, &message));
  const PushNumber& number = message.number;
  std::lock_guard<std::mutex> lock(mutex_);
  if (number.worker != number_ || number.sequence > pushes_) {
    return absl::DataLossError("push message: it is not of this worker");
  }
  settled_version_ = message.version;
  settled_micros_ = clock_();
  for (const uint64_t earlier : number.unsettled) {
    Settle(earlier, counted.count(earlier) > 0, parallel_for);
  }
  Settle(number.sequence, accepted, parallel_for);
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemoryError("what a push gives back");
}

void LocalModel::Settle(uint64_t sequence, bool has_arrived,
                        const ParallelFor& parallel_for) {
  const auto found = unsettled_.find(sequence);
  if (found == unsettled_.end()) return;
  if (!has_arrived) TakeBack(parallel_for, &found->second);
  unsettled_.erase(found);
}

std::vector<int64_t> LocalModel::UnsettledPushes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> pushes = {static_cast<int64_t>(number_)};
  for (const auto& [sequence, push] : unsettled_) {
    pushes.push_back(push.channel);
    pushes.push_back(static_cast<int64_t>(sequence));
  }
  return pushes;
}

void LocalModel::SettleUnsettled(const std::vector<int64_t>& unsettled,
                                 const std::set<uint64_t>& counted) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 2; i < unsettled.size(); i += 2) {
    const auto found = unsettled_.find(unsettled[i]);
    if (found == unsettled_.end()) continue;
    found->second.has_not_counted = counted.count(found->first) == 0;
    if (!found->second.has_not_counted) unsettled_.erase(found);
  }
}

// What has been taken back is no part of the push any more.
void LocalModel::TakeBack(const ParallelFor& parallel_for, Unsettled* push) {
  while (!push->entries.empty()) {
    const MessageWriter::Entry& entry = push->entries.back();
    TakeBackEntry(entry, push->sent.at(entry.id), parallel_for,
                  &variables_.at(entry.id));
    push->entries.pop_back();
  }
}

void LocalModel::TakeBackEntry(const MessageWriter::Entry& entry,
                               const Sent& sent,
                               const ParallelFor& parallel_for,
                               Variable* variable) {
  if (entry.codec == Codec::kThcNorms) return;
  if (IsOfRows(entry.codec)) {
    TakeBackRows(entry, sent.shape, variable);
    return;
  }
  Tensor values = DecodePushed(entry, sent, parallel_for);
  const int64_t n = values.NumElements();
  if (!kernels::AllFinite(FloatsOf(values), n, parallel_for)) return;
  if (variable->residual) {
    kernels::AddResidual(FloatsOf(*variable->residual), FloatsOf(values), n,
                         FloatsOf(&values));
  }
  variable->residual = std::move(values);
}

void LocalModel::TakeBackRows(const MessageWriter::Entry& entry,
                              const RowsShape& shape, Variable* variable) {
  if (shape.length == 0) return;
  Rows rows, finite;
  DecodeRows(entry.codec, BytesOf(entry.body), entry.size, shape, "", &rows)
      .IgnoreError();  // it is this worker's own
  AppendRowsIf(
      rows,
      [&](int64_t, const float* row) { return IsFinite(row, shape.length); },
      &finite);
  AppendRows(finite, &variable->pending);
}

// The values of a dense gradient that an entry carries, NaN if that says so.
Tensor LocalModel::DecodePushed(const MessageWriter::Entry& entry,
                                const Sent& sent,
                                const ParallelFor& parallel_for) {
  const int64_t n = sent.shape.length;
  const uint8_t* const body = BytesOf(entry.body);
  if (entry.codec != Codec::kThcIndices) {
    Tensor values = Zeros(n);
    DecodeAddPushBody(entry.codec, sent.matrix_rows, sent.in_units, body,
                      entry.size, n, FloatsOf(&values), parallel_for);
    return values;
  }
  if (!HasThcNorms(body, entry.size)) {
    Tensor values = NewFloats(n);
    std::fill_n(FloatsOf(&values), n, kNan);
    return values;
  }
  const auto& [spec, scales] = sent.thc;
  return DecodeIndices(ThcQuantizer(&spec, entry.id, n, scales), n,
                       body + ThcBlocks(n).count * sizeof(float), parallel_for);
}

// ---- Checkpoints

absl::Status LocalModel::ReadResidual(uint32_t id, const TensorShape& shape,
                                      Tensor* residual) const {
  *residual = Tensor(tensorflow::DT_FLOAT, TensorShape({0}));
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = variables_.find(id);
  if (found == variables_.end()) return absl::OkStatus();
  Variable variable = found->second;
  for (const auto& [sequence, push] : unsettled_) {
    for (const MessageWriter::Entry& entry : push.entries) {
      if (!push.has_not_counted || entry.id != id) continue;
      TakeBackEntry(entry, push.sent.at(id), kernels::SingleThread, &variable);
    }
  }
  const std::vector<int64_t>& indices = variable.pending.indices;
  if (!variable.residual && indices.empty()) return absl::OkStatus();
  const int64_t n = shape.num_elements();
  const RowsShape rows = RowsShapeOf(shape);
  const auto is_outside = [&](int64_t index) { return index >= rows.rows; };
  if ((variable.residual && variable.residual->NumElements() != n) ||
      (!indices.empty() && variable.pending.length != rows.length) ||
      std::any_of(indices.begin(), indices.end(), is_outside)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: the residual of variable ", id,
                     " does not fit in ", shape.DebugString()));
  }
  Tensor sum = Zeros(n);
  if (variable.residual) {
    std::copy_n(FloatsOf(*variable.residual), n, FloatsOf(&sum));
  }
  AddRows(variable.pending, FloatsOf(&sum));
  CHECK(residual->CopyFrom(sum, shape));
  return absl::OkStatus();
}

void LocalModel::WriteResidual(uint32_t id, const Tensor& residual) {
  std::optional<Tensor> copy;
  if (const int64_t n = residual.NumElements(); n > 0) {
    copy = NewFloats(n);
    std::copy_n(FloatsOf(residual), n, FloatsOf(&*copy));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Variable& variable = variables_[id];
  variable.residual = std::move(copy);
  variable.pending = {};
  DropUnsettled(id);
}

void LocalModel::DropUnsettled(uint32_t id) {
  for (auto& [sequence, push] : unsettled_) {
    push.entries.erase(std::remove_if(push.entries.begin(), push.entries.end(),
                                      [=](const MessageWriter::Entry& e) {
                                        return e.id == id;
                                      }),
                       push.entries.end());
    push.sent.erase(id);
  }
}

absl::Status LocalModel::ReadSecondMoment(uint32_t id, const TensorShape& shape,
                                          Tensor* statistics) const {
  Tensor copy = Zeros(shape.num_elements());
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = variables_.find(id);
  if (found != variables_.end() && !found->second.statistics.empty()) {
    const std::vector<float>& own = found->second.statistics;
    const int64_t count = own.size();
    if (count + 1 != copy.NumElements()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape: variable ", id, " has ", count,
          " statistics and their weight, got shape ", shape.DebugString()));
    }
    std::copy(own.begin(), own.end(), FloatsOf(&copy));
    FloatsOf(&copy)[count] = found->second.statistics_weight;
  }
  CHECK(statistics->CopyFrom(copy, shape));
  return absl::OkStatus();
}

void LocalModel::WriteSecondMoment(uint32_t id, const Tensor& statistics) {
  const float* const begin = FloatsOf(statistics);
  const int64_t count = std::max<int64_t>(0, statistics.NumElements() - 1);
  std::lock_guard<std::mutex> lock(mutex_);
  Variable& variable = variables_[id];
  variable.statistics.assign(begin, begin + count);
  variable.statistics_weight = count > 0 ? begin[count] : 0;
}

void LocalModel::Forget(const std::vector<int64_t>& ids) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const int64_t id : ids) {
    DropUnsettled(id);
    variables_.erase(id);
  }
  // Their channels may be gone: no later push asks for these.
  for (auto it = unsettled_.begin(); it != unsettled_.end();) {
    it = it->second.entries.empty() ? unsettled_.erase(it) : std::next(it);
  }
}

}  // namespace tf_gc::parameter_server
