// A parameter server and a worker, of variables with all codecs.

#ifndef TF_GC_TESTS_FUZZ_SERVER_AND_WORKER_H_
#define TF_GC_TESTS_FUZZ_SERVER_AND_WORKER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/kernels/parallel.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/local_model.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/variable.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"
#include "tests/fuzz/check.h"

namespace tf_gc::parameter_server {

using Buffer = std::vector<uint8_t>;
using kernels::SingleThread;

inline void CheckOk(const absl::Status& status) { Check(status.ok()); }

inline CodecSpec Spec(const char* text) {
  CodecSpec spec;
  CheckOk(ParseCodecSpec(text, &spec));
  return spec;
}

inline const std::vector<VariableInfo>& Variables() {
  static const auto* const variables = new std::vector<VariableInfo>{
      {1, "a", {5}, Spec("float32"), Spec("float32"), 0},
      {2, "b", {33}, Spec("three_lc"), Spec("three_lc"), 0},
      {3, "c", {4, 3}, Spec("int8"), Spec("int8"), 0},
      {300,
       "d",
       {70},
       Spec("thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2,4"),
       Spec("float16"),
       0},
      {301,
       "f",
       {3, 4},
       Spec("three_lc rows=3 decay=0.5"),
       Spec("three_lc"),
       0},
      {70000, "e", {6}, Spec("float16"), Spec("bfloat16"), 0}};
  return *variables;
}

inline std::vector<uint32_t> Ids() {
  std::vector<uint32_t> ids;
  for (const VariableInfo& variable : Variables()) ids.push_back(variable.id);
  return ids;
}

inline std::vector<PulledVariable> Pulled() {
  std::vector<PulledVariable> pulled;
  for (const VariableInfo& variable : Variables()) {
    pulled.push_back({variable.id, variable.shape});
  }
  return pulled;
}

inline auto To(Buffer* message) {
  return [message](int64_t size, uint8_t** bytes) {
    message->resize(size);
    *bytes = message->data();
    return absl::OkStatus();
  };
}

inline Buffer CopyOf(const tensorflow::Tensor& tensor) {
  return Buffer(BytesOf(tensor), BytesOf(tensor) + tensor.TotalBytes());
}

inline tensorflow::Tensor Ones(const VariableInfo& variable) {
  tensorflow::Tensor ones = NewFloats(variable.size());
  ones.flat<float>().setConstant(1);
  return ones;
}

// A server in version 2, in which everything has changed and THC has scales,
// and a worker that follows it.
struct Pair {
  Pair() {
    Values values;
    for (const VariableInfo& variable : Variables()) {
      CheckOk(server->AddVariable(variable, {}));
      values[variable.id] = Zeros(variable.size());
    }
    const auto read = [&](const std::vector<Server::Handle>&, Values* found) {
      *found = values;
      return absl::OkStatus();
    };
    CheckOk(server->Refresh(Ids(), read, SingleThread));
    Follow();
    const Buffer push = Push();
    Answer answer;
    CheckOk(server->AccumulatePush(push.data(), push.size(), true, SingleThread,
                                   &answer));
    std::vector<std::pair<uint32_t, float>> multipliers;
    for (const VariableInfo& variable : Variables()) {
      values[variable.id] = Ones(variable);
      multipliers.emplace_back(variable.id, 1.0f);
    }
    int64_t version;
    CheckOk(server->EndUpdate(0, answer.round, multipliers, read, SingleThread,
                              &version));
    Follow();
  }

  Buffer Push() {
    std::vector<DenseGradient> gradients;
    for (const VariableInfo& variable : Variables()) {
      gradients.push_back({variable.id, &variable.push, 1, 0, Ones(variable)});
    }
    Buffer message;
    CheckOk(model->EncodePush(0, gradients, {}, SingleThread, To(&message)));
    return message;
  }

  Buffer Pull(const PullRequest& request) {
    tensorflow::Tensor message;
    CheckOk(server->Pull(request, Ids(), &message));
    return CopyOf(message);
  }

  void Follow() {
    const Buffer message = Pull(model->Request(Ids()));
    int64_t version, step;
    CheckOk(model->Apply(message.data(), message.size(), Pulled(), SingleThread,
                         &version, &step));
  }

  tensorflow::core::RefCountPtr<Server> server{new Server(ServerOptions())};
  tensorflow::core::RefCountPtr<LocalModel> model{new LocalModel};
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_TESTS_FUZZ_SERVER_AND_WORKER_H_
