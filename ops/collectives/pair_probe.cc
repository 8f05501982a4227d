#include "ops/collectives/pair_probe.h"

#include "absl/strings/str_cat.h"
#include "ops/collectives/plain_message.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// One rank's messages with another one.
class Pair {
 public:
  Pair(const Party& party, int peer, int64_t max_bytes)
      : party_(party), peer_(peer), max_bytes_(max_bytes) {
    // Before this rank's greeting, so that the peer's messages are asked for
    // when it sends them.
    for (const Kind kind : {kGreeting, kMessage, kAnswer}) {
      From(peer_, kind).Expect(peer_, party_.mailbox);
    }
  }

  // Both have come to this pair's turn.
  absl::Status Meet() {
    Bytes greeting;
    TF_GC_RETURN_IF_ERROR(Make(kGreeting, {}, &greeting));
    Send(kGreeting, greeting);
    return Take(kGreeting);
  }

  absl::Status Ask(const std::vector<uint8_t>& data,
                   std::chrono::steady_clock::time_point (*now)(),
                   double* seconds) {
    Bytes message;
    TF_GC_RETURN_IF_ERROR(Make(kMessage, data, &message));
    const auto begin = now();
    Send(kMessage, message);
    TF_GC_RETURN_IF_ERROR(Take(kAnswer));
    *seconds = std::chrono::duration<double>(now() - begin).count();
    return absl::OkStatus();
  }

  absl::Status Answer() {
    Bytes answer;
    TF_GC_RETURN_IF_ERROR(Make(kAnswer, {}, &answer));
    TF_GC_RETURN_IF_ERROR(Take(kMessage));
    Send(kAnswer, answer);
    return absl::OkStatus();
  }

 private:
  enum Kind { kGreeting, kMessage, kAnswer };

  PlainMessage From(int origin, Kind kind) const {
    return PlainMessage(kind == kAnswer ? Phase::kSum : Phase::kContribution,
                        origin, party_.round, kind == kMessage ? max_bytes_ : 0,
                        /*piece=*/kind == kMessage);
  }
  absl::Status Make(Kind kind, const std::vector<uint8_t>& data,
                    Bytes* message) const {
    return From(party_.rank, kind)
        .Make(data.data(), data.size(), *party_.mailbox, message);
  }
  void Send(Kind kind, const Bytes& message) {
    From(party_.rank, kind).Send({peer_}, message, party_.mailbox);
  }
  absl::Status Take(Kind kind) {
    Bytes message;
    return From(peer_, kind).Take(peer_, party_.mailbox, &message);
  }

  const Party party_;
  const int peer_;
  const int64_t max_bytes_;
};

absl::Status CheckSizes(const std::vector<int64_t>& sizes, int ranks,
                        int64_t max_bytes) {
  if (static_cast<int>(sizes.size()) != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("sizes must have one number for each of the ", ranks,
                     " workers, got ", sizes.size()));
  }
  for (const int64_t size : sizes) {
    if (size < 0 || size > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sizes must be 0 ... ", max_bytes, " (max_bytes), got ", size));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// With an even number of players, all but the last stand on a circle: in turn t
// those meet whose places add up to 2 t, and who would meet itself meets the
// last. With an odd number the last is missing.
int Turns(int ranks) { return ranks - 1 + ranks % 2; }

int Opponent(int rank, int ranks, int turn) {
  const int circle = Turns(ranks);
  if (rank == circle) return turn;
  const int opponent = (2 * turn - rank + circle) % circle;
  if (opponent != rank) return opponent;
  return circle < ranks ? circle : rank;
}

absl::Status ProbePairs(const std::vector<int64_t>& sizes, const Party& party,
                        int64_t max_bytes, std::vector<double>* seconds,
                        std::chrono::steady_clock::time_point (*now)()) {
  const int rank = party.rank, ranks = party.ranks;
  TF_GC_RETURN_IF_ERROR(CheckSizes(sizes, ranks, max_bytes));
  seconds->assign(ranks, 0);
  for (int turn = 0; turn < Turns(ranks); ++turn) {
    const int peer = Opponent(rank, ranks, turn);
    if (peer == rank) continue;
    const std::vector<uint8_t> data(sizes[peer]);
    Pair pair(party, peer, max_bytes);
    TF_GC_RETURN_IF_ERROR(pair.Meet());
    if (rank > peer) TF_GC_RETURN_IF_ERROR(pair.Answer());
    TF_GC_RETURN_IF_ERROR(pair.Ask(data, now, &(*seconds)[peer]));
    if (rank < peer) TF_GC_RETURN_IF_ERROR(pair.Answer());
  }
  return party.mailbox->Flush();
}

}  // namespace tf_gc
