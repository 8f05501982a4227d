// Decodes bytes as messages of the parameter server: as they are, as a push to
// a server, and as a pull of a worker. What the sender could not have known to
// write is mended first: the size, and the version and tag that the receiver
// expects. Whatever the bytes are, the result is an error that says so, or the
// same for everybody, which a worker can read and a server can take the mean
// of.

#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/parameter_server/message.h"
#include "ops/wire/header.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/server_and_worker.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::Tensor;

bool IsRefusal(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
}

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
  Write(uint32_t{0}, 44, bytes);  // unsettled
  Write(uint64_t{1}, 56, bytes);  // sequence number
  SealMessage(bytes->data(), bytes->size());
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

// The means that a push gives, and their second moments, one after the other;
// none if it is refused.
Buffer FuzzPush(const Buffer& push) {
  const Pair pair;
  Answer answer;
  const absl::Status status = pair.server->AccumulatePush(
      push.data(), push.size(), true, SingleThread, &answer);
  Check(status.ok() || IsRefusal(status));
  if (!status.ok()) return {};
  Gradients gradients;
  CheckOk(pair.server->TakeGradients(push.data(), push.size(), Ids(), {},
                                     SingleThread, &gradients));
  Buffer means;
  for (const auto* tensors : {&gradients.dense, &gradients.second_moments}) {
    for (const Tensor& tensor : *tensors) {
      const Buffer bytes = CopyOf(tensor);
      means.insert(means.end(), bytes.begin(), bytes.end());
    }
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
    const Buffer bytes = CopyOf(value);
    copies.insert(copies.end(), bytes.begin(), bytes.end());
  }
  return copies;
}

}  // namespace
}  // namespace tf_gc::parameter_server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ps = tf_gc::parameter_server;
  ps::Buffer bytes(data, data + size);
  ps::FuzzFrame(ps::Kind::kPush, bytes);
  ps::FuzzFrame(ps::Kind::kPull, bytes);
  if (size < ps::kMessageHeaderSize) return 0;
  constexpr int64_t kVersion = 2;
  ps::Mend(ps::Kind::kPush, /*tag=*/0, kVersion, &bytes);
  tf_gc::Check(ps::FuzzPush(bytes) == ps::FuzzPush(bytes));
  ps::PullRequest request;
  request.version = kVersion;
  ps::Mend(ps::Kind::kPull, request.Fingerprint(), kVersion + 1, &bytes);
  tf_gc::Check(ps::FuzzPull(bytes) == ps::FuzzPull(bytes));
  return 0;
}
