// The messages between the workers and a parameter server; docs/wire_format.md
// has their bytes.

#ifndef TF_GC_OPS_PARAMETER_SERVER_MESSAGE_H_
#define TF_GC_OPS_PARAMETER_SERVER_MESSAGE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/parameter_server/codec.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

inline constexpr int64_t kMessageHeaderSize = 64;

enum class Kind : uint8_t {
  kPush = 0x20,  // one worker's gradients, to the server
  kPull = 0x21,  // what makes a worker's copy of the model a newer one
};

// What a worker has of the model, as it asks for what is new.
struct PullRequest {
  int64_t version = 0;          // of the model
  int64_t patience_micros = 0;  // how long it may be left without an answer
  // Ids of those of the variables asked for that have another version, and
  // which: 0 if there is no copy.
  std::vector<std::pair<uint32_t, int64_t>> others;

  // Tells versions apart, as good as certainly.
  uint32_t Fingerprint() const;

  std::vector<int64_t> ToVector() const;
};

// InvalidArgument unless ToVector can have given these.
absl::Status ReadPullRequest(const int64_t* values, int64_t size,
                             PullRequest* request);

// Which push of a worker a message is; all zero for a pull.
struct PushNumber {
  uint64_t worker = 0;    // random
  uint64_t sequence = 0;  // a worker's pushes are counted from 1 on
  // Earlier ones of the same channel whose answer has not come.
  std::vector<uint64_t> unsettled;
};

// The bytes of an entry that has a body of `size` bytes.
int64_t EntrySize(uint32_t id, int64_t size);

// A message that is about to be sent. Bodies are kept, not copied.
class MessageWriter {
 public:
  // The tag of a push is its channel, that of a pull the fingerprint of the
  // request that it answers.
  MessageWriter(Kind kind, uint32_t tag) : kind_(kind), tag_(tag) {}

  // The version that a push was computed on, or that a pull leads to, and the
  // number of updates that it has seen.
  void set_version(int64_t version, int64_t step) {
    version_ = version;
    step_ = step;
  }
  void set_number(PushNumber number) {
    size_ += sizeof(uint64_t) * number.unsettled.size();
    number_ = std::move(number);
  }

  // An entry whose body are the bytes of a tensor of any type, or the first
  // `size` of them.
  void Add(uint32_t id, Codec codec, const tensorflow::Tensor& body);
  void Add(uint32_t id, Codec codec, const tensorflow::Tensor& body,
           int64_t size);

  int64_t size() const { return size_; }
  void Write(uint8_t* out) const;

  struct Entry {
    uint32_t id;
    Codec codec;
    tensorflow::Tensor body;
    int64_t size;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  const Kind kind_;
  const uint32_t tag_;
  int64_t version_ = 0;
  int64_t step_ = 0;
  PushNumber number_;
  int64_t size_ = kMessageHeaderSize;
  std::vector<Entry> entries_;
};

// Writes the checksum of a message into its header.
void SealMessage(uint8_t* bytes, int64_t size);

// A message that has come; the bodies are in its bytes.
struct Message {
  struct Entry {
    uint32_t id;
    Codec codec;
    const uint8_t* body;
    int64_t size;
  };

  uint32_t tag;
  int64_t version;
  int64_t step;
  PushNumber number;
  std::vector<Entry> entries;
};

// Reads a message of this kind. DataLoss, or where the versions of the wire
// format differ FailedPrecondition, for anything else; the error names the
// field. Bodies are not looked at, but for the checksum of it all.
absl::Status ReadMessage(Kind kind, const uint8_t* bytes, int64_t size,
                         Message* message);

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_MESSAGE_H_
