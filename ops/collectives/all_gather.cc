#include "ops/collectives/exchange.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/collectives/plain_message.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status AllGather(const uint8_t* data, int64_t size, int rank, int ranks,
                       uint32_t round, Mailbox* mailbox,
                       std::vector<Bytes>* gathered, int64_t max_bytes) {
  const auto from = [&](int origin) {
    return PlainMessage(Phase::kContribution, origin, round, max_bytes);
  };
  // In this rank's order: all start with different receivers.
  std::vector<int> peers;
  for (int d = 1; d < ranks; ++d) peers.push_back((rank + d) % ranks);

  for (const int peer : peers) from(peer).Expect(peer, mailbox);
  gathered->resize(ranks);
  Bytes message;
  TF_GC_RETURN_IF_ERROR(from(rank).Make(data, size, *mailbox, &message));
  from(rank).Send(peers, message, mailbox);
  (*gathered)[rank] = PlainMessage::Body(message);
  for (const int peer : peers) {
    TF_GC_RETURN_IF_ERROR(from(peer).Take(peer, mailbox, &message));
    (*gathered)[peer] = PlainMessage::Body(message);
  }
  return mailbox->Flush();
}

}  // namespace tf_gc
