#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/collectives/binomial_tree.h"
#include "ops/collectives/exchange.h"
#include "ops/collectives/plain_exchange.h"
#include "ops/collectives/plain_message.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status Broadcast(const uint8_t* data, int64_t size, int root,
                       const Party& party, Bytes* received, int* receivers,
                       int64_t max_bytes) {
  const int ranks = party.ranks;
  Mailbox* const mailbox = party.mailbox;
  if (root < 0 || root >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("root must be the rank of a worker, 0 ... ", ranks - 1,
                     ", got ", root));
  }
  // The tree is that of rank 0, turned so that it begins at the root.
  const BinomialTree tree((party.rank - root + ranks) % ranks, ranks);
  // The largest subtree, which is the last child's, has the longest way to go.
  std::vector<int> children;
  for (auto child = tree.children().rbegin(); child != tree.children().rend();
       ++child) {
    children.push_back((*child + root) % ranks);
  }

  const PlainMessage plain(Phase::kSum, root, party.round, max_bytes);
  // A rank that gets nothing would not learn that its children have failed, or
  // are in another step. So these send an empty message, at once.
  const auto presence = [&](int child) {
    return PlainMessage(Phase::kContribution, child, party.round,
                        /*max_bytes=*/0);
  };
  for (const int child : children) presence(child).Expect(child, mailbox);
  Bytes message;
  if (tree.is_root()) {
    TF_GC_RETURN_IF_ERROR(plain.Make(data, size, *mailbox, &message));
  } else {
    const int parent = (tree.parent() + root) % ranks;
    plain.Expect(parent, mailbox);
    Bytes own;
    TF_GC_RETURN_IF_ERROR(
        presence(party.rank).Make(nullptr, 0, *mailbox, &own));
    presence(party.rank).Send({parent}, own, mailbox);
    TF_GC_RETURN_IF_ERROR(plain.Take(parent, mailbox, &message));
  }
  plain.Send(children, message, mailbox);
  for (const int child : children) {
    Bytes empty;
    TF_GC_RETURN_IF_ERROR(presence(child).Take(child, mailbox, &empty));
  }
  *received = PlainMessage::Body(message);
  *receivers = children.size();
  return mailbox->Flush();
}

}  // namespace tf_gc
