// Decodes bytes as messages of the parameter server: as they are, as a push to
// a server, and as a pull of a worker. What the sender could not have known to
// write is mended first: the size, and the version and tag that the receiver
// expects. Whatever the bytes are, the result is an error that says so, or the
// same for everybody, which a worker can read and a server can take the mean
// of.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/kernels/parallel.h"
#include "ops/parameter_server/buffers.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/local_model.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/variable.h"
#include "ops/wire/header.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::SingleThread;
using ::tensorflow::Tensor;
using ::tensorflow::core::RefCountPtr;
using Buffer = std::vector<uint8_t>;

void Check(bool condition) {
  if (!condition) std::abort();
}

void CheckOk(const absl::Status& status) { Check(status.ok()); }

bool IsRefusal(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

CodecSpec Spec(const char* text) {
  CodecSpec spec;
  CheckOk(ParseCodecSpec(text, &spec));
  return spec;
}

const std::vector<VariableInfo>& Variables() {
  static const auto* const variables = new std::vector<VariableInfo>{
      {1, "a", {5}, Spec("float32"), Spec("float32"), 0},
      {2, "b", {33}, Spec("three_lc"), Spec("three_lc"), 0},
      {3, "c", {4, 3}, Spec("int8"), Spec("int8"), 0},
      {300,
       "d",
       {70},
       Spec("thc bits=2 truncation=1.64 headroom=1 seed=1 table=0,1,2,4"),
       Spec("float16"),
       0}};
  return *variables;
}

std::vector<uint32_t> Ids() {
  std::vector<uint32_t> ids;
  for (const VariableInfo& variable : Variables()) ids.push_back(variable.id);
  return ids;
}

std::vector<PulledVariable> Pulled() {
  std::vector<PulledVariable> pulled;
  for (const VariableInfo& variable : Variables()) {
    pulled.push_back({variable.id, variable.shape});
  }
  return pulled;
}

auto To(Buffer* message) {
  return [message](int64_t size, uint8_t** bytes) {
    message->resize(size);
    *bytes = message->data();
    return absl::OkStatus();
  };
}

// A server in version 2, with scales of THC, and a worker that follows it.
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
    bool accepted, ready;
    CheckOk(server->AccumulatePush(push.data(), push.size(), true, SingleThread,
                                   &accepted, &ready));
    int64_t version, step;
    CheckOk(server->EndUpdate(0, {}, read, SingleThread, &version));
    Follow();
  }

  Buffer Push() {
    std::vector<DenseGradient> gradients;
    for (const VariableInfo& variable : Variables()) {
      Tensor ones = NewFloats(variable.size());
      ones.flat<float>().setConstant(1);
      gradients.push_back({variable.id, &variable.push, 1, 0, ones});
    }
    Buffer message;
    CheckOk(model->EncodePush(0, gradients, {}, SingleThread, To(&message)));
    return message;
  }

  Buffer Pull(const PullRequest& request) {
    Buffer message;
    CheckOk(server->Pull(request, Ids(), To(&message)));
    return message;
  }

  void Follow() {
    const Buffer message = Pull(model->Request(Ids()));
    int64_t version, step;
    CheckOk(model->Apply(message.data(), message.size(), Pulled(), SingleThread,
                         &version, &step));
  }

  RefCountPtr<Server> server{new Server(ServerOptions())};
  RefCountPtr<LocalModel> model{new LocalModel};
};

template <typename T>
void Write(const T& value, int offset, Buffer* bytes) {
  std::memcpy(bytes->data() + offset, &value, sizeof(value));
}

// The header that the receiver expects, but for what the bytes say of entries.
void Mend(Kind kind, uint32_t tag, int64_t version, Buffer* bytes) {
  constexpr uint8_t kStart[] = {'T', 'F', 'G', 'C', kWireVersion, 0, 0, 0};
  std::memcpy(bytes->data(), kStart, sizeof(kStart));
  Write(kind, 5, bytes);
  Write(tag, 12, bytes);
  Write(version, 16, bytes);
  Write(int64_t{1}, 24, bytes);  // step
  Write(static_cast<uint64_t>(bytes->size()), 32, bytes);
}

void FuzzFrame(Kind kind, const Buffer& bytes) {
  Message message;
  const absl::Status read =
      ReadMessage(kind, bytes.data(), bytes.size(), &message);
  Check(read.ok() || IsRefusal(read));
  if (!read.ok()) return;
  for (const Message::Entry& entry : message.entries) {
    Check(entry.body >= bytes.data() &&
          entry.body + entry.size <= bytes.data() + bytes.size());
  }
}

Buffer BytesOf(const Tensor& tensor) {
  const absl::string_view data = tensor.tensor_data();
  return Buffer(data.begin(), data.end());
}

// The means that a push gives, one after the other; none if it is refused.
Buffer FuzzPush(const Buffer& push) {
  const Pair pair;
  bool accepted, ready;
  const absl::Status status = pair.server->AccumulatePush(
      push.data(), push.size(), true, SingleThread, &accepted, &ready);
  Check(status.ok() || IsRefusal(status));
  if (!status.ok()) return {};
  Gradients gradients;
  CheckOk(pair.server->TakeGradients(push.data(), push.size(), Ids(), {},
                                     SingleThread, &gradients));
  Buffer means;
  for (const Tensor& mean : gradients.dense) {
    const Buffer bytes = BytesOf(mean);
    means.insert(means.end(), bytes.begin(), bytes.end());
  }
  return means;
}

// The copies that a pull makes.
Buffer FuzzPull(const Buffer& pull) {
  const Pair pair;
  int64_t version, step;
  const absl::Status status = pair.model->Apply(
      pull.data(), pull.size(), Pulled(), SingleThread, &version, &step);
  Check(status.ok() || IsRefusal(status));
  Buffer copies;
  for (const VariableInfo& variable : Variables()) {
    Tensor value;
    CheckOk(pair.model->Read(variable.id, variable.shape, &value));
    const Buffer bytes = BytesOf(value);
    copies.insert(copies.end(), bytes.begin(), bytes.end());
  }
  return copies;
}

// What a worker or a server writes: a push, a whole model, what is new in it.
Buffer MakeMessage(unsigned which) {
  Pair pair;
  if (which % 3 == 0) return pair.Push();
  PullRequest request;
  if (which % 3 == 1) return pair.Pull(request);
  request.version = 1;
  return pair.Pull(request);
}

}  // namespace
}  // namespace tf_gc::parameter_server

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Begins with real messages now and then: chance alone hardly finds one.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned seed) {
  if (seed % 16 == 0) {
    const auto message = tf_gc::parameter_server::MakeMessage(seed / 16);
    if (message.size() <= max_size) {
      size = message.size();
      std::memcpy(data, message.data(), size);
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ps = tf_gc::parameter_server;
  ps::Buffer bytes(data, data + size);
  ps::FuzzFrame(ps::Kind::kPush, bytes);
  ps::FuzzFrame(ps::Kind::kPull, bytes);
  if (size < ps::kMessageHeaderSize) return 0;
  constexpr int64_t kVersion = 2;
  ps::Mend(ps::Kind::kPush, /*tag=*/0, kVersion, &bytes);
  ps::Check(ps::FuzzPush(bytes) == ps::FuzzPush(bytes));
  ps::PullRequest request;
  request.version = kVersion;
  ps::Mend(ps::Kind::kPull, request.Fingerprint(), kVersion + 1, &bytes);
  ps::Check(ps::FuzzPull(bytes) == ps::FuzzPull(bytes));
  return 0;
}
