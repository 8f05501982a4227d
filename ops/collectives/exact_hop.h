// Uncompressed values at the hops of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_
#define TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/hop.h"

namespace tf_gc {

// One variable of the bucket; `reduced` may be `values`.
template <typename T>
struct ExactVariable {
  const T* values;
  T* reduced;
};

// Values travel as they are (float, Eigen::half or Eigen::bfloat16), are added
// in float32 and rounded once. Sums are divided by `divisor`.
template <typename T>
class ExactHop : public Hop {
 public:
  ExactHop(std::vector<ExactVariable<T>> variables, float divisor)
      : Hop(variables.size()),
        variables_(std::move(variables)),
        divisor_(divisor) {}

  Codec codec() const override;
  int64_t piece_values() const override {
    return (int64_t{4} << 20) / sizeof(T);
  }
  int64_t MaxBodySize(const Piece& piece, Phase) const override {
    return piece.values * sizeof(T);
  }

  void Prepare(const BucketLayout&, int) override {}

  int64_t EncodeContribution(const Piece& piece, uint8_t* body) override {
    for (const Segment& segment : piece.segments) {
      const int64_t bytes = segment.length * sizeof(T);
      std::memcpy(body, Values(segment), bytes);
      CountBytes(Phase::kContribution, segment.variable, bytes);
      body += bytes;
    }
    return piece.values * sizeof(T);
  }

  void StartSum(const Piece& piece) override {
    sum_.resize(piece.values);
    float* sum = sum_.data();
    for (const Segment& segment : piece.segments) {
      const T* const values = Values(segment);
      for (int64_t i = 0; i < segment.length; ++i) {
        sum[i] = static_cast<float>(values[i]);
      }
      sum += segment.length;
    }
  }

  absl::Status AddContribution(const Piece& piece, const uint8_t* body,
                               int64_t size) override {
    const absl::Status checked = CheckSize(piece, size);
    if (!checked.ok()) return checked;
    for (int64_t i = 0; i < piece.values; ++i) {
      T value;
      std::memcpy(&value, body + i * sizeof(T), sizeof(T));
      sum_[i] += static_cast<float>(value);
    }
    return absl::OkStatus();
  }

  int64_t EncodeSum(const Piece& piece, uint8_t* body) override {
    for (int64_t i = 0; i < piece.values; ++i) {
      const T value = static_cast<T>(sum_[i] / divisor_);
      std::memcpy(body + i * sizeof(T), &value, sizeof(T));
    }
    for (const Segment& segment : piece.segments) {
      CountBytes(Phase::kSum, segment.variable, segment.length * sizeof(T));
    }
    return piece.values * sizeof(T);
  }

  absl::Status Commit() override { return absl::OkStatus(); }

  absl::Status DecodeSum(const Piece& piece, const uint8_t* body,
                         int64_t size) override {
    const absl::Status checked = CheckSize(piece, size);
    if (!checked.ok()) return checked;
    for (const Segment& segment : piece.segments) {
      const int64_t bytes = segment.length * sizeof(T);
      std::memcpy(variables_[segment.variable].reduced + segment.begin, body,
                  bytes);
      body += bytes;
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckSize(const Piece& piece, int64_t size) {
    const int64_t expected = piece.values * sizeof(T);
    if (size == expected) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("uncompressed message: the body has ", size,
                     " bytes, expected ", expected));
  }

  const T* Values(const Segment& segment) const {
    return variables_[segment.variable].values + segment.begin;
  }

  std::vector<ExactVariable<T>> variables_;
  const float divisor_;
  std::vector<float> sum_;  // of the piece at hand
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
