// Uncompressed values at the hops of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_
#define TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "ops/collectives/hop.h"
#include "ops/wire/body.h"
#include "ops/wire/floats.h"
#include "ops/wire/status.h"

namespace tf_gc {

// One variable of the bucket; `reduced` may be `values`.
template <typename T>
struct ExactVariable {
  const T* values;
  T* reduced;
};

// Values travel as they are (float, Eigen::half or Eigen::bfloat16). They are
// added in float32, and rounded at every hop that sends them. Results are
// divided by `divisor`.
template <typename T>
class ExactHop : public Hop {
 public:
  ExactHop(std::vector<ExactVariable<T>> variables, float divisor)
      : variables_(std::move(variables)), divisor_(divisor) {}

  const char* name() const override { return "uncompressed"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kSharded, TopologyKind::kRing, TopologyKind::kTree,
            TopologyKind::kTorus};
  }
  Codec codec() const override;
  int64_t piece_values() const override {
    return (int64_t{4} << 20) / sizeof(T);
  }
  int64_t MaxBodySize(const Piece& piece, Content) const override {
    return piece.values * sizeof(T);
  }

  void Prepare(const BucketLayout& layout, int) override {
    sums_.reset(new float[layout.values()]);
  }

  void Start(const Piece& piece) override {
    float* sum = Sum(piece);
    for (const Segment& segment : piece.segments) {
      const T* const values = Values(segment);
      for (int64_t i = 0; i < segment.length; ++i) {
        sum[i] = ToFloat32(values[i]);
      }
      sum += segment.length;
    }
  }

  absl::Status Merge(const Piece& piece, const Aggregate&, const uint8_t* body,
                     int64_t size) override {
    TF_GC_RETURN_IF_ERROR(CheckSize(piece, size));
    float* const sum = Sum(piece);
    for (int64_t i = 0; i < piece.values; ++i) {
      sum[i] += ToFloat32(ReadNumber<T>(body + i * sizeof(T)));
    }
    return absl::OkStatus();
  }

  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override {
    if (aggregate.ranks == 1) {
      // Even the bits of a NaN arrive; the divisor is that of one rank.
      EncodeOwn(piece, body);
    } else {
      EncodeSum(piece, aggregate.content == Content::kResult ? divisor_ : 1,
                body);
    }
    return piece.values * sizeof(T);
  }

  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override {
    TF_GC_RETURN_IF_ERROR(CheckSize(piece, size));
    for (const Segment& segment : piece.segments) {
      const int64_t bytes = segment.length * sizeof(T);
      std::memcpy(variables_[segment.variable].reduced + segment.begin, body,
                  bytes);
      body += bytes;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckSize(const Piece& piece, int64_t size) const {
    return CheckBodySize(name(), size, piece.values * sizeof(T));
  }

  const T* Values(const Segment& segment) const {
    return variables_[segment.variable].values + segment.begin;
  }
  float* Sum(const Piece& piece) const { return sums_.get() + piece.begin; }

  void EncodeOwn(const Piece& piece, uint8_t* body) const {
    for (const Segment& segment : piece.segments) {
      const int64_t bytes = segment.length * sizeof(T);
      std::memcpy(body, Values(segment), bytes);
      body += bytes;
    }
  }

  void EncodeSum(const Piece& piece, float divisor, uint8_t* body) const {
    const float* const sum = Sum(piece);
    for (int64_t i = 0; i < piece.values; ++i) {
      WriteNumber(FromFloat32<T>(sum[i] / divisor), body + i * sizeof(T));
    }
  }

  std::vector<ExactVariable<T>> variables_;
  const float divisor_;
  // Of the bucket's values; where nothing is merged it is not touched, and so
  // takes no memory.
  std::unique_ptr<float[]> sums_;
};

template <>
inline Codec ExactHop<float>::codec() const {
  return Codec::kFloat32;
}
template <>
inline Codec ExactHop<Eigen::half>::codec() const {
  return Codec::kFloat16;
}
template <>
inline Codec ExactHop<Eigen::bfloat16>::codec() const {
  return Codec::kBfloat16;
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_
