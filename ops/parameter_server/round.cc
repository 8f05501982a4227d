#include "ops/parameter_server/round.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/push_body.h"
#include "ops/parameter_server/thc.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::ParallelFor;
using ::tensorflow::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Zeros(int64_t n, TensorPool* pool) {
  Tensor zeros = pool->Floats(n);
  std::fill_n(FloatsOf(&zeros), n, 0.0f);
  return zeros;
}

Tensor Copy(const Tensor& values, TensorPool* pool) {
  const int64_t n = values.NumElements();
  Tensor copy = pool->Floats(n);
  std::copy_n(FloatsOf(values), n, FloatsOf(&copy));
  return copy;
}

std::string Describe(const PushEntry& entry) {
  return absl::StrCat("variable ", entry.variable->name, " of the push");
}

// Whether pushes of this variable may have entries in this codec.
bool IsExpected(const VariableInfo& variable, Codec codec) {
  switch (codec) {
    case Codec::kFloat32:
    case Codec::kRows:
    case Codec::kPackedRows:
      return true;
    case Codec::kThcNorms:
      return variable.push.codec == Codec::kThcIndices;
    default:
      return variable.push.codec == codec;
  }
}

absl::Status CheckEntry(const PushEntry& entry,
                        const ParallelFor& parallel_for) {
  const VariableInfo& variable = *entry.variable;
  const std::string what = Describe(entry);
  if (!IsExpected(variable, entry.codec)) {
    return absl::DataLossError(absl::StrCat(
        what, " message: the codec is ", static_cast<int>(entry.codec),
        ", expected 0 or that of \"", variable.push.text, "\""));
  }
  const int64_t n = variable.size();
  Rows rows;
  switch (entry.codec) {
    case Codec::kThcIndices:
      return CheckThcPush(variable.push.thc, entry.body, entry.size, n, what);
    case Codec::kThcNorms:
      return CheckThcNorms(entry.body, entry.size, n, what);
    case Codec::kRows:
    case Codec::kPackedRows:
      return DecodeRows(entry.codec, entry.body, entry.size,
                        RowsShapeOf(variable.shape), what, &rows);
    default:
      return CheckPushBody(entry.codec, variable.push.rows, entry.body,
                           entry.size, n, what, parallel_for);
  }
}

}  // namespace

absl::Status CheckPush(const std::vector<PushEntry>& push,
                       const ParallelFor& parallel_for) {
  // Norms come beside values.
  std::set<std::pair<uint32_t, bool>> seen;
  for (const PushEntry& entry : push) {
    const bool is_norms = entry.codec == Codec::kThcNorms;
    if (!seen.emplace(entry.variable->id, is_norms).second) {
      return absl::DataLossError(
          absl::StrCat(Describe(entry), " message: it comes twice"));
    }
    TF_GC_RETURN_IF_ERROR(CheckEntry(entry, parallel_for));
  }
  return absl::OkStatus();
}

int64_t CountValues(const PushEntry& entry) {
  if (entry.codec == Codec::kThcNorms) return 0;
  if (!IsOfRows(entry.codec)) return entry.variable->size();
  return CountRowValues(entry.codec, entry.body, entry.size,
                        RowsShapeOf(entry.variable->shape));
}

int64_t CountStatisticsBytes(const PushEntry& entry) {
  if (IsOfRows(entry.codec)) return 0;
  return StatisticsSize(entry.variable->push.rows, entry.variable->size());
}

bool Round::Admit(const std::vector<PushEntry>& push) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Accumulator*> places;
  for (const PushEntry& entry : push) {
    std::shared_ptr<Accumulator>& place = accumulators_[entry.variable->id];
    if (place == nullptr) place = std::make_shared<Accumulator>();
    if (!place->HasRoom(entry)) return false;
    places.push_back(place.get());
  }
  for (size_t i = 0; i < push.size(); ++i) places[i]->Admit(push[i]);
  ++pushes_;
  return true;
}

absl::Status Round::Add(const std::vector<PushEntry>& push,
                        const ParallelFor& parallel_for) {
  const absl::Status status = AddEntries(push, parallel_for);
  std::lock_guard<std::mutex> lock(mutex_);
  if (++added_ == pushes_) added_up_.notify_all();
  return status;
}

absl::Status Round::AddEntries(const std::vector<PushEntry>& push,
                               const ParallelFor& parallel_for) try {
  std::vector<Rows> rows(push.size());
  for (const bool is_reserved : {false, true}) {
    for (size_t i = 0; i < push.size(); ++i) {
      const auto place = Find(push[i].variable->id);
      if (place == nullptr) continue;
      std::lock_guard<std::mutex> lock(place->mutex);
      if (is_reserved) {
        place->Add(push[i], rows[i], parallel_for, &pool_);
      } else {
        place->Reserve(push[i], &pool_, &rows[i]);
      }
    }
  }
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return NoMemoryError("the sum of a round's pushes");
}

void Round::AddNorms(const std::vector<PushEntry>& push) {
  for (const PushEntry& entry : push) {
    if (entry.codec != Codec::kThcIndices && entry.codec != Codec::kThcNorms) {
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    std::shared_ptr<Accumulator>& place = accumulators_[entry.variable->id];
    if (place == nullptr) place = std::make_shared<Accumulator>();
    std::lock_guard<std::mutex> place_lock(place->mutex);
    place->AddNorms(entry);
  }
}

int64_t Round::pushes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pushes_;
}

bool Round::IsAddedUp() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return added_ == pushes_;
}

void Round::WaitTillAddedUp() const {
  std::unique_lock<std::mutex> lock(mutex_);
  added_up_.wait(lock, [this] { return added_ == pushes_; });
}

std::shared_ptr<Round::Accumulator> Round::Find(uint32_t id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = accumulators_.find(id);
  return found == accumulators_.end() ? nullptr : found->second;
}

void Round::Remove(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  accumulators_.erase(id);
}

bool Round::Accumulator::HasRoom(const PushEntry& entry) const {
  if (entry.codec != Codec::kThcIndices ||
      !HasThcNorms(entry.body, entry.size)) {
    return true;
  }
  const int64_t g = entry.variable->push.thc.table.granularity();
  return (lane_pushes + 1) * g <= kLargestThcSum;
}

void Round::Accumulator::Admit(const PushEntry& entry) {
  if (entry.codec != Codec::kThcIndices ||
      !HasThcNorms(entry.body, entry.size)) {
    return;
  }
  ++lane_pushes;
}

void Round::Accumulator::Reserve(const PushEntry& entry, TensorPool* pool,
                                 Rows* decoded) {
  const int64_t n = entry.variable->size();
  if (IsOfRows(entry.codec)) {
    DecodeRows(entry.codec, entry.body, entry.size,
               RowsShapeOf(entry.variable->shape), "", decoded)
        .IgnoreError();  // it was checked
    ReserveRows(*decoded, &rows);
  } else if (entry.codec == Codec::kThcIndices) {
    lanes.reserve(ThcBlocks(n).padded());
    const bool goes_to_sum =
        !HasThcNorms(entry.body, entry.size) ||
        (pushes_in_lanes > 0 && scales.version != entry.scales.version);
    if (goes_to_sum) ReserveSum(n, pool);
  } else if (entry.codec != Codec::kThcNorms) {
    ReserveSum(n, pool);
  }
}

void Round::Accumulator::ReserveSum(int64_t n, TensorPool* pool) {
  if (!sum) {
    if (!room) room = pool->Floats(n);
  } else if (is_sum_taken) {
    sum = Copy(*sum, pool);
    is_sum_taken = false;
  }
}

void Round::Accumulator::Add(const PushEntry& entry, const Rows& decoded,
                             const ParallelFor& parallel_for,
                             TensorPool* pool) {
  switch (entry.codec) {
    case Codec::kThcNorms:
      return AddNorms(entry);
    case Codec::kThcIndices:
      AddNorms(entry);
      return AddIndices(entry, parallel_for, pool);
    case Codec::kRows:
    case Codec::kPackedRows:
      return AppendRows(decoded, &rows);
    default:
      AddStatistics(entry);
      return AddValues(entry, parallel_for, pool);
  }
}

void Round::Accumulator::AddValues(const PushEntry& entry,
                                   const ParallelFor& parallel_for,
                                   TensorPool* pool) {
  const VariableInfo& variable = *entry.variable;
  const int64_t n = variable.size();
  const bool is_first = !sum;
  ReserveSum(n, pool);
  if (is_first) sum = std::exchange(room, std::nullopt);
  const auto decode = is_first ? DecodePushBody : DecodeAddPushBody;
  decode(entry.codec, variable.push.rows, variable.push.units, entry.body,
         entry.size, n, FloatsOf(&*sum), parallel_for);
}

void Round::Accumulator::AddStatistics(const PushEntry& entry) {
  const std::vector<float> more = DecodeStatistics(
      entry.body, entry.variable->push.rows, entry.variable->size());
  statistics.resize(more.size());
  std::transform(more.begin(), more.end(), statistics.begin(),
                 statistics.begin(), std::plus<float>());
}

void Round::Accumulator::AddNorms(const PushEntry& entry) {
  if (!HasThcNorms(entry.body, entry.size)) return;
  norms.resize(ThcBlocks(entry.variable->size()).count);
  for (size_t block = 0; block < norms.size(); ++block) {
    norms[block] = std::max(
        norms[block], ReadNumber<float>(entry.body + block * sizeof(float)));
  }
}

void Round::Accumulator::AddIndices(const PushEntry& entry,
                                    const ParallelFor& parallel_for,
                                    TensorPool* pool) {
  const int64_t n = entry.variable->size();
  if (!HasThcNorms(entry.body, entry.size)) {
    std::fill_n(PrepareSum(n, pool), n, kNan);
    return;
  }
  const ThcBlocks blocks(n);
  // Another channel's round, of some of the same variables, has ended
  // meanwhile.
  if (scales.version != entry.scales.version) {
    DecodeLanes(*entry.variable, parallel_for, pool);
  }
  if (pushes_in_lanes++ == 0) lanes.assign(blocks.padded(), 0);
  scales = entry.scales;
  ThcQuantizer(&entry.variable->push.thc, entry.variable->id, n, scales)
      .Add(entry.body + blocks.count * sizeof(float), lanes.data(),
           parallel_for);
}

void Round::Accumulator::DecodeLanes(const VariableInfo& variable,
                                     const ParallelFor& parallel_for,
                                     TensorPool* pool) {
  if (pushes_in_lanes == 0) return;
  AddLanes(variable, parallel_for, PrepareSum(variable.size(), pool));
  pushes_in_lanes = 0;
}

void Round::Accumulator::AddLanes(const VariableInfo& variable,
                                  const ParallelFor& parallel_for,
                                  float* to) const {
  ThcQuantizer(&variable.push.thc, variable.id, variable.size(), scales)
      .DecodeAdd(lanes.data(), pushes_in_lanes, to, parallel_for);
}

// The sum so far, zeros at first, to be added to.
float* Round::Accumulator::PrepareSum(int64_t n, TensorPool* pool) {
  ReserveSum(n, pool);
  if (!sum) {
    sum = std::exchange(room, std::nullopt);
    std::fill_n(FloatsOf(&*sum), n, 0.0f);
  }
  return FloatsOf(&*sum);
}

bool Round::Has(uint32_t id) const {
  const auto place = Find(id);
  if (place == nullptr) return false;
  std::lock_guard<std::mutex> lock(place->mutex);
  return place->sum || place->pushes_in_lanes > 0 || place->rows.count() > 0;
}

Tensor Round::Sum(const VariableInfo& variable,
                  const ParallelFor& parallel_for) const {
  const int64_t n = variable.size();
  const auto place = Find(variable.id);
  if (place == nullptr) return Zeros(n, &pool_);
  std::lock_guard<std::mutex> lock(place->mutex);
  if (place->pushes_in_lanes == 0 && place->rows.count() == 0) {
    place->is_sum_taken = true;
    return place->sum ? *place->sum : Zeros(n, &pool_);
  }
  Tensor sum = place->sum ? Copy(*place->sum, &pool_) : Zeros(n, &pool_);
  if (place->pushes_in_lanes > 0) {
    place->AddLanes(variable, parallel_for, FloatsOf(&sum));
  }
  AddRows(place->rows, FloatsOf(&sum));
  return sum;
}

absl::Status Round::TakeRows(const VariableInfo& variable, Rows* rows) const {
  *rows = Rows();
  const auto place = Find(variable.id);
  bool has_all_values = false;
  if (place != nullptr) {
    std::lock_guard<std::mutex> lock(place->mutex);
    *rows = place->rows;
    has_all_values = place->sum || place->pushes_in_lanes > 0;
  }
  rows->length = RowsShapeOf(variable.shape).length;
  if (!has_all_values) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sparse_ids: a push had all values of variable ",
                   variable.name, ", whose gradient is not sparse"));
}

std::vector<float> Round::Statistics(const VariableInfo& variable) const {
  const auto place = Find(variable.id);
  if (place == nullptr) return {};
  std::lock_guard<std::mutex> lock(place->mutex);
  return place->statistics;
}

std::vector<float> Round::Norms(const VariableInfo& variable) const {
  const auto place = Find(variable.id);
  if (place == nullptr) return {};
  std::lock_guard<std::mutex> lock(place->mutex);
  return place->norms;
}

}  // namespace tf_gc::parameter_server
