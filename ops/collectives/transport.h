// Point-to-point byte transfer between the ranks of a group.

#ifndef TF_GC_OPS_COLLECTIVES_TRANSPORT_H_
#define TF_GC_OPS_COLLECTIVES_TRANSPORT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "ops/wire/bytes.h"

namespace tf_gc {

// A transfer is named by its two ranks and a tag, and its two ends must agree
// on its size. `done` is called exactly once, on any thread, possibly before
// the call returns.
class Transport {
 public:
  using Done = std::function<void(const absl::Status&)>;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A peer's name for error messages.
  virtual std::string PeerName(int peer) const = 0;

  // Calls `done` when the peer has taken the bytes.
  virtual void Send(int peer, const std::string& tag, const Bytes& bytes,
                    Done done) = 0;
  // Calls `done` when all of `bytes` has been filled; with an error if the peer
  // has sent more or fewer.
  virtual void Receive(int peer, const std::string& tag, const Bytes& bytes,
                       Done done) = 0;
  // Makes every transfer that is under way, and every later one, fail soon.
  virtual void Cancel() = 0;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_TRANSPORT_H_
