#include <cstddef>
#include <map>
#include <vector>

#include "ops/collectives/all_reduce.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

// One ring of ranks, each of which ends its reduce-scatter with the aggregate
// of one segment: the member m with segments[m].
struct Ring {
  std::vector<int> members;
  std::vector<Pieces> segments;
  int position;  // of this rank among the members

  int size() const { return members.size(); }
  int next() const { return members[(position + 1) % size()]; }
  int previous() const { return members[(position + size() - 1) % size()]; }
  // The segment that is `steps` positions behind this rank's.
  const Pieces& behind(int steps) const {
    return segments[(position + 2 * size() - steps) % size()];
  }
};

struct Result {
  int sender;
  Bytes message;
};

class TorusExchange {
 public:
  TorusExchange(int rows, Exchange* exchange) : exchange_(*exchange) {
    const int columns = exchange->ranks() / rows;
    const int row = exchange->rank() / columns;
    const int column = exchange->rank() % columns;
    row_.position = column;
    for (int c = 0; c < columns; ++c) {
      row_.members.push_back(row * columns + c);
      row_.segments.emplace_back();
      for (int r = 0; r < rows; ++r) {
        for (const Piece* const piece : exchange->shard(c * rows + r)) {
          row_.segments.back().push_back(piece);
        }
      }
    }
    column_.position = row;
    for (int r = 0; r < rows; ++r) {
      column_.members.push_back(r * columns + column);
      column_.segments.push_back(exchange->shard(column * rows + r));
    }
  }

  absl::Status Run() {
    ExpectAll(row_, 1);
    ExpectAll(column_, row_.size());
    exchange_.hop().Prepare(exchange_.layout(), exchange_.rank());
    TF_GC_RETURN_IF_ERROR(ReduceScatter(row_, 1));
    TF_GC_RETURN_IF_ERROR(ReduceScatter(column_, row_.size()));
    for (const Piece* const piece : column_.behind(0)) {
      // Nothing was merged where there is one rank.
      if (exchange_.ranks() == 1) exchange_.hop().Start(*piece);
      results_[piece] = {exchange_.rank(),
                         exchange_.Encode(exchange_.result(), *piece)};
    }
    TF_GC_RETURN_IF_ERROR(exchange_.hop().Commit());
    TF_GC_RETURN_IF_ERROR(AllGather(column_, [](const Pieces&) {
      return absl::OkStatus();  // the row gets these, too
    }));
    TF_GC_RETURN_IF_ERROR(
        AllGather(row_, [&](const Pieces& sent) { return Decode(sent); }));
    return exchange_.Flush();
  }

 private:
  void ExpectAll(const Ring& ring, int count) {
    for (int step = 1; step < ring.size(); ++step) {
      exchange_.Expect(ring.previous(),
                       Aggregate::Partial(count * step).content,
                       ring.behind(step + 1));
      exchange_.Expect(ring.previous(), Content::kResult, ring.behind(step));
    }
  }

  // Every member begins with aggregates of `count` ranks.
  absl::Status ReduceScatter(const Ring& ring, int count) {
    if (ring.size() > 1) {
      for (const Piece* const piece : ring.behind(1)) {
        SendOn(ring, count, *piece);
      }
    }
    for (int step = 1; step < ring.size(); ++step) {
      for (const Piece* const piece : ring.behind(step + 1)) {
        if (count == 1) exchange_.hop().Start(*piece);
        TF_GC_RETURN_IF_ERROR(exchange_.Merge(
            ring.previous(), count, Aggregate::Partial(count * step), *piece));
        if (step + 1 < ring.size()) {
          SendOn(ring, count * (step + 1), *piece);
        }
      }
    }
    return absl::OkStatus();
  }

  void SendOn(const Ring& ring, int count, const Piece& piece) {
    const Aggregate own = Aggregate::Partial(count);
    exchange_.Send({ring.next()}, own.content, piece,
                   exchange_.Encode(own, piece));
  }

  // Every member begins with the results of its segment. Calls use(segment)
  // while the next segment is on its way.
  template <typename Use>
  absl::Status AllGather(const Ring& ring, const Use& use) {
    for (int step = 1; step < ring.size(); ++step) {
      for (const Piece* const piece : ring.behind(step - 1)) {
        exchange_.Send({ring.next()}, Content::kResult, *piece,
                       results_.at(piece).message);
      }
      TF_GC_RETURN_IF_ERROR(use(ring.behind(step - 1)));
      for (const Piece* const piece : ring.behind(step)) {
        Result& result = results_[piece];
        result.sender = ring.previous();
        TF_GC_RETURN_IF_ERROR(
            exchange_.Take(result.sender, *piece, &result.message));
      }
    }
    return use(ring.behind(ring.size() - 1));
  }

  absl::Status Decode(const Pieces& pieces) {
    for (const Piece* const piece : pieces) {
      const auto& [sender, message] = results_.at(piece);
      TF_GC_RETURN_IF_ERROR(exchange_.Decode(sender, *piece, message));
      results_.erase(piece);
    }
    return absl::OkStatus();
  }

  Exchange& exchange_;
  Ring row_, column_;
  std::map<const Piece*, Result> results_;
};

}  // namespace

absl::Status TorusAllReduce(int rows, Exchange* exchange) {
  return TorusExchange(rows, exchange).Run();
}

}  // namespace tf_gc
