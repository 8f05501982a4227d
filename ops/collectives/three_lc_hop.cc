#include "ops/collectives/three_lc_hop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/signs.h"
#include "ops/kernels/three_lc.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc {
namespace {

using kernels::Magnitudes;
using kernels::Reciprocals;
using kernels::ThreeLcDecode;
using kernels::ThreeLcDecodeAdd;
using kernels::ThreeLcEncode;
using kernels::ThreeLcScaling;
using kernels::Units;
using kernels::UnitsAt;

constexpr int64_t kScaleSize = sizeof(float);
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Reads the scales and payloads of a piece, one segment after the other.
class SegmentReader {
 public:
  SegmentReader(const Piece& piece, const uint8_t* body, int64_t size)
      : scales_(body),
        payload_(body + std::min(size, ScalesSize(piece))),
        end_(body + size),
        has_scales_(size >= ScalesSize(piece)) {}

  // Calls decode(payload, size, scale) -> bytes taken, or -1. A segment with
  // the scale NaN has no payload, and decode is not called. Scales follow from
  // `scaling`.
  template <typename Decode>
  absl::Status Next(const Segment& segment, ThreeLcScaling scaling,
                    float* scale, Decode decode) {
    if (!has_scales_) return Truncated(segment);
    *scale = ReadNumber<float>(scales_);
    scales_ += kScaleSize;
    if (std::isnan(*scale)) return absl::OkStatus();
    if (!IsScale(*scale) || *scale > scaling.largest_scale()) {
      return absl::DataLossError(absl::StrCat("3LC message: the scale of ",
                                              Name(segment), " is ", *scale));
    }
    const int64_t taken = decode(payload_, end_ - payload_, *scale);
    if (taken < 0) return Truncated(segment);
    payload_ += taken;
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    if (payload_ == end_) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("3LC message: ", end_ - payload_, " bytes too long"));
  }

 private:
  static int64_t ScalesSize(const Piece& piece) {
    return kScaleSize * static_cast<int64_t>(piece.segments.size());
  }
  static std::string Name(const Segment& segment) {
    return absl::StrCat("variable ", segment.variable, " of the bucket");
  }
  static absl::Status Truncated(const Segment& segment) {
    return absl::DataLossError(absl::StrCat("3LC message: the payload of ",
                                            Name(segment),
                                            " is truncated or corrupt"));
  }

  const uint8_t* scales_;
  const uint8_t* payload_;
  const uint8_t* const end_;
  const bool has_scales_;  // all of them
};

}  // namespace

ThreeLcHop::ThreeLcHop(std::vector<FeedbackVariable>* variables,
                       kernels::ThreeLcScaling scaling, float divisor,
                       CommitCallback commit, kernels::ParallelFor threads)
    : variables_(*variables),
      scaling_(scaling),
      divisor_(divisor),
      commit_(std::move(commit)),
      threads_(std::move(threads)),
      reciprocals_(variables->size()),
      scales_(variables->size()),
      non_finite_(variables->size()) {}

int64_t ThreeLcHop::MaxBodySize(const Piece& piece, Content content) const {
  int64_t size = content == Content::kContribution ? FlagBytes() : 0;
  for (const Segment& segment : piece.segments) {
    size += kScaleSize + kernels::QuarticSize(segment.length);
  }
  return size;
}

Units ThreeLcHop::UnitsOf(const Segment& segment) const {
  const FeedbackVariable& variable = variables_[segment.variable];
  if (variable.units == nullptr) return {};
  return UnitsAt(variable.units, variable.rows, variable.size / variable.rows,
                 segment.begin);
}

Units ThreeLcHop::WeightsOf(const Segment& segment) const {
  const FeedbackVariable& variable = variables_[segment.variable];
  if (variable.units == nullptr) return {};
  return UnitsAt(reciprocals_[segment.variable].data(), variable.rows,
                 variable.size / variable.rows, segment.begin);
}

void ThreeLcHop::Prepare(const BucketLayout& layout, int rank) {
  for (size_t v = 0; v < variables_.size(); ++v) {
    const FeedbackVariable& variable = variables_[v];
    if (variable.units == nullptr) continue;
    const Units units = UnitsOf({static_cast<int>(v), 0, variable.size});
    reciprocals_[v] = Reciprocals(units, variable.rows);
  }
  // The values that the rank serves itself are looked at, but do not count for
  // the scale: what is left of sums there is larger than what is sent.
  ranks_ = layout.ranks();
  std::vector<Magnitudes> sent(variables_.size());
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const Piece& piece : layout.shard(r)) {
      for (const Segment& segment : piece.segments) {
        const FeedbackVariable& variable = variables_[segment.variable];
        Magnitudes& measured = sent[segment.variable];
        const ThreeLcScaling scaling = ScalingOf(segment.variable);
        const bool is_sent = r != rank;
        if (variable.are_small &&
            (!is_sent || scaling.IsSettled(measured.largest))) {
          continue;
        }
        const Magnitudes found =
            Measure(scaling, segment, variable.values, variable.residual);
        if (is_sent || !std::isfinite(found.total)) measured.Add(found);
      }
    }
  }
  for (size_t v = 0; v < variables_.size(); ++v) {
    scales_[v] = kernels::ThreeLcScaleOf(ScalingOf(v), sent[v]);
    non_finite_[v] = std::isnan(scales_[v]);
  }
}

ThreeLcScaling ThreeLcHop::ScalingOf(int variable) const {
  return scaling_.For(UnitsOf({variable, 0, 0}));
}

Magnitudes ThreeLcHop::Measure(ThreeLcScaling scaling, const Segment& segment,
                               const float* values,
                               const float* residual) const {
  return kernels::ThreeLcMeasure(
      scaling, values + segment.begin,
      residual == nullptr ? nullptr : residual + segment.begin, segment.length,
      threads_, WeightsOf(segment), variables_[segment.variable].are_small);
}

int64_t ThreeLcHop::Encode(const Piece& piece, const Aggregate& aggregate,
                           uint8_t* body) {
  encoded_sizes_.clear();
  return aggregate.content == Content::kContribution
             ? EncodeContribution(piece, body)
             : EncodeSum(piece, body);
}

void ThreeLcHop::Count(const Piece& piece, int64_t, int receivers,
                       std::vector<VariableTraffic>* traffic) const {
  for (size_t s = 0; s < piece.segments.size(); ++s) {
    VariableTraffic& variable = (*traffic)[piece.segments[s].variable];
    variable.values += receivers * piece.segments[s].length;
    variable.bytes += receivers * encoded_sizes_[s];
  }
}

int64_t ThreeLcHop::EncodeContribution(const Piece& piece, uint8_t* body) {
  uint8_t* const flags = body;
  kernels::SignPackWhere(
      scales_.size(), [&](int64_t v) { return std::isnan(scales_[v]); }, flags);
  uint8_t* scales = flags + FlagBytes();
  uint8_t* payload = scales + kScaleSize * piece.segments.size();
  for (const Segment& segment : piece.segments) {
    const FeedbackVariable& variable = variables_[segment.variable];
    const float scale = scales_[segment.variable];
    WriteNumber(scale, scales);
    scales += kScaleSize;
    int64_t size = 0;
    if (!std::isnan(scale)) {
      size = ThreeLcEncode(
          variable.values + segment.begin, variable.residual + segment.begin,
          scale, segment.length, variable.new_residual + segment.begin, payload,
          threads_, UnitsOf(segment));
    }
    payload += size;
    encoded_sizes_.push_back(kScaleSize + size);
  }
  return payload - body;
}

void ThreeLcHop::Start(const Piece& piece) {
  for (const Segment& segment : piece.segments) {
    const FeedbackVariable& variable = variables_[segment.variable];
    threads_(segment.length, /*cost=*/1, [&](int64_t begin, int64_t end) {
      const int64_t first = segment.begin + begin;
      kernels::AddResidual(variable.values + first, variable.residual + first,
                           end - begin, variable.new_residual + first);
    });
  }
}

absl::Status ThreeLcHop::Merge(const Piece& piece, const Aggregate&,
                               const uint8_t* body, int64_t size) {
  if (size < FlagBytes()) {
    return absl::DataLossError("3LC message: the non-finite flags are missing");
  }
  TF_GC_RETURN_IF_ERROR(
      CheckSigns(name(), body, FlagBytes(), variables_.size()));
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (body[v / 8] >> (v % 8) & 1) non_finite_[v] = true;
  }
  SegmentReader reader(piece, body + FlagBytes(), size - FlagBytes());
  for (const Segment& segment : piece.segments) {
    float* const sum =
        variables_[segment.variable].new_residual + segment.begin;
    float scale = 0;
    TF_GC_RETURN_IF_ERROR(reader.Next(
        segment, ScalingOf(segment.variable), &scale,
        [&](const uint8_t* payload, int64_t payload_size, float s) {
          return ThreeLcDecodeAdd(payload, payload_size, s, segment.length, sum,
                                  threads_, UnitsOf(segment));
        }));
    if (std::isnan(scale) && !non_finite_[segment.variable]) {
      return absl::DataLossError(
          "3LC message: a scale is NaN without its non-finite flag");
    }
  }
  return reader.Finish();
}

float ThreeLcHop::SumScale(const Segment& segment) const {
  if (non_finite_[segment.variable]) return kNaN;
  const ThreeLcScaling scaling = ScalingOf(segment.variable).OfSum(ranks_);
  return kernels::ThreeLcScaleOf(
      scaling, Measure(scaling, segment,
                       variables_[segment.variable].new_residual, nullptr));
}

int64_t ThreeLcHop::EncodeSum(const Piece& piece, uint8_t* body) {
  uint8_t* scales = body;
  uint8_t* payload = scales + kScaleSize * piece.segments.size();
  for (const Segment& segment : piece.segments) {
    const FeedbackVariable& variable = variables_[segment.variable];
    float* const sum = variable.new_residual + segment.begin;
    const float scale = SumScale(segment);
    WriteNumber(scale / divisor_, scales);
    scales += kScaleSize;
    int64_t size = 0;
    if (!std::isnan(scale)) {
      size = ThreeLcEncode(sum, nullptr, scale, segment.length, sum, payload,
                           threads_, UnitsOf(segment));
      if (variable.round != nullptr) {
        KeepRounding(segment, payload, size, scale);
      }
    }
    payload += size;
    encoded_sizes_.push_back(kScaleSize + size);
  }
  return payload - body;
}

// What rounding will take from the values of a sum remains undelivered. A value
// that is too large for its type is delivered as infinity: if it remained, the
// sums of all later steps would be infinite, too.
void ThreeLcHop::KeepRounding(const Segment& segment, const uint8_t* payload,
                              int64_t size, float scale) const {
  const FeedbackVariable& variable = variables_[segment.variable];
  std::vector<float> values(segment.length);
  ThreeLcDecode(payload, size, scale / divisor_, segment.length, values.data(),
                threads_, UnitsOf(segment));
  std::vector<float> rounded = values;
  variable.round(rounded.data(), segment.length);
  float* const residual = variable.new_residual + segment.begin;
  for (int64_t i = 0; i < segment.length; ++i) {
    const float delivered = std::isfinite(rounded[i]) ? rounded[i] : values[i];
    residual[i] += divisor_ * (values[i] - delivered);
  }
}

absl::Status ThreeLcHop::Commit() { return commit_(non_finite_); }

absl::Status ThreeLcHop::Decode(const Piece& piece, const uint8_t* body,
                                int64_t size) {
  SegmentReader reader(piece, body, size);
  for (const Segment& segment : piece.segments) {
    float* const reduced = variables_[segment.variable].reduced + segment.begin;
    float scale = 0;
    TF_GC_RETURN_IF_ERROR(reader.Next(
        segment, ScalingOf(segment.variable).OfSum(ranks_), &scale,
        [&](const uint8_t* payload, int64_t payload_size, float s) {
          return ThreeLcDecode(payload, payload_size, s, segment.length,
                               reduced, threads_, UnitsOf(segment));
        }));
    if (!std::isnan(scale)) continue;
    const FeedbackVariable& variable = variables_[segment.variable];
    if (!non_finite_[segment.variable]) {
      // The sum alone has overflowed: the step has not happened, here or there.
      std::copy_n(variable.residual + segment.begin, segment.length,
                  variable.new_residual + segment.begin);
    }
    std::fill_n(reduced, segment.length, kNaN);
  }
  return reader.Finish();
}

}  // namespace tf_gc
