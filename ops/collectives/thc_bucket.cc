#include "ops/collectives/thc_bucket.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/signs.h"
#include "ops/kernels/three_lc.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

using kernels::ThcBlocks;
using kernels::ThcPart;

constexpr int64_t kNormSize = sizeof(float);
// Processor cycles, about, that a value takes to be read and measured.
constexpr int64_t kMeasureCost = 2;
// What else quantising and delivering do to a value, in cycles.
constexpr int64_t kFeedbackCost = 4;

// A row's or column's unit is at least so much of their root mean square. A
// row that comes again after long would have values of hundreds of units, and
// the errors of its whole block would be as large as that.
constexpr float kLeastUnit = 0.1f;

constexpr char kName[] = "THC statistics";

void RaiseUnits(float* units, int64_t n) {
  double squares = 0;  // one by one, so that all processors have the same bits
  for (int64_t i = 0; i < n; ++i) squares += double{units[i]} * units[i];
  const float least = kLeastUnit * static_cast<float>(std::sqrt(squares / n));
  for (int64_t i = 0; i < n; ++i) units[i] = std::max(units[i], least);
}

// The largest unit of a variable.
double LargestUnit(const FeedbackVariable& variable) {
  if (variable.units == nullptr) return 1;
  const float* const columns = variable.units + variable.rows;
  return double{*std::max_element(variable.units, columns)} *
         *std::max_element(columns, columns + variable.size / variable.rows);
}

}  // namespace

ThcBlocks ThcBucketBlocks(int64_t n, int ranks) {
  int64_t largest = ThcBlocks::kCached;
  while (largest < 16 * 32 * ranks && largest < ThcBlocks::kLargest) {
    largest *= 2;
  }
  return ThcBlocks::OfAtMost(largest, n);
}

ThcBucket::ThcBucket(std::vector<FeedbackVariable>* variables, ThcScheme scheme,
                     int ranks, float divisor, kernels::ParallelFor threads)
    : variables_(*variables),
      scheme_(std::move(scheme)),
      ranks_(ranks),
      divisor_(divisor),
      threads_(std::move(threads)),
      begins_(1),
      blocks_(0),
      zero_here_(variables->size()),
      non_finite_(variables->size()) {
  for (FeedbackVariable& variable : *variables) {
    begins_.push_back(begins_.back() + variable.size);
    if (variable.units == nullptr) continue;
    const int64_t rows = variable.rows, columns = variable.size / rows;
    std::vector<float>& units =
        units_.emplace_back(variable.units, variable.units + rows + columns);
    RaiseUnits(units.data(), rows);
    RaiseUnits(units.data() + rows, columns);
    variable.units = units.data();
  }
  blocks_ = ThcBucketBlocks(begins_.back(), ranks);
  limits_.resize(blocks_.count);
}

int64_t ThcBucket::PartSize(int64_t first) const {
  return std::min(part(), padded() - first);
}

ThcPart ThcBucket::PartAt(int64_t first) const {
  return ThcPart(blocks_, limits_.data(), scheme_.signs, first,
                 PartSize(first));
}

template <typename Work>
void ThcBucket::ForEachSegment(int64_t first, int64_t n,
                               const Work& work) const {
  const int64_t end = std::min(first + n, begins_.back());
  size_t v = std::upper_bound(begins_.begin(), begins_.end(), first) -
             begins_.begin() - 1;
  for (int64_t i = first; i < end; ++v) {
    const int64_t length = std::min(end, begins_[v + 1]) - i;
    if (length == 0) continue;
    work(Segment{static_cast<int>(v), i - begins_[v], length, i - first});
    i += length;
  }
}

template <typename Work>
void ThcBucket::ForEachUnit(const Segment& segment, const Work& work) const {
  const FeedbackVariable& variable = variables_[segment.variable];
  if (variable.units == nullptr) return;
  const float* const columns = variable.units + variable.rows;
  const int64_t width = variable.size / variable.rows;
  for (int64_t i = 0; i < segment.length;) {
    const int64_t place = segment.begin + i;
    const int64_t column = place % width;
    const int64_t length = std::min(width - column, segment.length - i);
    work(variable.units[place / width], columns + column, segment.offset + i,
         length);
    i += length;
  }
}

void ThcBucket::FromUnits(const Segment& segment, float* part) const {
  ForEachUnit(segment, [=](float row, const float* columns, int64_t offset,
                           int64_t length) {
    kernels::MultiplyByUnits(part + offset, length, row, columns);
  });
}

void ThcBucket::Gather(int64_t first, int64_t n, float* t) const {
  const int64_t used = std::clamp<int64_t>(begins_.back() - first, 0, n);
  std::fill(t + used, t + n, 0.0f);
  ForEachSegment(first, n, [&](const Segment& segment) {
    const FeedbackVariable& variable = variables_[segment.variable];
    if (zero_here_[segment.variable]) {
      std::fill_n(t + segment.offset, segment.length, 0.0f);
    } else {
      kernels::AddResidual(variable.values + segment.begin,
                           variable.residual + segment.begin, segment.length,
                           t + segment.offset);
    }
  });
}

void ThcBucket::ToUnits(int64_t first, int64_t n, float* t) const {
  ForEachSegment(first, n, [&](const Segment& segment) {
    ForEachUnit(segment, [=](float row, const float* columns, int64_t offset,
                             int64_t length) {
      kernels::DivideByUnits(t + offset, length, row, columns);
    });
  });
}

bool ThcBucket::Measure(std::vector<float>* norms) {
  constexpr int64_t kPart = ThcBlocks::kCached;
  const int64_t n = std::min(kPart, blocks_.size);
  std::vector<std::atomic<bool>> is_non_finite(variables_.size());
  threads_(blocks_.count, blocks_.size * kMeasureCost,
           [&](int64_t begin, int64_t end) {
             float t[kPart];
             for (int64_t block = begin; block < end; ++block) {
               double total = 0;
               for (int64_t i = 0; i < blocks_.size; i += n) {
                 const int64_t first = block * blocks_.size + i;
                 Gather(first, n, t);
                 double squares = 0;
                 ForEachSegment(first, n, [&](const Segment& segment) {
                   const double more = kernels::SumOfSquares(t + segment.offset,
                                                             segment.length);
                   if (!std::isfinite(more)) {
                     is_non_finite[segment.variable] = true;
                   }
                   squares += more;
                 });
                 if (!units_.empty()) {
                   ToUnits(first, n, t);
                   squares = kernels::SumOfSquares(t, n);
                 }
                 total += squares;
               }
               (*norms)[block] = static_cast<float>(std::sqrt(total));
             }
           });
  bool found = false;
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (!is_non_finite[v]) continue;
    zero_here_[v] = found = true;
  }
  return !found;
}

int64_t ThcBucket::statistics_size() const {
  return kernels::SignPackedSize(variables_.size()) + blocks_.count * kNormSize;
}

std::vector<uint8_t> ThcBucket::Statistics() {
  std::vector<float> norms(blocks_.count);
  while (!Measure(&norms)) {
    // Again, with zeros in place of what is not finite.
  }
  std::vector<uint8_t> message(statistics_size());
  kernels::SignPackWhere(
      variables_.size(), [&](int64_t v) { return !zero_here_[v]; },
      message.data());
  const int64_t flags = kernels::SignPackedSize(variables_.size());
  for (int64_t block = 0; block < blocks_.count; ++block) {
    WriteNumber(norms[block], message.data() + flags + block * kNormSize);
  }
  return message;
}

absl::Status ThcBucket::Read(const Bytes& statistics,
                             std::vector<float>* norms) {
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(kName, statistics.size(), statistics_size()));
  const int64_t variables = variables_.size();
  const int64_t flags = kernels::SignPackedSize(variables);
  TF_GC_RETURN_IF_ERROR(CheckSigns(kName, statistics.data(), flags, variables));
  for (int64_t v = 0; v < variables; ++v) {
    if ((statistics.data()[v / 8] >> v % 8 & 1) == 0) non_finite_[v] = true;
  }
  for (int64_t block = 0; block < blocks_.count; ++block) {
    const float norm =
        ReadNumber<float>(statistics.data() + flags + block * kNormSize);
    if (!(norm >= 0)) {
      return absl::DataLossError(absl::StrCat(
          kName, " message: the norm of block ", block, " is ", norm));
    }
    (*norms)[block] = std::max((*norms)[block], norm);
  }
  return absl::OkStatus();
}

absl::Status ThcBucket::Agree(const std::vector<Bytes>& statistics) {
  std::vector<float> norms(blocks_.count);
  for (size_t rank = 0; rank < statistics.size(); ++rank) {
    TF_GC_RETURN_IF_ERROR(
        From(absl::StrCat("rank ", rank), Read(statistics[rank], &norms)));
  }
  const float factor = static_cast<float>(
      scheme_.truncation / std::sqrt(static_cast<double>(blocks_.size)));
  for (int64_t block = 0; block < blocks_.count; ++block) {
    limits_[block] = factor * norms[block];
  }
  FindOverflow();
  return absl::OkStatus();
}

void ThcBucket::FindOverflow() {
  double unit = 1;
  for (const FeedbackVariable& variable : variables_) {
    unit = std::max(unit, LargestUnit(variable));
  }
  // No partial sum of the transform of what all ranks have in a block is larger
  // than M times this.
  const double values = unit * ranks_ * static_cast<double>(blocks_.size);
  for (int64_t block = 0; block < blocks_.count; ++block) {
    if (limits_[block] * values <= std::numeric_limits<float>::max()) continue;
    ForEachSegment(block * blocks_.size, blocks_.size,
                   [&](const Segment& s) { non_finite_[s.variable] = true; });
  }
}

void ThcBucket::Quantize(uint8_t* packed) {
  const int64_t parts = (padded() + part() - 1) / part();
  threads_(parts,
           part() * (kernels::kThcQuantizeCost + kernels::kThcDecodeCost +
                     kFeedbackCost),
           [&](int64_t begin, int64_t end) {
             const std::unique_ptr<float[]> room(new float[2 * part()]);
             // From the end, which was measured last, and may still be in a
             // cache.
             for (int64_t i = begin; i < end; ++i) {
               const int64_t first = (parts - 1 - i) * part();
               QuantizePart(PartAt(first), PartSize(first), room.get(),
                            packed + kernels::PackedSize(first, table().bits));
             }
           });
}

void ThcBucket::QuantizePart(const ThcPart& part, int64_t n, float* room,
                             uint8_t* packed) {
  float* const t = room;
  float* const delivered = room + n;
  Gather(part.first(), n, t);
  const float* in_units = t;
  if (!units_.empty()) {
    std::copy_n(t, n, delivered);
    ToUnits(part.first(), n, delivered);
    in_units = delivered;
  }
  part.Quantize(table(), scheme_.rounding, in_units, delivered, packed);
  part.Decode(table(), packed, delivered);
  ForEachSegment(part.first(), n, [&](const Segment& segment) {
    FromUnits(segment, delivered);
    kernels::Subtract(
        t + segment.offset, delivered + segment.offset, segment.length,
        variables_[segment.variable].new_residual + segment.begin);
  });
}

template <typename Lane>
void ThcBucket::Deliver(int64_t first, const Lane* sums, float* room) {
  float* const total = RoomFor(first, room);
  PartAt(first).DecodeSums(sums + first, table().granularity(), ranks_, total);
  ForEachSegment(first, PartSize(first), [&](const Segment& segment) {
    float* const reduced = variables_[segment.variable].reduced + segment.begin;
    if (non_finite_[segment.variable]) {
      std::fill_n(reduced, segment.length,
                  std::numeric_limits<float>::quiet_NaN());
      return;
    }
    FromUnits(segment, total);
    if (total == room || divisor_ != 1) {
      kernels::Divide(total + segment.offset, segment.length, divisor_,
                      reduced);
    }
    KeepRounding(segment, total + segment.offset);
  });
}

// Where the reduced values of one variable will be, if they are all of a part.
float* ThcBucket::RoomFor(int64_t first, float* room) const {
  float* place = room;
  ForEachSegment(first, PartSize(first), [&](const Segment& segment) {
    const FeedbackVariable& variable = variables_[segment.variable];
    if (segment.length == PartSize(first) && variable.round == nullptr) {
      place = variable.reduced + segment.begin;
    }
  });
  return place;
}

// A rank's share of what rounding will take from the sums remains undelivered.
// A sum that is too large for its type is delivered as infinity: if it
// remained, those of all later steps would be infinite, too.
void ThcBucket::KeepRounding(const Segment& segment, const float* total) const {
  const FeedbackVariable& variable = variables_[segment.variable];
  if (variable.round == nullptr) return;
  const float* const reduced = variable.reduced + segment.begin;
  std::vector<float> rounded(reduced, reduced + segment.length);
  variable.round(rounded.data(), segment.length);
  const float share = 1.0f / ranks_;
  float* const residual = variable.new_residual + segment.begin;
  for (int64_t i = 0; i < segment.length; ++i) {
    const float delivered =
        std::isfinite(rounded[i]) ? divisor_ * rounded[i] : total[i];
    residual[i] += share * (total[i] - delivered);
  }
}

template void ThcBucket::Deliver(int64_t, const uint8_t*, float*);
template void ThcBucket::Deliver(int64_t, const uint16_t*, float*);

}  // namespace tf_gc
