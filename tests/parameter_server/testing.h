// What the tests of the parameter server share: values, variables, and whole
// workers.

#ifndef TF_GC_TESTS_PARAMETER_SERVER_TESTING_H_
#define TF_GC_TESTS_PARAMETER_SERVER_TESTING_H_

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/clock.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/local_model.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/push_body.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tests/kernels/testing.h"

#ifdef __SANITIZE_THREAD__
// TensorFlow is built without ThreadSanitizer, which so does not see that
// tensors count who holds their buffers.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_suppressions() {
  return "race:tensorflow::(anonymous namespace)::Buffer\n"
         "race:tensorflow::Tensor::~Tensor";
}
#endif

namespace tf_gc::parameter_server {

using Buffer = std::vector<uint8_t>;
using Floats = std::vector<float>;

inline constexpr char kThc[] =
    "thc bits=2 truncation=2.15 headroom=1.5 seed=7 "
    "table=0,1,2,3";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TF_GC_NEEDS_ADDRESS_SPACE  // of the sanitizers' own
#endif

// Without much more address space than there is in use.
class WithoutMemory {
 public:
  WithoutMemory() {
    int64_t pages;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + (1 << 20);
    setrlimit(RLIMIT_AS, &limit);
  }
  ~WithoutMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

// A clock that stands till it is told to go on.
struct FakeClock {
  operator Clock() const {
    return [this] { return now.load(); };
  }

  std::atomic<uint64_t> now{1000000};
};

inline void ExpectOk(const absl::Status& status) {
  EXPECT_TRUE(status.ok()) << status;
}

inline void ExpectDataLoss(const absl::Status& status,
                           const std::string& words = "") {
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(words));
}

inline void ExpectInvalid(const absl::Status& status,
                          const std::string& words) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(words));
}

inline CodecSpec Spec(const std::string& text) {
  CodecSpec spec;
  ExpectOk(ParseCodecSpec(text, &spec));
  return spec;
}

inline VariableInfo MakeVariable(uint32_t id, const std::vector<int64_t>& dims,
                                 const std::string& push = "float32",
                                 const std::string& pull = "float32",
                                 int64_t start_step = 0) {
  return {id,
          "variable_" + std::to_string(id),
          tensorflow::TensorShape(dims),
          Spec(push),
          Spec(pull),
          start_step};
}

inline tensorflow::Tensor ToTensor(const Floats& values,
                                   const std::vector<int64_t>& dims) {
  tensorflow::Tensor tensor(tensorflow::DT_FLOAT,
                            tensorflow::TensorShape(dims));
  std::copy(values.begin(), values.end(), FloatsOf(&tensor));
  return tensor;
}

inline tensorflow::Tensor ToTensor(const Floats& values) {
  return ToTensor(values, {static_cast<int64_t>(values.size())});
}

inline tensorflow::Tensor Indices(const std::vector<int64_t>& indices) {
  tensorflow::Tensor tensor(
      tensorflow::DT_INT64,
      tensorflow::TensorShape({static_cast<int64_t>(indices.size())}));
  std::copy(indices.begin(), indices.end(), tensor.flat<int64_t>().data());
  return tensor;
}

inline Floats ToFloats(const tensorflow::Tensor& tensor) {
  return Floats(FloatsOf(tensor), FloatsOf(tensor) + tensor.NumElements());
}

// Of what is empty where there is nothing.
inline Floats OrZeros(const tensorflow::Tensor& tensor, int64_t n) {
  return tensor.NumElements() == 0 ? Floats(n) : ToFloats(tensor);
}

inline Floats Gaussian(int64_t n, uint32_t seed, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

// The means of squares of the rows and columns of a matrix, computed slowly.
inline Floats MeanSquares(const Floats& values, int64_t rows) {
  const int64_t columns = values.size() / rows;
  std::vector<double> means(rows + columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const double value = values[i * columns + j];
      means[i] += value * value / columns;
      means[rows + j] += value * value / rows;
    }
  }
  return Floats(means.begin(), means.end());
}

inline Floats Sum(Floats a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline void ExpectNear(const Floats& a, const Floats& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], tolerance) << "value " << i;
  }
}

// Where a message goes.
inline std::function<absl::Status(int64_t, uint8_t**)> To(Buffer* message) {
  return [message](int64_t size, uint8_t** bytes) {
    message->resize(size);
    *bytes = message->data();
    return absl::OkStatus();
  };
}

// Resources count who holds them.
template <typename T>
using Resource = tensorflow::core::RefCountPtr<T>;

inline Buffer Pull(const PullRequest& request, const std::vector<uint32_t>& ids,
                   Server* server) {
  tensorflow::Tensor message;
  ExpectOk(server->Pull(request, ids, &message));
  return Buffer(BytesOf(message), BytesOf(message) + message.NumElements());
}

inline Answer Accumulate(const Buffer& push, Server* server,
                         bool master = true) {
  Answer answer;
  ExpectOk(server->AccumulatePush(push.data(), push.size(), master,
                                  kernels::SingleThread, &answer));
  return answer;
}

// The same push, as if its worker had made it anew.
inline Buffer Again(Buffer push) {
  uint64_t sequence;
  uint8_t* const at = push.data() + kMessageHeaderSize - sizeof(sequence);
  std::memcpy(&sequence, at, sizeof(sequence));
  ++sequence;
  std::memcpy(at, &sequence, sizeof(sequence));
  SealMessage(push.data(), push.size());
  return push;
}

// Reads variables that hold these values.
inline Server::Read ReadFrom(const Values* values) {
  return [values](const std::vector<Server::Handle>& handles, Values* read) {
    for (const Server::Handle& handle : handles) {
      const auto found = values->find(handle.variable->id);
      if (found != values->end()) read->insert(*found);
    }
    return absl::OkStatus();
  };
}

inline std::vector<uint32_t> IdsOf(const Values& values) {
  std::vector<uint32_t> ids;
  for (const auto& [id, value] : values) ids.push_back(id);
  return ids;
}

// Refreshes all variables, as a pull does, or ends an update of them, that of
// the channel's open round; returns the server's version.
inline void Refresh(const Values& values, Server* server) {
  ExpectOk(
      server->Refresh(IdsOf(values), ReadFrom(&values), kernels::SingleThread));
}
inline int64_t EndUpdate(const Values& values, Server* server,
                         uint32_t channel = 0) {
  std::vector<std::pair<uint32_t, float>> multipliers;
  for (const uint32_t id : IdsOf(values)) multipliers.emplace_back(id, 1.0f);
  int64_t round = 0, version = 0;
  while (!server->BeginUpdate(channel, round)) ++round;
  ExpectOk(server->EndUpdate(channel, round, multipliers, ReadFrom(&values),
                             kernels::SingleThread, &version));
  return version;
}

// A worker that pulls and pushes all of some variables.
class Worker {
 public:
  explicit Worker(const std::vector<VariableInfo>& variables)
      : variables_(variables) {
    for (const VariableInfo& variable : variables_) {
      ids_.push_back(variable.id);
      pulled_.push_back({variable.id, variable.shape});
    }
  }

  LocalModel& model() { return *model_; }
  const std::vector<uint32_t>& ids() const { return ids_; }

  PullRequest Request() const { return model_->Request(ids_); }

  Buffer PullFrom(Server* server) const { return PullFrom(server, Request()); }
  Buffer PullFrom(Server* server, const PullRequest& request) const {
    return Pull(request, ids_, server);
  }

  absl::Status Apply(const Buffer& message) {
    return model_->Apply(message.data(), message.size(), pulled_,
                         kernels::SingleThread, &version_, &step_);
  }

  // The version of the model afterwards.
  int64_t Follow(Server* server) {
    ExpectOk(Apply(PullFrom(server)));
    return version_;
  }

  // The updates that the model has seen.
  int64_t step() const { return step_; }

  Floats Copy(size_t index) const {
    tensorflow::Tensor value;
    ExpectOk(model_->Read(ids_[index], variables_[index].shape, &value));
    return ToFloats(value);
  }

  Floats Residual(size_t index) const {
    tensorflow::Tensor value;
    ExpectOk(
        model_->ReadResidual(ids_[index], variables_[index].shape, &value));
    return OrZeros(value, variables_[index].size());
  }

  // The statistics of the gradients of a variable of so many rows, and their
  // weight.
  Floats SecondMoment(size_t index, int64_t rows) const {
    const VariableInfo& variable = variables_[index];
    tensorflow::Tensor value;
    ExpectOk(model_->ReadSecondMoment(
        variable.id, {StatisticsCount(rows, variable.size()) + 1}, &value));
    return ToFloats(value);
  }

  // A push of a gradient for each variable.
  Buffer Push(const std::vector<Floats>& gradients, uint32_t channel = 0) {
    std::vector<DenseGradient> dense;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const VariableInfo& variable = variables_[i];
      dense.push_back({variable.id, &variable.push, /*multiplier=*/1,
                       variable.start_step, ToTensor(gradients[i])});
    }
    return Push(dense, {}, channel);
  }
  Buffer Push(const std::vector<DenseGradient>& dense,
              const std::vector<SparseGradient>& sparse, uint32_t channel = 0) {
    Buffer push;
    ExpectOk(model_->EncodePush(channel, dense, sparse, kernels::SingleThread,
                                To(&push)));
    return push;
  }

  void Settle(const Buffer& push, bool accepted,
              const std::vector<uint64_t>& counted = {}) {
    ExpectOk(model_->SettlePush(push.data(), push.size(), accepted,
                                {counted.begin(), counted.end()},
                                kernels::SingleThread));
  }

 private:
  std::vector<VariableInfo> variables_;
  std::vector<uint32_t> ids_;
  std::vector<PulledVariable> pulled_;
  Resource<LocalModel> model_{new LocalModel};
  int64_t version_ = 0, step_ = 0;
};

// Gives what was a message a checksum that fits, as if its sender had made it
// so.
inline void SealIfMessage(Buffer* bytes) {
  if (bytes->size() >= kMessageHeaderSize) {
    SealMessage(bytes->data(), bytes->size());
  }
}

// Calls check(bytes) for all beginnings of a message, and for the message with
// each byte changed.
inline void ForEachDamage(const Buffer& message,
                          const std::function<void(const Buffer&)>& check) {
  for (size_t size = 0; size < message.size(); ++size) {
    check(Buffer(message.begin(), message.begin() + size));
  }
  for (size_t i = 0; i < message.size(); ++i) {
    for (const int change : {1, 0x80, 0xff}) {
      Buffer damaged = message;
      damaged[i] ^= change;
      check(damaged);
    }
  }
}

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_TESTS_PARAMETER_SERVER_TESTING_H_
