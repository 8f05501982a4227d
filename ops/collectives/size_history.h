// How long the messages of a bucket were, in its last steps.

#ifndef TF_GC_OPS_COLLECTIVES_SIZE_HISTORY_H_
#define TF_GC_OPS_COLLECTIVES_SIZE_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "ops/wire/header.h"

namespace tf_gc {

// Tells both ends of a message how long it may become, before it is made: as
// long as the longest of the last kSteps at its place. Both have seen those, so
// that both come to the same number. A place is an exchange of the step, and a
// message of that exchange.
//
// Thread-safe.
class SizeHistory {
 public:
  static constexpr int kSteps = 4;
  // Of a step; nothing is known of what comes after them, as in a program that
  // never begins a step.
  static constexpr int kMaxExchanges = 64;

  // Where in an exchange a message belongs: codec, phase, piece, its other end,
  // and whether it is sent. A result is the same message on all ranks: it has
  // the end kAllPeers, and counts as received.
  using Message = std::tuple<Codec, Phase, uint32_t, int, bool>;
  static constexpr int kAllPeers = -1;
  using Sizes = std::map<Message, int64_t>;

  // The next exchange is the first of a step.
  void BeginStep();

  // The size of the longest such message in this exchange of the last steps; 0
  // if there was none.
  int64_t Longest(const Message& message) const;

  // Takes the sizes of the messages of this exchange, which has ended.
  void EndExchange(const Sizes& sizes);

 private:
  using Place = std::pair<int, Message>;  // exchange of the step, message
  struct Last {
    std::array<int64_t, kSteps> sizes{};
    size_t count = 0;  // of all that there were
  };

  mutable std::mutex mutex_;
  int exchange_ = 0;  // of the step
  std::map<Place, Last> last_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_SIZE_HISTORY_H_
