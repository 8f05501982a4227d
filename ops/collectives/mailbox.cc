#include "ops/collectives/mailbox.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/collectives/wait_clock.h"
#include "ops/wire/checksum.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

std::string Tag(Phase phase, uint32_t piece) {
  return absl::StrCat(phase == Phase::kContribution ? "contribution" : "sum",
                      ":", piece);
}

std::string PartTag(const std::string& tag, int64_t part) {
  return absl::StrCat(tag, ":rest:", part);
}

// Of the few bytes that measure the link.
std::string MeasurementTag(const std::string& tag) {
  return absl::StrCat(tag, ":measurement");
}

// How many parts follow the first `opening` bytes of a message of `size`.
int64_t Parts(int64_t size, int64_t opening) {
  const int64_t rest = std::max<int64_t>(0, size - opening);
  return (rest + Mailbox::kPartSize - 1) / Mailbox::kPartSize;
}

Bytes Part(const Bytes& message, int64_t opening, int64_t part) {
  const int64_t begin = opening + part * Mailbox::kPartSize;
  return message.Slice(begin,
                       std::min(Mailbox::kPartSize, message.size() - begin));
}

// What history calls a message.
SizeHistory::Message MessageOf(const Header& header, int peer, bool is_sent) {
  if (header.phase == Phase::kSum) {
    peer = SizeHistory::kAllPeers;
    is_sent = false;
  }
  return {header.codec, header.phase, header.piece, peer, is_sent};
}

// A buffer; of none if there is no memory, as for a size that a peer has named.
absl::Status Allocate(int64_t size, Bytes* bytes) try {
  *bytes = Bytes(size);
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a message of ", size, " bytes"));
}

// The first `size` bytes of a message, zeros behind its end.
absl::Status Open(const Bytes& message, int64_t size, Bytes* opening) {
  if (message.size() >= size) {
    *opening = message.Slice(0, size);
    return absl::OkStatus();
  }
  TF_GC_RETURN_IF_ERROR(Allocate(size, opening));
  std::memcpy(opening->data(), message.data(), message.size());
  std::memset(opening->data() + message.size(), 0, size - message.size());
  return absl::OkStatus();
}

}  // namespace

Mailbox::Mailbox(Transport* transport, const Patience& patience, Report report,
                 uint32_t step, LinkMonitor* monitor, SizeHistory* history,
                 LinkMeasurement measurement)
    : transport_(transport),
      report_(std::move(report)),
      step_(step),
      monitor_(monitor),
      history_(history),
      measurement_(measurement),
      patience_(patience) {}

Mailbox::~Mailbox() {
  std::unique_lock<std::mutex> lock(mutex_);
  // Of a message that was taken, the callback may not have ended yet.
  const bool is_under_way =
      !pending_sends_.empty() || !pending_measurements_.empty() ||
      std::any_of(incoming_.begin(), incoming_.end(), [](const auto& message) {
        return message.second.missing > 0;
      });
  if (pending_ > 0 && is_under_way) {
    lock.unlock();
    transport_->Cancel();
    lock.lock();
  }
  changed_.wait(lock, [this] { return pending_ == 0; });
}

Bytes Mailbox::Seal(Header header, const Bytes& buffer) const {
  const int64_t size = static_cast<int64_t>(header.size);
  header.step = step_;
  header.checksum = Checksum(buffer.data() + kHeaderSize, size - kHeaderSize);
  WriteHeader(header, buffer.data());
  return buffer.Slice(0, size);
}

int64_t Mailbox::OpeningSize(const SizeHistory::Message& message) const {
  const int64_t longest = history_ ? history_->Longest(message) : 0;
  return std::clamp(longest, kHeadSize, kMaxOpeningSize);
}

bool Mailbox::MeasuresLocked(int peer, Phase phase, bool is_sent) {
  return measurement_ != LinkMeasurement::kNone &&
         measured_.insert({peer, phase, is_sent}).second;
}

void Mailbox::Send(const std::vector<int>& peers, const Header& header,
                   const Bytes& message) {
  Outgoing outgoing{peers, header, message, /*measured=*/{}};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const int peer : peers) {
      outgoing.measured.push_back(MeasuresLocked(peer, header.phase, true));
    }
    if (header.phase == Phase::kSum && late_parts_ > 0) {
      return held_.push_back(std::move(outgoing));
    }
  }
  SendNow(outgoing);
}

void Mailbox::SendNow(const Outgoing& outgoing) {
  const auto& [peers, header, message, measured] = outgoing;
  const std::string tag = Tag(header.phase, header.piece);
  const bool could_open =
      header.phase == Phase::kContribution && message.size() <= kMaxOpeningSize;
  Bytes opening;
  for (size_t i = 0; i < peers.size(); ++i) {
    const int peer = peers[i];
    const SizeHistory::Message sent = MessageOf(header, peer, true);
    const int64_t size = OpeningSize(sent);
    if (opening.size() != size) {
      const absl::Status status = Open(message, size, &opening);
      if (!status.ok()) return Fail(status);
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      sizes_[sent] = message.size();
    }
    if (measured[i]) {
      SendPart(peer, header.phase, MeasurementTag(tag),
               message.Slice(0, kHeaderSize), /*is_late=*/false);
    }
    SendPart(peer, header.phase, tag, opening, /*is_late=*/false);
    for (int64_t part = 0; part < Parts(message.size(), size); ++part) {
      SendPart(peer, header.phase, PartTag(tag, part),
               Part(message, size, part), could_open && size > kHeadSize);
    }
  }
}

void Mailbox::Expect(int peer, const Header& header, int64_t max_size) {
  const std::string tag = Tag(header.phase, header.piece);
  bool is_measured = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // In place of one that was taken before.
    incoming_[Key(peer, header.phase, header.piece)] = Incoming();
    is_measured = MeasuresLocked(peer, header.phase, false);
  }
  Bytes opening;
  const absl::Status status =
      Allocate(OpeningSize(MessageOf(header, peer, false)), &opening);
  if (!status.ok()) return Fail(From(peer, status));
  Header expected = header;
  expected.step = step_;
  const bool has_stamp =
      is_measured && measurement_ == LinkMeasurement::kBandwidth;
  // An opening may have to wait for its sender. What follows a stamp has not.
  std::shared_ptr<TransferClock> clock;
  if (has_stamp) {
    clock = std::make_shared<TransferClock>(monitor_, /*is_asked_for=*/false);
    ReceiveMeasurement(peer, tag, nullptr, [clock] { clock->Begin(); });
  }
  ReceivePart(peer, tag, opening, clock,
              [this, peer, expected, max_size, tag, opening,
               is_asked_for = is_measured && !has_stamp] {
                // Before the message can be taken: Flush waits for it.
                if (is_asked_for) {
                  ReceiveMeasurement(peer, tag, BeginClock(), [] {});
                }
                OnOpening(peer, expected, max_size, tag, opening);
              });
}

std::shared_ptr<TransferClock> Mailbox::BeginClock() const {
  auto clock = std::make_shared<TransferClock>(monitor_, /*is_asked_for=*/true);
  clock->Begin();
  return clock;
}

void Mailbox::ReceiveMeasurement(int peer, const std::string& tag,
                                 std::shared_ptr<TransferClock> clock,
                                 const std::function<void()>& then) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++pending_measurements_[peer];
  }
  ReceivePart(peer, MeasurementTag(tag), Bytes(kHeaderSize), std::move(clock),
              [this, peer, then] {
                then();
                std::lock_guard<std::mutex> lock(mutex_);
                if (--pending_measurements_[peer] == 0) {
                  pending_measurements_.erase(peer);
                }
              });
}

void Mailbox::OnOpening(int peer, const Header& header, int64_t max_size,
                        const std::string& tag, const Bytes& opening) {
  Header read{};
  absl::Status status = ReadHeader(opening.data(), header, max_size, &read);
  const int64_t size = static_cast<int64_t>(read.size);
  Bytes message = opening.Slice(0, size);
  if (status.ok() && size > opening.size()) {
    status = Allocate(size, &message);
    if (status.ok()) {
      std::memcpy(message.data(), opening.data(), opening.size());
    }
  }
  if (!status.ok()) return Fail(From(peer, status));
  const Key key(peer, header.phase, header.piece);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    incoming_[key] = {message, Parts(size, opening.size()), read.checksum};
    sizes_[MessageOf(header, peer, false)] = size;
  }
  for (int part = 0; part < kPartsAtOnce; ++part) {
    ReceiveRest(key, tag, message, opening.size(), part);
  }
}

void Mailbox::ReceiveRest(const Key& key, const std::string& tag,
                          const Bytes& message, int64_t received,
                          int64_t part) {
  if (part >= Parts(message.size(), received)) return;
  ReceivePart(std::get<0>(key), PartTag(tag, part),
              Part(message, received, part), BeginClock(),
              [this, key, tag, message, received, part] {
                {
                  std::lock_guard<std::mutex> lock(mutex_);
                  --incoming_[key].missing;
                }
                ReceiveRest(key, tag, message, received, part + kPartsAtOnce);
              });
}

void Mailbox::SendPart(int peer, Phase phase, const std::string& tag,
                       const Bytes& part, bool is_late) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return;
    ++pending_;
    ++pending_sends_[peer];
    late_parts_ += is_late;
    bytes_sent_ += part.size();
    if (phase == Phase::kSum) result_bytes_sent_ += part.size();
  }
  transport_->Send(peer, tag, part,
                   [this, peer, is_late](const absl::Status& status) {
                     if (is_late && status.ok()) EndLatePart();
                     std::lock_guard<std::mutex> lock(mutex_);
                     if (--pending_sends_[peer] == 0)
                       pending_sends_.erase(peer);
                     EndLocked(status);
                   });
}

void Mailbox::EndLatePart() {
  std::vector<Outgoing> held;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--late_parts_ > 0) return;
    held.swap(held_);
  }
  for (const Outgoing& outgoing : held) SendNow(outgoing);
}

void Mailbox::ReceivePart(int peer, const std::string& tag, const Bytes& part,
                          std::shared_ptr<TransferClock> clock,
                          std::function<void()> then) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) {
      if (clock != nullptr) clock->End(std::nullopt);
      return;
    }
    ++pending_;
  }
  transport_->Receive(
      peer, tag, part,
      [this, size = part.size(), clock = std::move(clock),
       then = std::move(then)](const absl::Status& status) {
        if (clock != nullptr) {
          clock->End(status.ok() ? std::optional(size) : std::nullopt);
        }
        if (status.ok()) {
          CountReceived(size);  // before the message can be taken
          then();
        }
        std::lock_guard<std::mutex> lock(mutex_);
        EndLocked(status);
      });
}

void Mailbox::EndLocked(const absl::Status& status) {
  FailLocked(status);
  if (status.ok()) patience_.Progress();
  --pending_;
  changed_.notify_all();
}

void Mailbox::CountReceived(int64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  bytes_received_ += size;
}

void Mailbox::Fail(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  FailLocked(status);
}

void Mailbox::FailLocked(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

absl::Status Mailbox::From(int peer, const absl::Status& status) const {
  return tf_gc::From(transport_->PeerName(peer), status);
}

std::string Mailbox::MissingLocked() const {
  std::set<std::string> silent, busy;
  for (const auto& [key, message] : incoming_) {
    if (message.missing > 0) {
      silent.insert(transport_->PeerName(std::get<0>(key)));
    }
  }
  for (const auto& [peer, measurements] : pending_measurements_) {
    silent.insert(transport_->PeerName(peer));
  }
  for (const auto& [peer, sends] : pending_sends_) {
    busy.insert(transport_->PeerName(peer));
  }
  std::vector<std::string> parts;
  if (!silent.empty()) {
    parts.push_back(absl::StrCat("nothing comes from ",
                                 absl::StrJoin(silent, ", "),
                                 " (who may wait for others in turn)"));
  }
  if (!busy.empty()) {
    parts.push_back(absl::StrCat(absl::StrJoin(busy, ", "),
                                 " does not take what was sent"));
  }
  return absl::StrJoin(parts, ", and ");
}

template <typename Predicate>
absl::Status Mailbox::Wait(const std::string& what, Predicate ready) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Patience::Clock::time_point begin = Patience::Clock::now();
  WaitClock::OfProcess()->Begin();
  const bool in_time = patience_.Wait(
      &lock, &changed_, [&] { return !status_.ok() || ready(); },
      [&](double seconds) {
        if (report_) report_(MissingLocked(), seconds);
      });
  WaitClock::OfProcess()->End();
  time_waited_ += Patience::Clock::now() - begin;
  if (!in_time) {
    FailLocked(absl::DeadlineExceededError(absl::StrCat(
        what, " after ", patience_.timeout_seconds(), " s without progress: ",
        MissingLocked(), " (CommunicationOptions.timeout_seconds)")));
  }
  return status_;
}

absl::Status Mailbox::Take(int peer, Phase phase, uint32_t piece,
                           Bytes* message) {
  const auto wanted = incoming_.find(Key(peer, phase, piece));
  const absl::Status status =
      Wait(absl::StrCat("no ", Tag(phase, piece), " from ",
                        transport_->PeerName(peer)),
           [&] { return wanted->second.missing == 0; });
  if (!status.ok()) return status;
  *message = std::move(wanted->second.message);
  if (Checksum(message->data() + kHeaderSize, message->size() - kHeaderSize) ==
      wanted->second.checksum) {
    return absl::OkStatus();
  }
  const absl::Status damaged =
      From(peer, absl::DataLossError(
                     absl::StrCat(Tag(phase, piece),
                                  " was damaged on the way: its checksum is "
                                  "another one")));
  Fail(damaged);
  return damaged;
}

absl::Status Mailbox::Flush() {
  const absl::Status status = Wait("the exchange has not ended", [this] {
    return pending_sends_.empty() && pending_measurements_.empty();
  });
  std::lock_guard<std::mutex> lock(mutex_);
  if (status.ok() && history_) history_->EndExchange(sizes_);
  sizes_.clear();
  return status;
}

}  // namespace tf_gc
