#include "ops/parameter_server/round.h"

#include <algorithm>
#include <functional>
#include <limits>
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

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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

bool Round::Add(const std::vector<PushEntry>& push,
                const ParallelFor& parallel_for) {
  for (const PushEntry& entry : push) {
    if (!accumulators_[entry.variable->id].HasRoom(entry)) return false;
  }
  for (const PushEntry& entry : push) {
    accumulators_[entry.variable->id].Add(entry, parallel_for);
  }
  ++pushes_;
  return true;
}

void Round::AddNorms(const std::vector<PushEntry>& push) {
  for (const PushEntry& entry : push) {
    if (entry.codec == Codec::kThcIndices || entry.codec == Codec::kThcNorms) {
      accumulators_[entry.variable->id].AddNorms(entry);
    }
  }
}

bool Round::Accumulator::HasRoom(const PushEntry& entry) const {
  if (entry.codec != Codec::kThcIndices ||
      !HasThcNorms(entry.body, entry.size)) {
    return true;
  }
  const int64_t g = entry.variable->push.thc.table.granularity();
  return (lane_pushes + 1) * g <= kLargestThcSum &&
         (lane_pushes == 0 || scales.version == entry.scales.version);
}

void Round::Accumulator::Add(const PushEntry& entry,
                             const ParallelFor& parallel_for) {
  const int64_t n = entry.variable->size();
  Rows more;
  switch (entry.codec) {
    case Codec::kThcNorms:
      return AddNorms(entry);
    case Codec::kThcIndices:
      AddNorms(entry);
      return AddIndices(entry, parallel_for);
    case Codec::kRows:
    case Codec::kPackedRows:
      DecodeRows(entry.codec, entry.body, entry.size,
                 RowsShapeOf(entry.variable->shape), "", &more)
          .IgnoreError();  // it was checked
      return AppendRows(more, &rows);
    default:
      AddStatistics(entry);
      return DecodeAddPushBody(entry.codec, entry.variable->push.rows,
                               entry.variable->push.units, entry.body,
                               entry.size, n, PrepareSum(n), parallel_for);
  }
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
                                    const ParallelFor& parallel_for) {
  const int64_t n = entry.variable->size();
  if (!HasThcNorms(entry.body, entry.size)) {
    std::fill_n(PrepareSum(n), n, kNan);
    return;
  }
  const ThcBlocks blocks(n);
  if (lane_pushes++ == 0) lanes.assign(blocks.padded(), 0);
  scales = entry.scales;
  ThcQuantizer(&entry.variable->push.thc, entry.variable->id, n, scales)
      .Add(entry.body + blocks.count * sizeof(float), lanes.data(),
           parallel_for);
}

// The sum so far: zeros for the first push.
float* Round::Accumulator::PrepareSum(int64_t n) {
  if (std::exchange(has_sum, true)) return FloatsOf(&sum);
  float* const zeros = Overwrite(n, &sum);
  std::fill_n(zeros, n, 0.0f);
  return zeros;
}

const Round::Accumulator* Round::Find(const VariableInfo& variable) const {
  const auto found = accumulators_.find(variable.id);
  return found == accumulators_.end() ? nullptr : &found->second;
}

void Round::Sum(const VariableInfo& variable, float* sum,
                const ParallelFor& parallel_for) const {
  const int64_t n = variable.size();
  const Accumulator* const accumulator = Find(variable);
  const bool has_sum = accumulator != nullptr && accumulator->has_sum;
  const float* const values = has_sum ? FloatsOf(accumulator->sum) : nullptr;
  parallel_for(n, /*cost=*/1, [=](int64_t begin, int64_t end) {
    if (has_sum) {
      std::copy(values + begin, values + end, sum + begin);
    } else {
      std::fill(sum + begin, sum + end, 0.0f);
    }
  });
  if (accumulator == nullptr) return;
  if (accumulator->lane_pushes > 0) {
    ThcQuantizer(&variable.push.thc, variable.id, n, accumulator->scales)
        .DecodeAdd(accumulator->lanes.data(), accumulator->lane_pushes, sum,
                   parallel_for);
  }
  AddRows(accumulator->rows, sum);
}

absl::Status Round::TakeRows(const VariableInfo& variable, Rows* rows) const {
  const Accumulator* const accumulator = Find(variable);
  *rows = accumulator == nullptr ? Rows() : accumulator->rows;
  rows->length = RowsShapeOf(variable.shape).length;
  if (accumulator == nullptr ||
      (!accumulator->has_sum && accumulator->lane_pushes == 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sparse_ids: a push had all values of variable ",
                   variable.name, ", whose gradient is not sparse"));
}

const std::vector<float>* Round::Statistics(
    const VariableInfo& variable) const {
  const Accumulator* const accumulator = Find(variable);
  if (accumulator == nullptr || accumulator->statistics.empty()) return nullptr;
  return &accumulator->statistics;
}

const std::vector<float>* Round::Norms(const VariableInfo& variable) const {
  const Accumulator* const accumulator = Find(variable);
  if (accumulator == nullptr || accumulator->norms.empty()) return nullptr;
  return &accumulator->norms;
}

void Round::Clear() {
  pushes_ = 0;
  for (auto& [id, accumulator] : accumulators_) {
    accumulator.has_sum = false;
    accumulator.lane_pushes = 0;
    accumulator.rows = {};
    accumulator.norms.clear();
    accumulator.statistics.clear();
  }
}

}  // namespace tf_gc::parameter_server
