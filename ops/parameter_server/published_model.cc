#include "ops/parameter_server/published_model.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/denormals.h"
#include "ops/parameter_server/buffers.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::Tensor;

// Cycles per value.
constexpr int64_t kCost = 1;

constexpr int64_t WholeSize(int64_t n) { return n * sizeof(float); }

// Whether a variable has not changed; what travels uncompressed counts bits.
bool IsSame(Codec codec, const float* value, const float* published,
            int64_t n) {
  const kernels::KeepDenormals keep_denormals;
  return codec == Codec::kFloat32
             ? std::memcmp(value, published, WholeSize(n)) == 0
             : std::equal(value, value + n, published);
}

// difference = value - published; copy = published.
void Subtract(const float* value, const float* published, int64_t n,
              float* difference, float* copy,
              const kernels::ParallelFor& parallel_for) {
  const kernels::KeepDenormals keep_denormals;
  parallel_for(n, kCost, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      difference[i] = value[i] - published[i];
      copy[i] = published[i];
    }
  });
}

}  // namespace

void Change::Encode(const kernels::ParallelFor& parallel_for,
                    TensorPool* pool) {
  const Codec codec = variable->pull.codec;
  const int64_t n = variable->size();
  if (!published) return;
  has_changed = !IsSame(codec, FloatsOf(value), FloatsOf(*published), n);
  if (!has_changed || !is_compressed) return;
  Tensor difference = pool->Floats(n), next = pool->Floats(n);
  float* const values = FloatsOf(&difference);
  Subtract(FloatsOf(value), FloatsOf(*published), n, values, FloatsOf(&next),
           parallel_for);
  Tensor room = pool->Bytes(MaxEncodedSize(codec, n));
  const Encoded encoded =
      parameter_server::Encode(codec, scaling, values, /*residual=*/nullptr, n,
                               values, BytesOf(&room), parallel_for);
  if (!encoded.is_finite) return;
  delta = NewBytes(encoded.size);
  std::copy_n(BytesOf(&room), encoded.size, BytesOf(&*delta));
  DecodeAdd(codec, BytesOf(*delta), encoded.size, n, FloatsOf(&next),
            parallel_for);
  value = std::move(next);
}

PublishedModel::Variable* PublishedModel::Find(uint32_t id) {
  const auto found = variables_.find(id);
  return found == variables_.end() ? nullptr : &found->second;
}

std::vector<Change> PublishedModel::Changes(const Values& values) const {
  std::vector<Change> changes;
  for (const auto& [id, value] : values) {
    const auto found = variables_.find(id);
    if (found == variables_.end()) continue;
    const Variable& variable = found->second;
    // step_ is that of the version before, from which it leads on.
    const bool is_compressed = variable.info->pull.codec != Codec::kFloat32 &&
                               step_ >= variable.info->start_step;
    changes.push_back({variable.info, value, variable.value, variable.scaling,
                       is_compressed});
  }
  return changes;
}

void PublishedModel::Capture(const Values& values) {
  for (const auto& [id, value] : values) {
    Variable* const variable = Find(id);
    if (variable != nullptr && !variable->value) SetWhole(value, variable);
  }
}

void PublishedModel::Publish(const std::vector<Change>& changes, int64_t step) {
  ++version_;
  bool has_encoded = false;
  for (const Change& change : changes) {
    Variable* const variable = Find(change.variable->id);
    if (variable == nullptr || !change.has_changed) continue;
    if (change.delta) {
      AddDelta(change, variable);
      has_encoded = true;
    } else {
      SetWhole(change.value, variable);
    }
  }
  encodings_ += has_encoded;
  step_ = step;
}

void PublishedModel::PublishWhole(const Values& values) {
  ++version_;
  for (const auto& [id, value] : values) {
    Variable* const variable = Find(id);
    if (variable != nullptr) SetWhole(value, variable);
  }
}

void PublishedModel::SetWhole(const Tensor& value, Variable* variable) const {
  variable->value = value;
  variable->since = version_;
  variable->log.clear();
  variable->log_bytes = 0;
}

void PublishedModel::AddDelta(const Change& change, Variable* variable) const {
  variable->value = change.value;
  variable->log.push_back({version_, *change.delta});
  variable->log_bytes += change.delta->NumElements();
  while (variable->log_bytes > WholeSize(variable->info->size())) {
    variable->since = variable->log.front().version;
    variable->log_bytes -= variable->log.front().body.NumElements();
    variable->log.pop_front();
  }
}

void PublishedModel::SetScales(uint32_t id, const std::vector<float>& scales) {
  Variable& variable = variables_.at(id);
  variable.scales_versions.push_back(version_);
  variable.scales.insert(variable.scales.end(), scales.begin(), scales.end());
  // At least one version's stay, and so many that a push may wait for its
  // update while others make versions.
  constexpr int64_t kLeastRoom = 1 << 16;
  const int64_t room = std::max(WholeSize(variable.info->size()), kLeastRoom);
  const int64_t size = sizeof(int64_t) + scales.size() * sizeof(float);
  while (variable.scales_versions.size() > 1 &&
         static_cast<int64_t>(variable.scales_versions.size()) * size > room) {
    variable.scales_versions.pop_front();
    variable.scales.erase(variable.scales.begin(),
                          variable.scales.begin() + scales.size());
  }
}

ThcScales PublishedModel::Scales(uint32_t id, int64_t version) const {
  const Variable& variable = variables_.at(id);
  const std::deque<int64_t>& versions = variable.scales_versions;
  const auto later =
      std::upper_bound(versions.begin(), versions.end(), version);
  if (later == versions.begin()) return {};
  const int64_t blocks = variable.scales.size() / versions.size();
  const int64_t index = later - versions.begin() - 1;
  ThcScales scales = {versions[index], NewFloats(blocks)};
  std::copy_n(variable.scales.begin() + index * blocks, blocks,
              FloatsOf(&scales.values));
  return scales;
}

void PublishedModel::AddEntries(uint32_t id, int64_t version,
                                MessageWriter* writer) const {
  const Variable& variable = variables_.at(id);
  if (!variable.value) return;
  // A version that is yet to come is that of another server.
  const bool has_copy = version > 0 && version <= version_;
  const auto is_new = [&](int64_t other) {
    return !has_copy || other > version;
  };
  const std::deque<int64_t>& scales = variable.scales_versions;
  if (!scales.empty() && is_new(scales.back())) {
    writer->Add(id, Codec::kThcNorms, EncodeThcScales(Scales(id, version_)));
  }
  int64_t missing = 0;
  for (const Delta& delta : variable.log) {
    if (is_new(delta.version)) missing += delta.body.NumElements();
  }
  if (is_new(variable.since) ||
      (missing > 0 && missing >= WholeSize(variable.info->size()))) {
    writer->Add(id, Codec::kFloat32, *variable.value);
    return;
  }
  for (const Delta& delta : variable.log) {
    if (is_new(delta.version)) {
      writer->Add(id, variable.info->pull.codec, delta.body);
    }
  }
}

int64_t PublishedModel::log_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, variable] : variables_) bytes += variable.log_bytes;
  return bytes;
}

}  // namespace tf_gc::parameter_server
