// What the tests of the exchange share: ranks as threads, and small pieces.

#ifndef TF_GC_TESTS_COLLECTIVES_TESTING_H_
#define TF_GC_TESTS_COLLECTIVES_TESTING_H_

#include <cstdint>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/mailbox.h"
#include "ops/collectives/sharded_server.h"
#include "ops/collectives/topology.h"
#include "tests/collectives/in_process_transport.h"

namespace tf_gc {

// Longer than any exchange takes, short enough to see one that hangs.
inline constexpr double kTimeoutSeconds = 20;

// A hop whose pieces are smaller.
template <typename HopType>
class InPieces : public HopType {
 public:
  template <typename... Args>
  explicit InPieces(int64_t piece_values, Args&&... args)
      : HopType(std::forward<Args>(args)...), piece_values_(piece_values) {}

  int64_t piece_values() const override { return piece_values_; }

 private:
  const int64_t piece_values_;
};

// Calls body(rank) on a thread for each rank, and returns what they return.
// The first error aborts all transfers, as that of an op does.
inline std::vector<absl::Status> RunRanks(
    int ranks, InProcessNetwork* network,
    const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = body(rank);
      if (!statuses[rank].ok()) {
        network->Abort(absl::UnavailableError(absl::StrCat(
            "rank ", rank, " failed: ", statuses[rank].message())));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// One rank's side of an all-reduce of variables of these sizes.
inline absl::Status AllReduce(
    const std::vector<int64_t>& sizes, uint32_t round, Transport* transport,
    Hop* hop, const Topology& topology = ShardedServerAllReduce) {
  const BucketLayout layout(sizes, transport->size(), hop->piece_values(),
                            hop->alignment());
  Mailbox mailbox(transport, kTimeoutSeconds);
  Exchange exchange(&layout, transport->rank(), round, hop, &mailbox);
  return topology(&exchange);
}

// Lets every transfer arrive after a time of its own, and so on a thread of its
// own, and messages overtake one another.
inline InProcessNetwork::Fault RandomDelays(uint32_t seed) {
  return [generator = std::mt19937(seed)](Transfer* transfer) mutable {
    transfer->delay = std::chrono::milliseconds(generator() % 4);
  };
}

}  // namespace tf_gc

#endif  // TF_GC_TESTS_COLLECTIVES_TESTING_H_
