#include "ops/kernels/zero_run_parts.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/quartic.h"
#include "ops/kernels/zero_run.h"

namespace tf_gc::kernels {
namespace {

// Parts of a decoding begin at multiples of it: many blocks of the kernels.
constexpr int64_t kStep = 16384;

struct EncodedPart {
  int64_t begin;
  int64_t size;
  int64_t pending;
};

// The zeros that a code stands for; none if it is another byte.
int64_t Zeros(uint8_t code) {
  if (code == kQuarticZero) return 1;
  return code < kQuarticValues ? 0 : code - kQuarticValues + 2;
}

// Writes a run of `length` zeros.
uint8_t* WriteRun(int64_t length, uint8_t* out) {
  const int64_t longest = length / kMaxZeroRun;
  out = std::fill_n(out, longest, uint8_t{255});
  const int64_t rest = length % kMaxZeroRun;
  if (rest == 1) *out++ = kQuarticZero;
  if (rest > 1) *out++ = static_cast<uint8_t>(kQuarticValues + rest - 2);
  return out;
}

// Joins parts that lie at encoded + begin. A run may have been cut where a part
// ends: what the part before has left out and the zeros that the next one
// begins with are written anew.
//
// They never overwrite what is still to be read: zeros take no more codes
// together than the first ones take as quartic bytes and the others as codes.
int64_t Join(const std::vector<EncodedPart>& parts, uint8_t* encoded) {
  uint8_t* out = encoded;
  int64_t run = 0;
  for (const EncodedPart& part : parts) {
    const uint8_t* next = encoded + part.begin;
    const uint8_t* const end = next + part.size;
    while (next < end && Zeros(*next) > 0) run += Zeros(*next++);
    if (next < end) {
      out = WriteRun(run, out);
      if (out != next) std::memmove(out, next, end - next);
      out += end - next;
      run = 0;
    }
    run += part.pending;
  }
  return WriteRun(run, out) - encoded;
}

}  // namespace

int64_t ZeroRunEncodeParts(int64_t m, int64_t cost,
                           const ParallelFor& parallel_for,
                           const ZeroRunEncodePart& encode_part,
                           uint8_t* encoded) {
  std::mutex mutex;
  std::vector<EncodedPart> parts;
  parallel_for(m, cost, [&](int64_t begin, int64_t end) {
    int64_t pending;
    const int64_t size = encode_part(begin, end, encoded + begin, &pending);
    const std::lock_guard<std::mutex> lock(mutex);
    parts.push_back({begin, size, pending});
  });
  std::sort(parts.begin(), parts.end(),
            [](const EncodedPart& a, const EncodedPart& b) {
              return a.begin < b.begin;
            });
  return Join(parts, encoded);
}

int64_t ZeroRunDecodeParts(const uint8_t* encoded, int64_t size, int64_t m,
                           int64_t cost, const ParallelFor& parallel_for,
                           const ZeroRunDecodePart& decode_part) {
  // Where the parts begin is found by the first that does not begin at 0, while
  // that one is decoded.
  std::vector<ZeroRunPosition> positions;
  std::once_flag once;
  const auto find_positions = [&] {
    positions.resize((m + kStep - 1) / kStep);
    if (!TF_GC_ACTIVE_TABLE(kZeroRunTable)
             .find_positions(encoded, size, m, kStep, positions.data())) {
      positions.clear();
    }
  };
  std::atomic<bool> fits(true);
  int64_t used = 0;
  ParallelForUnits(parallel_for, m, kStep, cost,
                   [&](int64_t begin, int64_t end) {
                     if (begin >= end) return;  // An empty part.
                     ZeroRunPosition position = {0, 0};
                     if (begin > 0) {
                       std::call_once(once, find_positions);
                       if (positions.empty()) {
                         fits = false;
                         return;
                       }
                       position = positions[begin / kStep];
                     }
                     if (!decode_part(begin, end, &position) ||
                         (end == m && position.pending > 0)) {
                       fits = false;
                     }
                     if (end == m) used = position.offset;
                   });
  return fits ? used : -1;
}

}  // namespace tf_gc::kernels
