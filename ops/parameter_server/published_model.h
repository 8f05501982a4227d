// The model as the workers of a parameter server have it (3LC, section 3 and
// figure 2b: shared compression of model pulls).
//
// The server compresses each variable's change once per version, and all
// workers get the same bytes, which it applies to its own copy too: what
// compression leaves over is part of the next change. A worker that follows has
// the published values of its version, bit for bit.

#ifndef TF_GC_OPS_PARAMETER_SERVER_PUBLISHED_MODEL_H_
#define TF_GC_OPS_PARAMETER_SERVER_PUBLISHED_MODEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/kernels/parallel.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/tensor_pool.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

// What the variables themselves hold, float32 of their sizes, by id.
using Values = std::map<uint32_t, tensorflow::Tensor>;

// What is to be published of one variable. Made and published under the
// server's lock; encoded, which takes long, without it. Published values are
// never written to: the next ones are made beside them.
struct Change {
  // Compresses value - published. The value is then what comes of it; it stays
  // if it is to be published as a whole.
  void Encode(const kernels::ParallelFor& parallel_for, TensorPool* pool);

  std::shared_ptr<const VariableInfo> variable;
  tensorflow::Tensor value;
  std::optional<tensorflow::Tensor> published;  // so far
  kernels::ThreeLcScaling scaling;
  bool is_compressed = true;                     // if that is possible
  bool has_changed = true;                       // once encoded
  std::optional<tensorflow::Tensor> delta = {};  // none: the whole value
};

// Not thread-safe: the server guards it.
class PublishedModel {
 public:
  void Add(std::shared_ptr<const VariableInfo> info) {
    variables_[info->id].info = std::move(info);
  }
  void Remove(uint32_t id) { variables_.erase(id); }

  // The first one is 1.
  int64_t version() const { return version_; }
  // The updates that this version has seen, before the program began too.
  int64_t step() const { return step_; }
  void SetStep(int64_t step) { step_ = step; }
  bool HasValue(uint32_t id) const {
    return variables_.at(id).value.has_value();
  }

  // What has to be published of these values of variables, of which those that
  // were removed do not count. Nobody may publish anything else meanwhile.
  std::vector<Change> Changes(const Values& values) const;

  // Publishes the values of those that have none yet, in this version.
  void Capture(const Values& values);

  // The next version, which has seen `step` updates: changes, encoded.
  void Publish(const std::vector<Change>& changes, int64_t step);

  // The next version: these values as they are.
  void PublishWhole(const Values& values);

  // 3LC's scale of what is published from now on.
  void SetScaling(uint32_t id, kernels::ThreeLcScaling scaling) {
    variables_.at(id).scaling = scaling;
  }

  // THC's scales of this version and those that follow.
  void SetScales(uint32_t id, const std::vector<float>& scales);

  // THC's scales that workers with this version have; of version 0 if there are
  // none, or they are forgotten.
  ThcScales Scales(uint32_t id, int64_t version) const;

  // Adds to a pull what a worker lacks that has this version of a variable, 0
  // for none: nothing, what has changed since, or the whole variable.
  void AddEntries(uint32_t id, int64_t version, MessageWriter* writer) const;

  // Versions for which something was compressed; bytes that are kept for
  // workers that come later.
  int64_t encodings() const { return encodings_; }
  int64_t log_bytes() const;

 private:
  struct Delta {
    int64_t version;  // that it leads to
    tensorflow::Tensor body;
  };
  struct Variable {
    std::shared_ptr<const VariableInfo> info;
    kernels::ThreeLcScaling scaling = 1;
    std::optional<tensorflow::Tensor> value;  // published
    int64_t since = 0;      // the version from which the log leads on
    std::deque<Delta> log;  // of at most 4 bytes per value
    int64_t log_bytes = 0;
    // THC's scales one after the other, and the versions from which they hold:
    // at most 4 bytes per value too, or 64 KiB.
    std::deque<float> scales;
    std::deque<int64_t> scales_versions;
  };

  Variable* Find(uint32_t id);  // null if it was removed
  void SetWhole(const tensorflow::Tensor& value, Variable* variable) const;
  void AddDelta(const Change& change, Variable* variable) const;

  int64_t version_ = 1;
  int64_t step_ = 0;
  int64_t encodings_ = 0;
  std::map<uint32_t, Variable> variables_;
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_PUBLISHED_MODEL_H_
