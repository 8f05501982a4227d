// Decodes bytes as messages of the exchange: first a layout, then a header and
// a body. Whatever the bytes are, the header gives a size within its range or
// an error, and the hop an error or values that every variable has room for,
// alike however often it decodes them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/collectives/three_lc_hop.h"
#include "ops/wire/header.h"
#include "tests/fuzz/check.h"

namespace tf_gc {
namespace {

constexpr int kRanks = 2;

void FuzzHeader(const std::vector<uint8_t>& bytes) {
  if (bytes.size() < kHeaderSize) return;
  Header expected{};
  std::memcpy(&expected.codec, bytes.data() + 5, 1);
  std::memcpy(&expected.phase, bytes.data() + 6, 1);
  std::memcpy(&expected.piece, bytes.data() + 8, 4);
  std::memcpy(&expected.round, bytes.data() + 12, 4);
  std::memcpy(&expected.values, bytes.data() + 16, 4);
  constexpr int64_t kMaxSize = 1000;
  Header header{};
  const absl::Status read =
      ReadHeader(bytes.data(), expected, kMaxSize, &header);
  if (!read.ok()) {
    Check(absl::IsDataLoss(read) || absl::IsFailedPrecondition(read) ||
          absl::IsResourceExhausted(read));
    Check(!read.message().empty() && header.size == 0);
    return;
  }
  Check(header.size >= kHeaderSize && header.size <= kMaxSize);
  std::vector<uint8_t> again(kHeaderSize);
  WriteHeader(header, again.data());
  Check(std::equal(again.begin(), again.end(), bytes.begin()));
}

// The variables that the segments of a piece are all of, each in memory of
// exactly its size. Those of an even size have units.
class Variables {
 public:
  explicit Variables(const Piece& piece) {
    for (const Segment& segment : piece.segments) {
      buffers_.emplace_back(segment.length, 1.0f);
      residuals_.emplace_back(segment.length, 0.25f);
      units_.emplace_back(2 + segment.length / 2, 0.5f);
    }
    for (size_t v = 0; v < buffers_.size(); ++v) {
      float* const buffer = buffers_[v].data();
      variables_.push_back({piece.segments[v].length, buffer,
                            residuals_[v].data(), buffer, buffer});
      if (buffers_[v].empty() || buffers_[v].size() % 2 != 0) continue;
      variables_[v].units = units_[v].data();
      variables_[v].rows = 2;
    }
  }

  ThreeLcHop MakeHop() {
    return ThreeLcHop(&variables_, 1.5f, 2, [](const std::vector<bool>&) {
      return absl::OkStatus();
    });
  }
  bool SameBits(const Variables& other) const {
    for (size_t v = 0; v < buffers_.size(); ++v) {
      if (!buffers_[v].empty() &&
          std::memcmp(buffers_[v].data(), other.buffers_[v].data(),
                      buffers_[v].size() * sizeof(float)) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::vector<float>> buffers_, residuals_, units_;
  std::vector<FeedbackVariable> variables_;
};

absl::Status AddContribution(const Piece& piece,
                             const std::vector<uint8_t>& body,
                             Variables* variables) {
  ThreeLcHop hop = variables->MakeHop();
  std::vector<int64_t> sizes;
  for (const Segment& segment : piece.segments) sizes.push_back(segment.length);
  hop.Prepare(BucketLayout(sizes, kRanks, hop.piece_values()), 0);
  hop.Start(piece);
  const absl::Status status =
      hop.Merge(piece, Aggregate::Contribution(), body.data(), body.size());
  if (!status.ok()) return status;
  // What was added can be sent on.
  std::vector<uint8_t> sum(hop.MaxBodySize(piece, Content::kResult));
  const int64_t size =
      hop.Encode(piece, {Content::kResult, kRanks}, sum.data());
  Check(size <= static_cast<int64_t>(sum.size()));
  Check(hop.Decode(piece, sum.data(), size).ok());
  return status;
}

absl::Status DecodeSum(const Piece& piece, const std::vector<uint8_t>& body,
                       Variables* variables) {
  return variables->MakeHop().Decode(piece, body.data(), body.size());
}

template <typename Decode>
void FuzzBody(const Piece& piece, const std::vector<uint8_t>& body,
              Decode decode) {
  Variables first(piece), second(piece);
  const absl::Status status = decode(piece, body, &first);
  Check(decode(piece, body, &second) == status);
  Check(status.ok() || absl::IsDataLoss(status));
  Check(!status.ok() || first.SameBits(second));
}

}  // namespace
}  // namespace tf_gc

// A byte with the number of segments, two for the length of each, and the rest.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* const end = data + size;
  if (data == end) return 0;
  const int segments = *data++ % 12;
  if (end - data < 2 * segments) return 0;
  tf_gc::Piece piece;
  for (int v = 0; v < segments; ++v, data += 2) {
    // A segment is never empty.
    const int64_t length = 1 + (data[0] | data[1] << 8) % 3000;
    piece.segments.push_back({v, 0, length});
    piece.values += length;
  }
  const std::vector<uint8_t> rest(data, end);
  tf_gc::FuzzHeader(rest);
  tf_gc::FuzzBody(piece, rest, tf_gc::AddContribution);
  tf_gc::FuzzBody(piece, rest, tf_gc::DecodeSum);
  return 0;
}
