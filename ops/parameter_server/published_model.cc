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

void Subtract(const float* value, const float* published, int64_t n,
              float* difference, const kernels::ParallelFor& parallel_for) {
  const kernels::KeepDenormals keep_denormals;
  parallel_for(n, kCost, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      difference[i] = value[i] - published[i];
    }
  });
}

}  // namespace

PublishedModel::Variable* PublishedModel::Find(uint32_t id) {
  const auto found = variables_.find(id);
  return found == variables_.end() ? nullptr : &found->second;
}

void PublishedModel::Capture(const Values& values) {
  for (auto& [id, value] : values) {
    Variable* const variable = Find(id);
    if (variable != nullptr && !variable->value) SetWhole(value, variable);
  }
}

void PublishedModel::Publish(const Values& values, int64_t step,
                             const kernels::ParallelFor& parallel_for) {
  ++version_;
  bool has_encoded = false;
  for (auto& [id, value] : values) {
    Variable* const variable = Find(id);
    if (variable == nullptr) continue;
    has_encoded |= PublishOne(value, parallel_for, variable);
  }
  encodings_ += has_encoded;
  step_ = step;
}

void PublishedModel::PublishWhole(const Values& values) {
  ++version_;
  for (auto& [id, value] : values) {
    Variable* const variable = Find(id);
    if (variable != nullptr) SetWhole(value, variable);
  }
}

// Returns whether it has compressed a change.
bool PublishedModel::PublishOne(const Tensor& value,
                                const kernels::ParallelFor& parallel_for,
                                Variable* variable) {
  const VariableInfo& info = *variable->info;
  const bool has_value = variable->value.has_value();
  if (has_value && IsSame(info.pull.codec, FloatsOf(value),
                          FloatsOf(*variable->value), info.size())) {
    return false;
  }
  Tensor body;
  if (has_value && EncodeDelta(value, *variable, parallel_for, &body)) {
    AddDelta(body, parallel_for, variable);
    return true;
  }
  SetWhole(value, variable);
  return false;
}

// False if the variable is to be published as a whole.
bool PublishedModel::EncodeDelta(const Tensor& value, const Variable& variable,
                                 const kernels::ParallelFor& parallel_for,
                                 Tensor* body) const {
  const Codec codec = variable.info->pull.codec;
  // step_ is still that of the version before, from which it leads on.
  if (codec == Codec::kFloat32 || step_ < variable.info->start_step) {
    return false;
  }
  const int64_t n = variable.info->size();
  Tensor difference = NewFloats(n);
  float* const values = FloatsOf(&difference);
  Subtract(FloatsOf(value), FloatsOf(*variable.value), n, values, parallel_for);
  Tensor room = NewBytes(MaxEncodedSize(codec, n));
  const Encoded encoded =
      Encode(codec, variable.scaling, values, /*residual=*/nullptr, n, values,
             BytesOf(&room), parallel_for);
  *body = NewBytes(encoded.size);
  std::copy_n(BytesOf(&room), encoded.size, BytesOf(body));
  return encoded.is_finite;
}

void PublishedModel::SetWhole(const Tensor& value, Variable* variable) {
  const int64_t n = variable->info->size();
  if (!variable->value) variable->value.emplace();
  std::copy_n(FloatsOf(value), n, Overwrite(n, &*variable->value));
  variable->since = version_;
  variable->log.clear();
  variable->log_bytes = 0;
}

void PublishedModel::AddDelta(const Tensor& body,
                              const kernels::ParallelFor& parallel_for,
                              Variable* variable) {
  const int64_t n = variable->info->size();
  const int64_t size = body.NumElements();
  DecodeAdd(variable->info->pull.codec, body.flat<uint8_t>().data(), size, n,
            Mutable(&*variable->value), parallel_for);
  variable->log.push_back({version_, body});
  variable->log_bytes += size;
  while (variable->log_bytes > WholeSize(n)) {
    variable->since = variable->log.front().version;
    variable->log_bytes -= variable->log.front().body.NumElements();
    variable->log.pop_front();
  }
}

void PublishedModel::SetScales(uint32_t id, const Tensor& scales) {
  Variable& variable = variables_.at(id);
  variable.scales.push_back({version_, scales});
  // At least one stays.
  const int64_t room = WholeSize(variable.info->size());
  while (variable.scales.size() > 1 &&
         static_cast<int64_t>(variable.scales.size() * scales.TotalBytes()) >
             room) {
    variable.scales.pop_front();
  }
}

ThcScales PublishedModel::Scales(uint32_t id, int64_t version) const {
  const std::deque<ThcScales>& scales = variables_.at(id).scales;
  for (auto it = scales.rbegin(); it != scales.rend(); ++it) {
    if (it->version <= version) return *it;
  }
  return {};
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
  if (!variable.scales.empty() && is_new(variable.scales.back().version)) {
    writer->Add(id, Codec::kThcNorms, EncodeThcScales(variable.scales.back()));
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
