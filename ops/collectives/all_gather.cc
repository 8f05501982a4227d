#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/collectives/exchange.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/collectives/plain_message.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// Where all that a rank may get is no longer than this, the number of messages
// counts more than their hops.
constexpr int64_t kMaxDoublingBytes = int64_t{1} << 16;
// Among so few ranks there would be one message less at most, and a hop is a
// latency.
constexpr int kMaxDirectRanks = 4;

// What a part takes in a message of several: its size, a number, and its bytes.
using PartSize = uint32_t;
int64_t MaxPartBytes(int64_t max_bytes) { return sizeof(PartSize) + max_bytes; }

absl::Status GatherDirectly(const OwnBytes& own, int64_t size,
                            const Party& party, int64_t max_bytes,
                            std::vector<Bytes>* gathered) {
  const int rank = party.rank;
  Mailbox* const mailbox = party.mailbox;
  const auto from = [&](int origin) {
    return PlainMessage(Phase::kContribution, origin, party.round, max_bytes);
  };
  const std::vector<int> peers = party.peers();
  for (const int peer : peers) from(peer).Expect(peer, mailbox);
  Bytes message;
  TF_GC_RETURN_IF_ERROR(from(rank).Make(own(), size, *mailbox, &message));
  (*gathered)[rank] = PlainMessage::Body(message);
  from(rank).Send(peers, message, mailbox);
  for (const int peer : peers) {
    TF_GC_RETURN_IF_ERROR(from(peer).Take(peer, mailbox, &message));
    (*gathered)[peer] = PlainMessage::Body(message);
  }
  return mailbox->Flush();
}

Bytes Join(const std::vector<Bytes>& parts) {
  int64_t size = 0;
  for (const Bytes& part : parts) size += MaxPartBytes(part.size());
  const Bytes body(size);
  uint8_t* out = body.data();
  for (const Bytes& part : parts) {
    WriteNumber<PartSize>(part.size(), out);
    out = std::copy_n(part.data(), part.size(), out + sizeof(PartSize));
  }
  return body;
}

// Splits a body in exactly `count` parts, of at most max_bytes each.
absl::Status Split(Bytes body, int count, int64_t max_bytes,
                   std::vector<Bytes>* parts) {
  for (int i = 0; i < count; ++i) {
    constexpr int64_t kBegin = sizeof(PartSize);
    const int64_t size =
        body.size() < kBegin ? 0 : ReadNumber<PartSize>(body.data());
    if (size > max_bytes || body.size() < kBegin + size) {
      return absl::DataLossError(absl::StrCat(
          "all-gather message: part ", i, " of ", count, " has ", size,
          " bytes of at most ", max_bytes, ", and ", body.size(), " are left"));
    }
    parts->push_back(body.Slice(kBegin, size));
    body = body.Slice(kBegin + size, body.size() - kBegin - size);
  }
  if (body.size() == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("all-gather message: ", body.size(),
                                          " bytes are behind its last part"));
}

// With the parts of the next 2^h ranks at hop h, a rank sends them to that
// 2^h before it, and so gets those of the 2^h after them: "Efficient Algorithms
// for All-to-All Communications in Multiport Message-Passing Systems", Bruck et
// al., IEEE Transactions on Parallel and Distributed Systems, 1997, section 4.
absl::Status GatherByDoubling(const OwnBytes& own, int64_t size,
                              const Party& party, int64_t max_bytes,
                              std::vector<Bytes>* gathered) {
  const int rank = party.rank, ranks = party.ranks;
  Mailbox* const mailbox = party.mailbox;
  struct Hop {
    int distance;  // and the number of parts that are there
    int count;     // of parts that are sent
    uint32_t index;
  };
  std::vector<Hop> hops;
  for (int distance = 1; distance < ranks; distance *= 2) {
    hops.push_back({distance, std::min(distance, ranks - distance),
                    static_cast<uint32_t>(hops.size())});
  }
  const auto from = [&](int origin, const Hop& hop) {
    return PlainMessage(Phase::kContribution, origin, party.round,
                        hop.count * MaxPartBytes(max_bytes), hop.index);
  };
  const auto source = [&](const Hop& hop) {
    return (rank + hop.distance) % ranks;
  };

  for (const Hop& hop : hops)
    from(source(hop), hop).Expect(source(hop), mailbox);
  std::vector<Bytes> parts = {Bytes(size)};  // of this rank, and those after it
  std::copy_n(own(), size, parts[0].data());
  for (const Hop& hop : hops) {
    const Bytes body = Join({parts.begin(), parts.begin() + hop.count});
    Bytes message;
    TF_GC_RETURN_IF_ERROR(
        from(rank, hop).Make(body.data(), body.size(), *mailbox, &message));
    from(rank, hop).Send({(rank + ranks - hop.distance) % ranks}, message,
                         mailbox);
    TF_GC_RETURN_IF_ERROR(
        from(source(hop), hop).Take(source(hop), mailbox, &message));
    TF_GC_RETURN_IF_ERROR(mailbox->From(
        source(hop),
        Split(PlainMessage::Body(message), hop.count, max_bytes, &parts)));
  }
  for (int i = 0; i < ranks; ++i) (*gathered)[(rank + i) % ranks] = parts[i];
  return mailbox->Flush();
}

}  // namespace

absl::Status AllGather(const OwnBytes& own, int64_t size, const Party& party,
                       std::vector<Bytes>* gathered, int64_t max_bytes) {
  TF_GC_RETURN_IF_ERROR(PlainMessage::CheckSize(size, max_bytes));
  gathered->resize(party.ranks);
  const bool doubles =
      party.ranks > kMaxDirectRanks &&
      party.ranks * MaxPartBytes(max_bytes) <= kMaxDoublingBytes;
  return (doubles ? GatherByDoubling : GatherDirectly)(own, size, party,
                                                       max_bytes, gathered);
}

}  // namespace tf_gc
