// Reads bytes as what a pull asks a server for: a byte with the number of ids,
// an id in four bytes each, and the numbers of a request in eight. Whatever
// they are, the result is an error that names what is wrong, or a message with
// what a worker lacks of these variables, in bodies that it can decode.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "ops/parameter_server/codec.h"
#include "ops/parameter_server/message.h"
#include "ops/parameter_server/server.h"
#include "ops/parameter_server/thc.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/server_and_worker.h"

namespace tf_gc::parameter_server {
namespace {

template <typename T>
std::vector<T> ReadAll(const uint8_t* bytes, int64_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes, count * sizeof(T));
  return values;
}

const VariableInfo* FindVariable(uint32_t id) {
  for (const VariableInfo& variable : Variables()) {
    if (variable.id == id) return &variable;
  }
  return nullptr;
}

// Of variables that the server has: those of others do not matter.
bool HasOtherVersions(const PullRequest& request) {
  return std::any_of(
      request.others.begin(), request.others.end(),
      [](const auto& other) { return FindVariable(other.first) != nullptr; });
}

void CheckEntry(const Message::Entry& entry, const std::vector<uint32_t>& ids) {
  Check(std::find(ids.begin(), ids.end(), entry.id) != ids.end());
  const VariableInfo* const variable = FindVariable(entry.id);
  const int64_t n = variable->size();
  if (entry.codec == Codec::kThcNorms) {
    CheckOk(CheckThcScales(entry.body, entry.size, n, "pull"));
    return;
  }
  Check(entry.codec == Codec::kFloat32 || entry.codec == variable->pull.codec);
  CheckOk(
      CheckBody(entry.codec, entry.body, entry.size, n, "pull", SingleThread));
}

void FuzzPull(const PullRequest& request, const std::vector<uint32_t>& ids) {
  static const Pair* const pair = new Pair;
  tensorflow::Tensor pull;
  const absl::Status pulled = pair->server->Pull(request, ids, &pull);
  if (!pulled.ok()) {
    Check(absl::IsInvalidArgument(pulled));
    Check(absl::StrContains(pulled.message(), "ids: no variable"));
    return;
  }
  const Buffer bytes = CopyOf(pull);
  Message message;
  CheckOk(ReadMessage(Kind::kPull, bytes.data(), bytes.size(), &message));
  Check(message.version == 2 && message.tag == request.Fingerprint());
  for (const Message::Entry& entry : message.entries) CheckEntry(entry, ids);
  // However patient it says to be.
  ParkedCalls& parked_calls = pair->server->parked_calls();
  const int64_t ticket = parked_calls.Ticket();
  const bool parked = pair->server->Park(request, ticket, [] {});
  Check(!parked || (request.version == 2 && !HasOtherVersions(request)));
  parked_calls.Wake(ticket);
}

}  // namespace
}  // namespace tf_gc::parameter_server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ps = tf_gc::parameter_server;
  if (size < 1) return 0;
  const uint8_t* const end = data + size;
  const int64_t count = std::min<int64_t>(*data++ % 16, (size - 1) / 4);
  const auto ids = ps::ReadAll<uint32_t>(data, count);
  data += 4 * count;
  const auto numbers = ps::ReadAll<int64_t>(data, (end - data) / 8);
  ps::PullRequest request;
  const absl::Status read =
      ps::ReadPullRequest(numbers.data(), numbers.size(), &request);
  if (!read.ok()) {
    tf_gc::Check(absl::IsInvalidArgument(read) &&
                 absl::StartsWith(read.message(), "request"));
    return 0;
  }
  tf_gc::Check(request.ToVector() == numbers);
  ps::FuzzPull(request, ids);
  return 0;
}
