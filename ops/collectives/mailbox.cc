#include "ops/collectives/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tf_gc {
namespace {

std::string Tag(Phase phase, uint32_t piece) {
  return absl::StrCat(phase == Phase::kContribution ? "contribution" : "sum",
                      ":", piece);
}

std::string PartTag(const std::string& tag, int64_t part) {
  return absl::StrCat(tag, ":rest:", part);
}

// How many parts follow the head of a message of `size` bytes.
int64_t Parts(int64_t size) {
  const int64_t rest = std::max<int64_t>(0, size - Mailbox::kHeadSize);
  return (rest + Mailbox::kPartSize - 1) / Mailbox::kPartSize;
}

Bytes Part(const Bytes& message, int64_t part) {
  const int64_t begin = Mailbox::kHeadSize + part * Mailbox::kPartSize;
  return message.Slice(begin,
                       std::min(Mailbox::kPartSize, message.size() - begin));
}

// Any longer time would overflow the clock's 64 bits of nanoseconds.
constexpr double kLongestSeconds = 1e9;

std::chrono::steady_clock::time_point After(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(std::min(kLongestSeconds, seconds)));
}

}  // namespace

Mailbox::Mailbox(Transport* transport, double timeout_seconds)
    : transport_(transport),
      timeout_seconds_(timeout_seconds),
      deadline_(After(timeout_seconds)) {}

Mailbox::~Mailbox() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (pending_ > 0) {
    lock.unlock();
    transport_->Cancel();
    lock.lock();
  }
  changed_.wait(lock, [this] { return pending_ == 0; });
}

Bytes Mailbox::Seal(const Header& header, const Bytes& buffer) {
  const int64_t size = static_cast<int64_t>(header.size);
  WriteHeader(header, buffer.data());
  if (size < kHeadSize) std::memset(buffer.data() + size, 0, kHeadSize - size);
  return buffer.Slice(0, size);
}

void Mailbox::Send(const std::vector<int>& peers, Phase phase, uint32_t piece,
                   const Bytes& message) {
  const std::string tag = Tag(phase, piece);
  for (const int peer : peers) {
    SendPart(peer, phase, tag, message.Slice(0, kHeadSize));
    for (int64_t part = 0; part < Parts(message.size()); ++part) {
      SendPart(peer, phase, PartTag(tag, part), Part(message, part));
    }
  }
}

void Mailbox::Expect(int peer, const Header& header, int64_t max_size) {
  const std::string tag = Tag(header.phase, header.piece);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    incoming_[Key(peer, header.phase, header.piece)];
  }
  const Bytes head(kHeadSize);
  ReceivePart(peer, tag, head, [this, peer, header, max_size, tag, head] {
    OnHead(peer, header, max_size, tag, head);
  });
}

void Mailbox::OnHead(int peer, const Header& header, int64_t max_size,
                     const std::string& tag, const Bytes& head) {
  int64_t size = 0;
  const absl::Status read = ReadHeader(head.data(), header, max_size, &size);
  if (!read.ok()) {
    return Fail(absl::Status(
        read.code(), absl::StrCat("from ", transport_->PeerName(peer), ": ",
                                  read.message())));
  }
  const Key key(peer, header.phase, header.piece);
  Bytes message = head.Slice(0, size);
  if (size > head.size()) {
    message = Bytes(size);
    std::memcpy(message.data(), head.data(), head.size());
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    incoming_[key] = {message, Parts(size)};
  }
  for (int part = 0; part < kPartsAtOnce; ++part) {
    ReceiveRest(key, tag, message, part);
  }
}

void Mailbox::ReceiveRest(const Key& key, const std::string& tag,
                          const Bytes& message, int64_t part) {
  if (part >= Parts(message.size())) return;
  ReceivePart(std::get<0>(key), PartTag(tag, part), Part(message, part),
              [this, key, tag, message, part] {
                {
                  std::lock_guard<std::mutex> lock(mutex_);
                  --incoming_[key].missing;
                }
                ReceiveRest(key, tag, message, part + kPartsAtOnce);
              });
}

void Mailbox::SendPart(int peer, Phase phase, const std::string& tag,
                       const Bytes& part) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return;
    ++pending_;
    ++pending_sends_;
    bytes_sent_ += part.size();
    if (phase == Phase::kSum) result_bytes_sent_ += part.size();
  }
  transport_->Send(peer, tag, part, [this](const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    FailLocked(status);
    --pending_;
    --pending_sends_;
    changed_.notify_all();
  });
}

void Mailbox::ReceivePart(int peer, const std::string& tag, const Bytes& part,
                          std::function<void()> then) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return;
    ++pending_;
  }
  transport_->Receive(
      peer, tag, part,
      [this, size = part.size(),
       then = std::move(then)](const absl::Status& status) {
        if (status.ok()) {
          CountReceived(size);  // before the message can be taken
          then();
        }
        // Last, and under the lock: the destructor may run right after.
        std::lock_guard<std::mutex> lock(mutex_);
        FailLocked(status);
        --pending_;
        changed_.notify_all();
      });
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

template <typename Predicate>
absl::Status Mailbox::Wait(const std::string& what, Predicate ready) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto over = [&] { return !status_.ok() || ready(); };
  if (timeout_seconds_ <= 0) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_until(lock, deadline_, over)) {
    FailLocked(absl::DeadlineExceededError(
        absl::StrCat(what, " after ", timeout_seconds_,
                     " s (CommunicationOptions.timeout_seconds)")));
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
  if (status.ok()) *message = std::move(wanted->second.message);
  return status;
}

absl::Status Mailbox::Flush() {
  return Wait("a message was not taken by its receiver",
              [this] { return pending_sends_ == 0; });
}

}  // namespace tf_gc
