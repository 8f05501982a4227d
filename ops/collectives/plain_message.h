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

// The most bytes that a message carries: whoever receives one allocates no more
// on a peer's word.
inline constexpr int64_t kMaxPlainBytes = (int64_t{1} << 31) - 1;

// Messages with the bytes of rank `origin`. One peer sends one of each phase.
class PlainMessage {
 public:
  PlainMessage(Phase phase, int origin, uint32_t round)
      : header_{Codec::kBytes, phase,
                /*piece=*/0,   round, static_cast<uint64_t>(origin),
                /*size=*/0} {}

  // InvalidArgument for more than kMaxPlainBytes.
  absl::Status Make(const uint8_t* data, int64_t size, Bytes* message) const;

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
  const Header header_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_PLAIN_MESSAGE_H_
