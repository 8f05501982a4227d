// A Transport between ranks that are threads of one process, with faults.

#ifndef TF_GC_TESTS_COLLECTIVES_IN_PROCESS_TRANSPORT_H_
#define TF_GC_TESTS_COLLECTIVES_IN_PROCESS_TRANSPORT_H_

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/transport.h"

namespace tf_gc {

// A transfer of which both ends have come; a fault may change what is below
// the tag.
struct Transfer {
  int source;
  int destination;
  std::string tag;
  std::vector<uint8_t> bytes;
  absl::Status status;       // what both ends get
  bool dropped = false;      // neither end hears of it till the network goes
  bool overtakable = false;  // others may overtake it
};

// The network of a group of ranks. Transfers meet by source, destination and
// tag, in the order in which they came. A callback runs on the thread of the
// end that came last, on one that cancels, or, if the transfer is overtakable,
// on that of a courier, which takes any of those that wait.
class InProcessNetwork {
 public:
  using Fault = std::function<void(Transfer*)>;

  explicit InProcessNetwork(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      transports_.push_back(std::make_unique<RankTransport>(this, rank));
    }
    errors_.resize(ranks);
    for (std::thread& courier : couriers_) {
      courier = std::thread([this] { Carry(); });
    }
  }

  ~InProcessNetwork() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
      for (Letter& letter : dropped_) letters_.push_back(std::move(letter));
    }
    letter_came_.notify_all();
    for (std::thread& courier : couriers_) courier.join();
  }

  Transport* transport(int rank) { return transports_[rank].get(); }

  // Calls it for every transfer, one after the other. Before the first one.
  void SetFault(Fault fault) { fault_ = std::move(fault); }

  // Fails every transfer of every rank, now and later, as the collective
  // executor does when an op has failed.
  void Abort(const absl::Status& status) {
    for (size_t rank = 0; rank < errors_.size(); ++rank) Fail(rank, status);
  }

 private:
  struct End {
    Bytes bytes;
    Transport::Done done;  // null until this end has come
  };
  struct Meeting {
    int source;
    int destination;
    std::string tag;
    End sender, receiver;
  };
  using Meetings = std::list<Meeting>;

  // A transfer of which both ends are to hear later. Until then it can be
  // cancelled: an end that fails meanwhile leaves its `done` empty.
  struct Letter {
    Meetings::iterator meeting;
    Transfer transfer;
  };

  class RankTransport : public Transport {
   public:
    RankTransport(InProcessNetwork* network, int rank)
        : network_(network), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return network_->transports_.size(); }
    std::string PeerName(int peer) const override {
      return absl::StrCat("rank ", peer);
    }
    void Send(int peer, const std::string& tag, const Bytes& bytes,
              Done done) override {
      network_->Post(rank_, rank_, peer, tag, &Meeting::sender,
                     {bytes, std::move(done)});
    }
    void Receive(int peer, const std::string& tag, const Bytes& bytes,
                 Done done) override {
      network_->Post(rank_, peer, rank_, tag, &Meeting::receiver,
                     {bytes, std::move(done)});
    }
    void Cancel() override {
      network_->Fail(rank_, absl::CancelledError("cancelled"));
    }

   private:
    InProcessNetwork* const network_;
    const int rank_;
  };

  void Post(int rank, int source, int destination, const std::string& tag,
            End Meeting::* side, End end) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!errors_[rank].ok()) {
      const absl::Status error = errors_[rank];
      lock.unlock();
      return end.done(error);
    }
    auto meeting = std::find_if(
        waiting_.begin(), waiting_.end(), [&](const Meeting& other) {
          return other.source == source && other.destination == destination &&
                 other.tag == tag && !(other.*side).done;
        });
    if (meeting == waiting_.end()) {
      meeting = waiting_.insert(meeting, {source, destination, tag, {}, {}});
    }
    (*meeting).*side = std::move(end);
    if (!meeting->sender.done || !meeting->receiver.done) return;
    Meetings met;
    met.splice(met.end(), waiting_, meeting);
    Transfer transfer{source, destination, tag, {}, {}};
    const Bytes& bytes = met.front().sender.bytes;
    transfer.bytes.assign(bytes.data(), bytes.data() + bytes.size());
    if (fault_) fault_(&transfer);
    if (transfer.dropped || transfer.overtakable) {
      under_way_.splice(under_way_.begin(), met);
      (transfer.dropped ? dropped_ : letters_)
          .push_back({under_way_.begin(), std::move(transfer)});
      letter_came_.notify_one();
      return;
    }
    lock.unlock();
    Deliver(met.front(), transfer);
  }

  // What a courier does till the network goes and all has been delivered.
  void Carry() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      letter_came_.wait(lock, [&] { return closing_ || !letters_.empty(); });
      if (letters_.empty()) return;
      std::swap(letters_[random_() % letters_.size()], letters_.back());
      const Letter letter = std::move(letters_.back());
      letters_.pop_back();
      Meetings met;
      met.splice(met.end(), under_way_, letter.meeting);
      lock.unlock();
      Deliver(met.front(), letter.transfer);
      lock.lock();
    }
  }

  static void Deliver(const Meeting& meeting, const Transfer& transfer) {
    const End &sender = meeting.sender, &receiver = meeting.receiver;
    absl::Status status = transfer.status;
    if (!sender.done || !receiver.done) {
      status = absl::UnavailableError("the peer has gone");
    } else if (static_cast<int64_t>(transfer.bytes.size()) !=
               receiver.bytes.size()) {
      status = absl::InternalError(
          absl::StrCat(meeting.tag, ": ", transfer.bytes.size(),
                       " bytes sent, expected ", receiver.bytes.size()));
    }
    if (status.ok() && receiver.bytes.size() > 0) {
      std::memcpy(receiver.bytes.data(), transfer.bytes.data(),
                  receiver.bytes.size());
    }
    if (receiver.done) receiver.done(status);
    if (sender.done) sender.done(status);
  }

  void Fail(int rank, const absl::Status& status) {
    std::vector<Transport::Done> failed;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (errors_[rank].ok()) errors_[rank] = status;
      for (Meetings* meetings : {&waiting_, &under_way_}) {
        for (Meeting& meeting : *meetings) {
          if (meeting.source == rank) Take(&meeting.sender, &failed);
          if (meeting.destination == rank) Take(&meeting.receiver, &failed);
        }
      }
    }
    for (const Transport::Done& done : failed) done(status);
  }

  static void Take(End* end, std::vector<Transport::Done>* dones) {
    if (end->done) dones->push_back(std::move(end->done));
    end->done = nullptr;
  }

  std::vector<std::unique_ptr<RankTransport>> transports_;
  Fault fault_;
  std::mutex mutex_;
  std::vector<absl::Status> errors_;  // of the ranks
  Meetings waiting_;                  // for the other end
  Meetings under_way_;                // of the letters
  std::vector<Letter> letters_, dropped_;
  std::condition_variable letter_came_;
  bool closing_ = false;
  std::mt19937 random_;  // chooses letters
  std::array<std::thread, 3> couriers_;
};

}  // namespace tf_gc

#endif  // TF_GC_TESTS_COLLECTIVES_IN_PROCESS_TRANSPORT_H_
