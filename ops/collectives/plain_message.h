// Messages of plain bytes, of a size that only their sender knows.

#ifndef TF_GC_OPS_COLLECTIVES_PLAIN_MESSAGE_H_
#define TF_GC_OPS_COLLECTIVES_PLAIN_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/mailbox.h"
#include "ops/wire/bytes.h"
#include "ops/wire/header.h"

namespace tf_gc {

// Messages with the bytes of rank `origin`, at most max_bytes: whoever receives
// one allocates no more on a peer's word. One peer sends one of each phase and
// piece.
class PlainMessage {
 public:
  PlainMessage(Phase phase, int origin, uint32_t round, int64_t max_bytes,
               uint32_t piece = 0)
      : max_bytes_(max_bytes),
        header_{
            Codec::kBytes,  phase, piece, round, static_cast<uint32_t>(origin),
            /*checksum=*/0,
            /*size=*/0} {}

  // InvalidArgument unless a rank may send so many bytes.
  static absl::Status CheckSize(int64_t size, int64_t max_bytes);

  // InvalidArgument for too many.
  absl::Status Make(const uint8_t* data, int64_t size, const Mailbox& mailbox,
                    Bytes* message) const;

  void Send(const std::vector<int>& peers, const Bytes& message,
            Mailbox* mailbox) const;

  // Begins to receive the message, and waits for it. Another rank may pass it
  // on.
  void Expect(int peer, Mailbox* mailbox) const;
  absl::Status Take(int peer, Mailbox* mailbox, Bytes* message) const;

  // The bytes that it carries.
  static Bytes Body(const Bytes& message) {
    return message.Slice(kHeaderSize, message.size() - kHeaderSize);
  }

 private:
  const int64_t max_bytes_;
  const Header header_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PLAIN_MESSAGE_H_
