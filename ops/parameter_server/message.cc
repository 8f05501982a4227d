#include "ops/parameter_server/message.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/parameter_server/varint.h"
#include "ops/wire/body.h"
#include "ops/wire/checksum.h"
#include "ops/wire/header.h"
#include "ops/wire/seeds.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

// The header as it lies in memory and on the wire.
struct Layout {
  uint32_t magic;
  uint8_t wire_version;
  uint8_t kind;
  uint16_t reserved;
  uint32_t entries;
  uint32_t tag;
  int64_t version;
  int64_t step;
  uint64_t size;
  uint32_t checksum;
  uint32_t unsettled;  // so many sequence numbers follow the header
  uint64_t worker;
  uint64_t sequence;
};
static_assert(sizeof(Layout) == kMessageHeaderSize);

// The fewest bytes that an entry takes.
constexpr int64_t kLeastEntrySize = 3;

// Of a whole message, as if its own field were 0.
uint32_t ChecksumOf(Layout header, const uint8_t* bytes, int64_t size) {
  header.checksum = 0;
  const uint32_t of_header =
      Checksum(reinterpret_cast<const uint8_t*>(&header), kMessageHeaderSize);
  return Checksum(bytes + kMessageHeaderSize, size - kMessageHeaderSize,
                  of_header);
}

const char* Name(Kind kind) { return kind == Kind::kPush ? "push" : "pull"; }

template <typename... Parts>
absl::Status Damaged(Kind kind, const Parts&... parts) {
  return absl::DataLossError(absl::StrCat(Name(kind), " message: ", parts...));
}

absl::Status CheckHeader(Kind kind, const Layout& header, int64_t size) {
  TF_GC_RETURN_IF_ERROR(
      CheckMagicAndVersion(header.magic, header.wire_version));
  const struct {
    const char* name;
    uint64_t received, expected;
  } fields[] = {
      {"kind", header.kind, static_cast<uint8_t>(kind)},
      {"reserved field", header.reserved, 0},
      {"size", header.size, static_cast<uint64_t>(size)},
  };
  for (const auto& field : fields) {
    if (field.received != field.expected) {
      return Damaged(kind, "the ", field.name, " is ", field.received,
                     ", expected ", field.expected);
    }
  }
  if (header.unsettled > (size - kMessageHeaderSize) / sizeof(uint64_t)) {
    return Damaged(kind, "the number of unsettled pushes is ", header.unsettled,
                   ", more than fit in ", size, " bytes");
  }
  if (kind == Kind::kPush && header.sequence == 0) {
    return Damaged(kind, "the sequence number is 0");
  }
  if (header.version < 0) {
    return Damaged(kind, "the version of the model is ", header.version);
  }
  if (header.step < 0) {
    return Damaged(kind, "the step of the model is ", header.step);
  }
  return absl::OkStatus();
}

absl::Status ReadEntry(Kind kind, size_t index, const uint8_t** at,
                       const uint8_t* end, Message::Entry* entry) {
  uint64_t id, size;
  if (!ReadVarint(at, end, &id) || id > UINT32_MAX) {
    return Damaged(kind, "the variable of entry ", index, " is damaged");
  }
  if (*at == end || !IsOfEntries(static_cast<Codec>(**at))) {
    return Damaged(kind, "the codec of entry ", index, " is ",
                   *at == end ? "missing" : absl::StrCat(+**at));
  }
  entry->codec = static_cast<Codec>(*(*at)++);
  if (!ReadVarint(at, end, &size) || size > static_cast<uint64_t>(end - *at)) {
    return Damaged(kind, "the size of entry ", index,
                   " is damaged, or more than what follows");
  }
  entry->id = static_cast<uint32_t>(id);
  entry->body = *at;
  entry->size = static_cast<int64_t>(size);
  *at += size;
  return absl::OkStatus();
}

}  // namespace

uint32_t PullRequest::Fingerprint() const {
  uint64_t bits = 0;
  // SplitMix64's increment: without it zeros would leave no trace.
  const auto add = [&bits](uint64_t number) {
    bits = MixBits((bits + 0x9e3779b97f4a7c15) ^ number);
  };
  add(version);
  for (const auto& [id, other] : others) {
    add(id);
    add(other);
  }
  return static_cast<uint32_t>(bits);
}

std::vector<int64_t> PullRequest::ToVector() const {
  std::vector<int64_t> values = {version, patience_micros};
  for (const auto& [id, other] : others) {
    values.push_back(id);
    values.push_back(other);
  }
  return values;
}

absl::Status ReadPullRequest(const int64_t* values, int64_t size,
                             PullRequest* request) {
  const auto negative = [](int64_t value) { return value < 0; };
  if (size < 2 || size % 2 != 0 ||
      std::any_of(values, values + size, negative)) {
    return absl::InvalidArgumentError(
        absl::StrCat("request must be one that PullRequest gives, got ", size,
                     " values, or a negative one"));
  }
  *request = {values[0], values[1], {}};
  for (int64_t i = 2; i < size; i += 2) {
    if (values[i] > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("request must have ids in [0, 2^32), got ", values[i]));
    }
    request->others.emplace_back(values[i], values[i + 1]);
  }
  return absl::OkStatus();
}

int64_t EntrySize(uint32_t id, int64_t size) {
  return VarintSize(id) + sizeof(Codec) + VarintSize(size) + size;
}

void MessageWriter::Add(uint32_t id, Codec codec,
                        const tensorflow::Tensor& body) {
  Add(id, codec, body, body.TotalBytes());
}

void MessageWriter::Add(uint32_t id, Codec codec,
                        const tensorflow::Tensor& body, int64_t size) {
  entries_.push_back({id, codec, body, size});
  size_ += EntrySize(id, size);
}

void MessageWriter::Write(uint8_t* out) const {
  Layout header{};
  header.magic = kMagic;
  header.wire_version = kWireVersion;
  header.kind = static_cast<uint8_t>(kind_);
  header.entries = static_cast<uint32_t>(entries_.size());
  header.tag = tag_;
  header.version = version_;
  header.step = step_;
  header.size = static_cast<uint64_t>(size_);
  header.unsettled = static_cast<uint32_t>(number_.unsettled.size());
  header.worker = number_.worker;
  header.sequence = number_.sequence;
  uint8_t* at = out + kMessageHeaderSize;
  const int64_t unsettled_size = sizeof(uint64_t) * header.unsettled;
  at = std::copy_n(reinterpret_cast<const uint8_t*>(number_.unsettled.data()),
                   unsettled_size, at);
  for (const Entry& entry : entries_) {
    at = WriteVarint(entry.id, at);
    *at++ = static_cast<uint8_t>(entry.codec);
    at = WriteVarint(entry.size, at);
    at = std::copy_n(entry.body.tensor_data().data(), entry.size, at);
  }
  std::memcpy(out, &header, kMessageHeaderSize);
  SealMessage(out, size_);
}

void SealMessage(uint8_t* bytes, int64_t size) {
  Layout header;
  std::memcpy(&header, bytes, kMessageHeaderSize);
  header.checksum = ChecksumOf(header, bytes, size);
  std::memcpy(bytes, &header, kMessageHeaderSize);
}

absl::Status ReadMessage(Kind kind, const uint8_t* bytes, int64_t size,
                         Message* message) {
  if (size < kMessageHeaderSize) {
    return Damaged(kind, size, " bytes, fewer than the ", kMessageHeaderSize,
                   " of a header");
  }
  Layout header;
  std::memcpy(&header, bytes, kMessageHeaderSize);
  absl::Status status = CheckHeader(kind, header, size);
  if (!status.ok()) return status;
  if (ChecksumOf(header, bytes, size) != header.checksum) {
    return Damaged(kind, "it was damaged on the way: its checksum is another");
  }
  if (header.entries > (size - kMessageHeaderSize) / kLeastEntrySize) {
    return Damaged(kind, "the number of entries is ", header.entries,
                   ", more than fit in ", size, " bytes");
  }
  *message = {header.tag,
              header.version,
              header.step,
              {header.worker, header.sequence, {}},
              {}};
  message->entries.resize(header.entries);
  const uint8_t* at = bytes + kMessageHeaderSize;
  for (uint32_t i = 0; i < header.unsettled; ++i) {
    message->number.unsettled.push_back(ReadNumber<uint64_t>(at));
    at += sizeof(uint64_t);
  }
  const uint8_t* const end = bytes + size;
  for (size_t i = 0; i < message->entries.size() && status.ok(); ++i) {
    status = ReadEntry(kind, i, &at, end, &message->entries[i]);
  }
  if (!status.ok() || at == end) return status;
  return Damaged(kind, end - at, " bytes behind the last entry");
}

}  // namespace tf_gc::parameter_server
