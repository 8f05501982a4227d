// Transport over TensorFlow's own collective runtime.

#ifndef TF_GC_OPS_TENSORFLOW_COLLECTIVE_TRANSPORT_H_
#define TF_GC_OPS_TENSORFLOW_COLLECTIVE_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/collectives/transport.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_gc {

// One execution of an op on one member of a resolved group. Ranks follow the
// members' task numbers. Always held by a shared_ptr: callbacks of the runtime
// hold one too.
class CollectiveTransport
    : public Transport,
      public std::enable_shared_from_this<CollectiveTransport> {
 public:
  // `exchange` is the same on all members and different for any two exchanges
  // that may be under way at once.
  CollectiveTransport(tensorflow::OpKernelContext* context,
                      const tensorflow::CollGroupParams& group,
                      const std::string& exchange);

  int rank() const override { return rank_; }  // -1 if not a member
  int size() const override { return members_.size(); }
  std::string PeerName(int peer) const override;
  void Send(int peer, const std::string& tag, const Bytes& bytes,
            Done done) override;
  void Receive(int peer, const std::string& tag, const Bytes& bytes,
               Done done) override;
  void Cancel() override { cancellation_.StartCancel(); }

 private:
  std::string Key(int source, int destination, const std::string& tag) const;

  tensorflow::CollectiveRemoteAccess* const remote_access_;
  tensorflow::Device* const device_;
  const std::string exchange_;
  std::vector<tensorflow::CollGroupMember> members_;
  int rank_ = -1;
  // Not a child of the op's own manager, which a callback may outlive.
  tensorflow::CancellationManager cancellation_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_COLLECTIVE_TRANSPORT_H_
