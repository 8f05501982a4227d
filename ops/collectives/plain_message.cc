#include "ops/collectives/plain_message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status PlainMessage::CheckSize(int64_t size, int64_t max_bytes) {
  if (size <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data must have at most ", max_bytes, " bytes, got ", size));
}

absl::Status PlainMessage::Make(const uint8_t* data, int64_t size,
                                const Mailbox& mailbox, Bytes* message) const {
  TF_GC_RETURN_IF_ERROR(CheckSize(size, max_bytes_));
  const Bytes buffer(kHeaderSize + size);
  std::copy_n(data, size, buffer.data() + kHeaderSize);
  Header header = header_;
  header.size = kHeaderSize + size;
  *message = mailbox.Seal(header, buffer);
  return absl::OkStatus();
}

void PlainMessage::Send(const std::vector<int>& peers, const Bytes& message,
                        Mailbox* mailbox) const {
  mailbox->Send(peers, header_, message);
}

void PlainMessage::Expect(int peer, Mailbox* mailbox) const {
  mailbox->Expect(peer, header_, kHeaderSize + max_bytes_);
}

absl::Status PlainMessage::Take(int peer, Mailbox* mailbox,
                                Bytes* message) const {
  return mailbox->Take(peer, header_.phase, header_.piece, message);
}

}  // namespace tf_gc
