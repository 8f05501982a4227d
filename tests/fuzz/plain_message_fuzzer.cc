// Receives bytes as the messages of all-gathers and of a broadcast: openings,
// and what is to follow them. Whatever the bytes are, the result is an error
// that says so, or just the bytes behind the headers.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/mailbox.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/collectives/transport.h"
#include "tests/fuzz/check.h"

namespace tf_gc {
namespace {

constexpr int kRanks = 3;
constexpr uint32_t kRound = 5;

// Rank 0's peers send it one sequence of bytes, as far as these go; what it
// sends is taken at once.
class Sequence : public Transport {
 public:
  Sequence(const uint8_t* data, size_t size) : rest_(data, data + size) {}

  int rank() const override { return 0; }
  int size() const override { return kRanks; }
  std::string PeerName(int) const override { return "a peer"; }
  void Send(int, const std::string&, const Bytes&, Done done) override {
    done(absl::OkStatus());
  }
  void Receive(int, const std::string&, const Bytes& bytes,
               Done done) override {
    if (static_cast<int64_t>(rest_.size()) < bytes.size()) {
      return done(absl::UnavailableError("the peer has gone"));
    }
    std::copy_n(rest_.begin(), bytes.size(), bytes.data());
    rest_.erase(rest_.begin(), rest_.begin() + bytes.size());
    done(absl::OkStatus());
  }
  void Cancel() override {}

 private:
  std::vector<uint8_t> rest_;
};

std::vector<uint8_t> Copy(const Bytes& bytes) {
  return {bytes.data(), bytes.data() + bytes.size()};
}

// The body of the message that is at the beginning of `data`, which moves
// behind it, and behind its opening.
std::vector<uint8_t> Body(const uint8_t** data,
                          int64_t opening = Mailbox::kHeadSize) {
  uint64_t size;
  std::memcpy(&size, *data + 24, sizeof(size));
  const std::vector<uint8_t> body(*data + kHeaderSize, *data + size);
  *data += std::max<int64_t>(size, opening);
  return body;
}

void CheckRefusal(const absl::Status& status) {
  Check(absl::IsDataLoss(status) || absl::IsFailedPrecondition(status) ||
        absl::IsResourceExhausted(status) || absl::IsUnavailable(status));
}

constexpr int64_t kMaxBytes = 1 << 16;

// The peers' last messages had `opening` bytes.
void FuzzAllGather(const uint8_t* data, size_t size, int64_t opening) {
  Sequence transport(data, size);
  SizeHistory history;
  for (const int peer : {1, 2}) {
    history.BeginStep();
    history.EndExchange(
        {{{Codec::kBytes, Phase::kContribution, 0, peer, false}, opening}});
  }
  history.BeginStep();
  Mailbox mailbox(&transport, Patience(0), nullptr, 0, nullptr, &history);
  const std::vector<uint8_t> own = {1, 2, 3};
  std::vector<Bytes> gathered;
  const absl::Status status =
      AllGather([&] { return own.data(); }, own.size(),
                {/*rank=*/0, kRanks, kRound, &mailbox}, &gathered, kMaxBytes);
  if (!status.ok()) return CheckRefusal(status);
  Check(Copy(gathered[0]) == own);
  Check(Copy(gathered[1]) == Body(&data, opening));
  Check(Copy(gathered[2]) == Body(&data, opening));
}

// In which messages have several parts.
void FuzzAllGatherOfFewBytes(const uint8_t* data, size_t size) {
  constexpr int64_t kFewBytes = 100;
  Sequence transport(data, size);
  Mailbox mailbox(&transport, /*timeout_seconds=*/0);
  const std::vector<uint8_t> own = {1, 2, 3};
  std::vector<Bytes> gathered;
  const absl::Status status = AllGather(
      [&] { return own.data(); }, own.size(),
      {/*rank=*/0, /*ranks=*/4, kRound, &mailbox}, &gathered, kFewBytes);
  if (!status.ok()) return CheckRefusal(status);
  Check(Copy(gathered[0]) == own);
  int64_t bytes = 0;
  for (int rank = 1; rank < 4; ++rank) {
    Check(gathered[rank].size() <= kFewBytes);
    bytes += 4 + gathered[rank].size();
  }
  const size_t first = Body(&data).size();
  Check(bytes == static_cast<int64_t>(first + Body(&data).size()));
}

void FuzzBroadcast(const uint8_t* data, size_t size) {
  Sequence transport(data, size);
  Mailbox mailbox(&transport, /*timeout_seconds=*/0);
  Bytes received;
  int receivers;
  const absl::Status status =
      Broadcast(nullptr, 0, /*root=*/2, {/*rank=*/0, kRanks, kRound, &mailbox},
                &received, &receivers, kMaxBytes);
  if (!status.ok()) return CheckRefusal(status);
  Check(Copy(received) == Body(&data));
}

}  // namespace
}  // namespace tf_gc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_gc::FuzzAllGather(data, size, tf_gc::Mailbox::kHeadSize);
  tf_gc::FuzzAllGather(data, size, /*opening=*/100);
  tf_gc::FuzzAllGatherOfFewBytes(data, size);
  tf_gc::FuzzBroadcast(data, size);
  return 0;
}
