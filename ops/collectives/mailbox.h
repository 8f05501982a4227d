// Messages of sizes that only their senders know, over a Transport.

#ifndef TF_GC_OPS_COLLECTIVES_MAILBOX_H_
#define TF_GC_OPS_COLLECTIVES_MAILBOX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "ops/collectives/link_monitor.h"
#include "ops/collectives/patience.h"
#include "ops/collectives/size_history.h"
#include "ops/collectives/transport.h"
#include "ops/wire/bytes.h"
#include "ops/wire/header.h"

namespace tf_gc {

// The messages of one exchange, or of some, one after the other. A message goes
// in one transfer, its opening, if it is no longer than the longest of the same
// messages of the last steps (see SizeHistory), and is filled up with zeros to
// that; else its header, with which the opening begins, tells the size, and
// what is missing comes in parts of at most kPartSize, which are asked for as
// soon as the opening has come, so that they are under way while the op
// computes. The first error of any transfer, or of patience, ends the exchange:
// every later call returns it.
//
// Results wait until the late parts of this rank's contributions are taken:
// those of messages that were longer than the last ones, and no longer than an
// opening may be. On a slow link they would be behind the results, which no
// peer can use before it has made its own. So receivers must expect
// contributions before they wait for results.
class Mailbox {
 public:
  // The shortest opening, and that of a message of which there is no history:
  // small enough to cost nothing, large enough for the whole message of what
  // workers agree on before a step.
  static constexpr int64_t kHeadSize = 64;
  // gRPC serialises a transfer as a whole before it sends any of it: of parts,
  // one can be serialised, sent and copied while the next is on its way.
  static constexpr int64_t kPartSize = int64_t{4} << 20;
  // The longest opening: a part, and its header.
  static constexpr int64_t kMaxOpeningSize = kHeadSize + kPartSize;
  // Of one message. The sender holds so many of them twice.
  static constexpr int kPartsAtOnce = 8;

  // Is told what is waited for, from whom, and for how many seconds.
  using Report = std::function<void(const std::string& what, double seconds)>;

  // The transport must outlive the mailbox. `patience` is that of each wait
  // since the last transfer has ended. All messages are of one step of the
  // optimizer. `history` and `monitor` must outlive the mailbox too. The
  // monitor sees what comes after openings, which senders have ready, openings
  // that follow a stamp, and what is asked for to measure latency. Without a
  // history openings have kHeadSize bytes.
  Mailbox(Transport* transport, const Patience& patience, Report report,
          uint32_t step = 0, LinkMonitor* monitor = nullptr,
          SizeHistory* history = nullptr,
          LinkMeasurement measurement = LinkMeasurement::kNone);
  Mailbox(Transport* transport, double timeout_seconds)
      : Mailbox(transport, Patience(timeout_seconds), nullptr) {}

  // Cancels what is still under way and waits for the last callback.
  ~Mailbox();

  // Makes a message of the header.size bytes at the beginning of `buffer`: the
  // header is written there, with the checksum of what follows.
  Bytes Seal(Header header, const Bytes& buffer) const;

  // Sends the peers a message that was sealed with this header, or taken.
  void Send(const std::vector<int>& peers, const Header& header,
            const Bytes& message);

  // Begins to receive the message that agrees with `header` but for its size.
  // One with this phase and piece that was expected before has been taken.
  void Expect(int peer, const Header& header, int64_t max_size);

  // Waits for an expected message. *message is the whole of it.
  absl::Status Take(int peer, Phase phase, uint32_t piece, Bytes* message);

  // What is found of a message that this peer has sent, or passed on: an error
  // names it.
  absl::Status From(int peer, const absl::Status& status) const;

  // Waits until the peers have taken everything that was sent, and for what
  // measures links: the end of the exchange, whose sizes become history.
  absl::Status Flush();

  // What was handed to the transport, and what it has brought.
  int64_t bytes_sent() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_sent_;
  }
  // Of bytes_sent(), those of results.
  int64_t result_bytes_sent() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return result_bytes_sent_;
  }
  int64_t bytes_received() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_received_;
  }

  // How long Take and Flush have waited.
  std::chrono::nanoseconds time_waited() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return time_waited_;
  }

 private:
  using Key = std::tuple<int, Phase, uint32_t>;  // peer, phase, piece
  struct Incoming {
    Bytes message;
    int64_t missing = 1;  // transfers, as far as is known
    uint32_t checksum = 0;
  };

  struct Outgoing {
    std::vector<int> peers;
    Header header;
    Bytes message;
    std::vector<bool> measured;  // by peer
  };

  void SendNow(const Outgoing& outgoing);
  // `is_late`: results wait for it.
  void SendPart(int peer, Phase phase, const std::string& tag,
                const Bytes& part, bool is_late);
  // A late part was taken: sends what has waited, if it was the last.
  void EndLatePart();
  // `clock`: of the part, or none.
  void ReceivePart(int peer, const std::string& tag, const Bytes& part,
                   std::shared_ptr<TransferClock> clock,
                   std::function<void()> then);
  // That of a transfer that is asked for now.
  std::shared_ptr<TransferClock> BeginClock() const;
  void ReceiveMeasurement(int peer, const std::string& tag,
                          std::shared_ptr<TransferClock> clock,
                          const std::function<void()>& then);
  void OnOpening(int peer, const Header& header, int64_t max_size,
                 const std::string& tag, const Bytes& opening);
  // Receives every kPartsAtOnce-th part of what is missing behind the first
  // `received` bytes of the message, from `part` on.
  void ReceiveRest(const Key& key, const std::string& tag, const Bytes& message,
                   int64_t received, int64_t part);
  int64_t OpeningSize(const SizeHistory::Message& message) const;
  // Whether a message measures the link; that is asked for once.
  bool MeasuresLocked(int peer, Phase phase, bool is_sent);
  void CountReceived(int64_t size);
  void Fail(const absl::Status& status);
  void FailLocked(const absl::Status& status);
  // A transfer has ended: under the lock, as the destructor may run right
  // after.
  void EndLocked(const absl::Status& status);
  // Waits until `ready`, an error or the end of patience.
  template <typename Predicate>
  absl::Status Wait(const std::string& what, Predicate ready);
  // The peers from which messages are missing, and those which have not taken
  // theirs.
  std::string MissingLocked() const;

  Transport* const transport_;
  const Report report_;
  const uint32_t step_;
  LinkMonitor* const monitor_;
  SizeHistory* const history_;
  const LinkMeasurement measurement_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Incoming> incoming_;
  SizeHistory::Sizes sizes_;  // of this exchange's messages
  std::set<std::tuple<int, Phase, bool>> measured_;  // peer, phase, is_sent
  absl::Status status_;
  Patience patience_;
  int pending_ = 0;  // callbacks to come, of sends and receives
  std::map<int, int> pending_sends_;         // of sends alone, by peer
  std::map<int, int> pending_measurements_;  // that were not received, by peer
  int late_parts_ = 0;                       // that were not taken yet
  std::vector<Outgoing> held_;               // results that wait for these
  int64_t bytes_sent_ = 0;
  int64_t result_bytes_sent_ = 0;
  int64_t bytes_received_ = 0;
  std::chrono::nanoseconds time_waited_{0};
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_MAILBOX_H_
