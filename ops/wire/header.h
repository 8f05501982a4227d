// The header of every message of the exchange; docs/wire_format.md has the
// bytes of the bodies too.

#ifndef TF_GC_OPS_WIRE_HEADER_H_
#define TF_GC_OPS_WIRE_HEADER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "ops/wire/codec.h"

namespace tf_gc {

// Changes whenever a byte of any message changes its meaning.
inline constexpr uint8_t kWireVersion = 11;
inline constexpr uint32_t kMagic = 0x43474654;  // "TFGC"
inline constexpr int64_t kHeaderSize = 32;

// What every message begins with, those of the parameter server too: its first
// four bytes, and the fifth. DataLoss or, where the versions differ,
// FailedPrecondition.
absl::Status CheckMagicAndVersion(uint32_t magic, uint8_t version);

// Which hop of the exchange a message belongs to.
enum class Phase : uint8_t {
  kContribution = 0,  // what one rank or some have contributed to a piece
  kSum = 1,           // what all have: the result
};

struct Header {
  Codec codec;
  Phase phase;
  uint32_t piece;     // index of the piece in the bucket
  uint32_t round;     // how many exchanges of this bucket came before, mod 2^32
  uint32_t values;    // of the piece; of plain bytes, the rank they come from
  uint32_t checksum;  // of what follows the header (checksum.h)
  uint32_t size;      // of the whole message, this header included
  uint32_t step = 0;  // of the optimizer, mod 2^32
};

// What the header has beside a size, since the receiver asks for so many bytes
// before it can compare the checksum: the lowest byte of the CRC-32C of the
// size's four bytes. It tells every bit that was flipped alone.
uint8_t SizeCheck(uint32_t size);

// Writes kHeaderSize bytes.
void WriteHeader(const Header& header, uint8_t* out);

// Reads a header that should agree with `expected` in everything but its size
// and its checksum. A size of more than max_size is ResourceExhausted. Anything
// else is DataLoss or, where the versions differ, FailedPrecondition; the error
// names the field.
absl::Status ReadHeader(const uint8_t* bytes, const Header& expected,
                        int64_t max_size, Header* header);

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_HEADER_H_
