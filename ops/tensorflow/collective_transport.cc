#include "ops/tensorflow/collective_transport.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_gc {
namespace {

using ::tensorflow::AllocatorAttributes;
using ::tensorflow::CollGroupMember;
using ::tensorflow::DeviceLocality;
using ::tensorflow::DeviceNameUtils;
using ::tensorflow::Tensor;
using ::tensorflow::TensorBuffer;
using ::tensorflow::TensorShape;

// Lends a Bytes to the runtime as a tensor's memory.
class BytesTensorBuffer : public TensorBuffer {
 public:
  explicit BytesTensorBuffer(const Bytes& bytes)
      : TensorBuffer(bytes.data()), bytes_(bytes) {}

  size_t size() const override { return bytes_.size(); }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(
      tensorflow::AllocationDescription*) const override {}

 private:
  const Bytes bytes_;
};

// The callbacks hold it, so that the runtime never touches freed memory.
std::shared_ptr<Tensor> AsTensor(const Bytes& bytes) {
  auto* buffer = new BytesTensorBuffer(bytes);
  auto tensor = std::make_shared<Tensor>(tensorflow::DT_UINT8,
                                         TensorShape({bytes.size()}), buffer);
  buffer->Unref();  // the tensor has a reference of its own
  return tensor;
}

// The runtime orders members by name, which puts task 10 before task 2.
std::vector<CollGroupMember> InTaskOrder(
    const std::vector<CollGroupMember>& members) {
  using Place = std::tuple<std::string, int, int, std::string, int>;
  std::map<Place, const CollGroupMember*> places;
  for (const CollGroupMember& member : members) {
    DeviceNameUtils::ParsedName name;
    DeviceNameUtils::ParseFullName(member.device.name(), &name);
    places[Place(name.job, name.replica, name.task, name.type, name.id)] =
        &member;
  }
  std::vector<CollGroupMember> ordered;
  for (const auto& [place, member] : places) ordered.push_back(*member);
  return ordered;
}

// Whether the runtime says that the two ends of a transfer do not agree.
bool IsOfAnotherSize(const absl::Status& status) {
  return absl::StrContains(status.message(), "Tensor Size Mismatch");
}

}  // namespace

CollectiveTransport::CollectiveTransport(
    tensorflow::OpKernelContext* context,
    const tensorflow::CollGroupParams& group, const std::string& exchange)
    : remote_access_(context->collective_executor()->remote_access()),
      device_(static_cast<tensorflow::Device*>(context->device())),
      exchange_(exchange),
      members_(InTaskOrder(group.members)) {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].device.name() == device_->name()) rank_ = i;
  }
}

std::string CollectiveTransport::PeerName(int peer) const {
  return members_[peer].task;
}

std::string CollectiveTransport::Key(int source, int destination,
                                     const std::string& tag) const {
  return absl::StrCat(exchange_, ":", source, ">", destination, ":", tag);
}

void CollectiveTransport::Send(int peer, const std::string& tag,
                               const Bytes& bytes, Done done) {
  const auto tensor = AsTensor(bytes);
  remote_access_->PostToPeer(
      members_[peer].device.name(), members_[peer].task, Key(rank_, peer, tag),
      device_, /*from_device_ctx=*/nullptr, AllocatorAttributes(), tensor.get(),
      DeviceLocality(), &cancellation_,
      [self = shared_from_this(), tensor,
       done = std::move(done)](const absl::Status& status) { done(status); });
}

void CollectiveTransport::Receive(int peer, const std::string& tag,
                                  const Bytes& bytes, Done done) {
  const auto tensor = AsTensor(bytes);
  const CollGroupMember& member = members_[peer];
  remote_access_->RecvFromPeer(
      member.device.name(), member.task, member.is_local, Key(peer, rank_, tag),
      device_, /*to_device_ctx=*/nullptr, AllocatorAttributes(), tensor.get(),
      DeviceLocality(),
      /*dev_to_dev_stream_index=*/0, &cancellation_,
      [self = shared_from_this(), tensor, peer,
       done = std::move(done)](const absl::Status& status) {
        done(IsOfAnotherSize(status)
                 ? absl::DataLossError(absl::StrCat(
                       "from ", self->PeerName(peer),
                       ": a message has not the size that it should have. The "
                       "workers must run the same program in the same order; "
                       "where a step was cancelled on one of them, or "
                       "repeated, start all of them again from a checkpoint. ",
                       status.message()))
                 : status);
      });
}

}  // namespace tf_gc
