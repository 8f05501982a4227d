// What the tests of the exchange share: ranks as threads, and small pieces.

#ifndef TF_GC_TESTS_COLLECTIVES_TESTING_H_
#define TF_GC_TESTS_COLLECTIVES_TESTING_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/collectives/all_reduce.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/collectives/hop.h"
#include "ops/collectives/mailbox.h"
#include "ops/collectives/topology.h"
#include "ops/wire/checksum.h"
#include "ops/wire/header.h"
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

inline constexpr Topology kSharded = {TopologyKind::kSharded};
inline constexpr Topology kRing = {TopologyKind::kRing};
inline constexpr Topology kTree = {TopologyKind::kTree};
constexpr Topology TorusOf(int rows) { return {TopologyKind::kTorus, rows}; }

// One rank's side of an all-reduce of variables of these sizes.
inline absl::Status AllReduce(const std::vector<int64_t>& sizes, uint32_t round,
                              Transport* transport, Hop* hop,
                              const Topology& topology = kSharded) {
  Mailbox mailbox(transport, kTimeoutSeconds);
  std::vector<VariableTraffic> traffic;
  return AllReduce(sizes, topology,
                   {transport->rank(), transport->size(), round, &mailbox}, hop,
                   &traffic);
}

inline void ExpectDataLoss(const absl::Status& status,
                           const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(message));
}

// Gives a message that was damaged, and is all in one transfer, checks that
// fit: as if the peer had made it so.
inline void SealAgain(Transfer* transfer) {
  uint8_t* const bytes = transfer->bytes.data();
  int64_t size;
  std::memcpy(&size, bytes + 24, sizeof(size));
  bytes[7] = SizeCheck(size);
  if (size < kHeaderSize ||
      size > static_cast<int64_t>(transfer->bytes.size())) {
    return;
  }
  const uint32_t checksum = Checksum(bytes + kHeaderSize, size - kHeaderSize);
  std::memcpy(bytes + 20, &checksum, sizeof(checksum));
}

// Lets transfers overtake one another, and arrive on threads of their own.
inline void InAnyOrder(Transfer* transfer) { transfer->overtakable = true; }

// A topology of so many ranks.
struct Group {
  std::string name;
  int ranks;
  Topology topology;
};

inline std::vector<Group> ShardedServers() {
  std::vector<Group> groups;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    groups.push_back({absl::StrCat(ranks, " servers"), ranks, kSharded});
  }
  return groups;
}

inline std::vector<Group> Rings() {
  std::vector<Group> groups;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    groups.push_back({absl::StrCat("ring of ", ranks), ranks, kRing});
  }
  return groups;
}

inline std::vector<Group> RingsAndTori() {
  std::vector<Group> groups = Rings();
  for (const int columns : {2, 3}) {
    groups.push_back({absl::StrCat("torus of 2 rows of ", columns), 2 * columns,
                      TorusOf(2)});
  }
  return groups;
}

// Makes the hop of a rank.
using MakeHop = std::function<std::unique_ptr<Hop>(int rank)>;

// All-reduces a bucket of one vector of n values, without an error.
inline void ExpectAllReduces(const Group& group, int64_t n, const MakeHop& make,
                             const InProcessNetwork::Fault& fault = nullptr) {
  InProcessNetwork network(group.ranks);
  network.SetFault(fault);
  for (const absl::Status& status :
       RunRanks(group.ranks, &network, [&](int rank) {
         const std::unique_ptr<Hop> hop = make(rank);
         return AllReduce({n}, 0, network.transport(rank), hop.get(),
                          group.topology);
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// A piece that is all of a bucket of one vector.
inline Piece WholePiece(int64_t n) { return {{{0, 0, n}}, n, 0, 0}; }

// Merges a body of `incoming` ranks, not all, into what rank 0 of `ranks` has.
inline absl::Status MergeBody(const std::vector<uint8_t>& body, int64_t n,
                              int ranks, int incoming, Hop* hop) {
  const Piece piece = WholePiece(n);
  hop->Prepare(BucketLayout({n}, ranks, hop->piece_values(), hop->alignment()),
               0);
  hop->Start(piece);
  hop->Anticipate(piece, 1, incoming);
  return hop->Merge(piece, Aggregate::Partial(incoming), body.data(),
                    body.size());
}

// Decodes a body as the result of `ranks` ranks.
inline absl::Status DecodeBody(const std::vector<uint8_t>& body, int64_t n,
                               int ranks, Hop* hop) {
  hop->Prepare(BucketLayout({n}, ranks, hop->piece_values(), hop->alignment()),
               0);
  return hop->Decode(WholePiece(n), body.data(), body.size());
}

}  // namespace tf_gc

#endif  // TF_GC_TESTS_COLLECTIVES_TESTING_H_
