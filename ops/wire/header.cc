#include "ops/wire/header.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/wire/checksum.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "messages are little-endian and so must the machine be");

// The header as it lies in memory and on the wire.
struct Layout {
  uint32_t magic;
  uint8_t version;
  uint8_t codec;
  uint8_t phase;
  uint8_t size_check;
  uint32_t piece;
  uint32_t round;
  uint32_t values;
  uint32_t checksum;
  uint32_t size;
  uint32_t step;
};
static_assert(sizeof(Layout) == kHeaderSize);

absl::Status Mismatch(const char* field, uint64_t received, uint64_t expected) {
  return absl::DataLossError(absl::StrCat(
      "message header: ", field, " is ", received, ", expected ", expected,
      ". The workers must run the same program in the same order "
      "with the same tf_gc."));
}

}  // namespace

absl::Status CheckMagicAndVersion(uint32_t magic, uint8_t version) {
  if (magic != kMagic) return Mismatch("magic number", magic, kMagic);
  if (version == kWireVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("message header: the peer speaks wire format version ",
                   version, ", this worker version ", kWireVersion,
                   ". Install the same tf_gc on all workers."));
}

uint8_t SizeCheck(uint32_t size) {
  uint8_t bytes[sizeof(size)];
  std::memcpy(bytes, &size, sizeof(size));
  return static_cast<uint8_t>(Checksum(bytes, sizeof(size)));
}

void WriteHeader(const Header& header, uint8_t* out) {
  Layout layout{};
  layout.magic = kMagic;
  layout.version = kWireVersion;
  layout.codec = static_cast<uint8_t>(header.codec);
  layout.phase = static_cast<uint8_t>(header.phase);
  layout.size_check = SizeCheck(header.size);
  layout.piece = header.piece;
  layout.round = header.round;
  layout.values = header.values;
  layout.checksum = header.checksum;
  layout.size = header.size;
  layout.step = header.step;
  std::memcpy(out, &layout, kHeaderSize);
}

absl::Status ReadHeader(const uint8_t* bytes, const Header& expected,
                        int64_t max_size, Header* header) {
  Layout layout;
  std::memcpy(&layout, bytes, kHeaderSize);
  TF_GC_RETURN_IF_ERROR(CheckMagicAndVersion(layout.magic, layout.version));
  if (layout.step != expected.step) {
    return absl::DataLossError(
        absl::StrCat("message header: the optimizer's step is ", layout.step,
                     ", here it is ", expected.step,
                     ". A step was cancelled on one of the workers, or "
                     "repeated: start all of them again from a checkpoint."));
  }
  const struct {
    const char* name;
    uint64_t received, expected;
  } fields[] = {
      {"codec", layout.codec, static_cast<uint8_t>(expected.codec)},
      {"phase", layout.phase, static_cast<uint8_t>(expected.phase)},
      {"piece", layout.piece, expected.piece},
      {"round", layout.round, expected.round},
      {"number of values", layout.values, expected.values},
      {"check of the size", layout.size_check, SizeCheck(layout.size)},
  };
  for (const auto& field : fields) {
    if (field.received != field.expected) {
      return Mismatch(field.name, field.received, field.expected);
    }
  }
  if (layout.size < kHeaderSize) {
    return Mismatch("size", layout.size, kHeaderSize);
  }
  if (static_cast<int64_t>(layout.size) > max_size) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message header: size is ", layout.size,
                     ", and this worker expects at most ", max_size,
                     ". The workers must run the same program in the same "
                     "order with the same tf_gc."));
  }
  *header = expected;
  header->checksum = layout.checksum;
  header->size = layout.size;
  return absl::OkStatus();
}

}  // namespace tf_gc
