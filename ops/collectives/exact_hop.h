// Uncompressed values at the hops of an all-reduce.

#ifndef TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_
#define TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "ops/collectives/hop.h"
#include "ops/wire/body.h"
#include "ops/wire/bytes.h"
#include "ops/wire/floats.h"
#include "ops/wire/status.h"

namespace tf_gc {

// One variable of the bucket; `reduced` may be `values`. Results are divided by
// `divisor`.
template <typename T>
struct Exact {
  const T* values;
  T* reduced;
  float divisor = 1;
  bool is_statistic = false;  // which may be rounded at each hop
};
using ExactVariable =
    std::variant<Exact<float>, Exact<Eigen::half>, Exact<Eigen::bfloat16>>;

// Values travel as they are, each in its variable's type. They are added in
// float32, and rounded at every hop that sends them.
class ExactHop : public Hop {
 public:
  explicit ExactHop(std::vector<ExactVariable> variables)
      : variables_(std::move(variables)) {
    for (const ExactVariable& variable : variables_) {
      is_mixed_ |= variable.index() != variables_[0].index();
      std::visit(
          [this](const auto& exact) {
            const int64_t size = sizeof(*exact.values);
            largest_ = std::max(largest_, size);
            suits_trees_ &= size == sizeof(float) || exact.is_statistic;
          },
          variable);
    }
  }

  const char* name() const override { return "uncompressed"; }
  std::vector<TopologyKind> topologies() const override {
    return {TopologyKind::kSharded, TopologyKind::kRing, TopologyKind::kTree,
            TopologyKind::kTorus};
  }
  Codec codec() const override {
    static constexpr Codec kCodecs[] = {Codec::kFloat32, Codec::kFloat16,
                                        Codec::kBfloat16};
    return is_mixed_ ? Codec::kMixedFloats : kCodecs[variables_[0].index()];
  }
  bool suits_trees() const override { return suits_trees_; }
  int64_t piece_values() const override {
    return (int64_t{4} << 20) / largest_;
  }
  int64_t MaxBodySize(const Piece& piece, Content) const override {
    return piece.values * largest_;
  }

  // The size of every body of the piece.
  int64_t BodySize(const Piece& piece) const {
    int64_t size = 0;
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      size += place.length * sizeof(*exact.values);
    });
    return size;
  }

  void Prepare(const BucketLayout& layout, int) override {
    sums_ = Bytes(layout.values() * sizeof(float));
  }

  // A merge follows, unless there is one rank alone.
  void Start(const Piece&) override { is_new_ = true; }

  absl::Status Merge(const Piece& piece, const Aggregate&, const uint8_t* body,
                     int64_t size) override {
    TF_GC_RETURN_IF_ERROR(CheckBodySize(name(), size, BodySize(piece)));
    const bool is_new = std::exchange(is_new_, false);
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      using T = std::decay_t<decltype(*exact.reduced)>;
      const T* const own = exact.values + place.begin;
      const uint8_t* const values = body + place.byte;
      float* const sum = sums() + place.sum;
      if (is_new) {
        for (int64_t i = 0; i < place.length; ++i) {
          sum[i] = ToFloat32(own[i]) +
                   ToFloat32(ReadNumber<T>(values + i * sizeof(T)));
        }
      } else {
        for (int64_t i = 0; i < place.length; ++i) {
          sum[i] += ToFloat32(ReadNumber<T>(values + i * sizeof(T)));
        }
      }
    });
    return absl::OkStatus();
  }

  int64_t Encode(const Piece& piece, const Aggregate& aggregate,
                 uint8_t* body) override {
    if (aggregate.ranks == 1) {
      // Even the bits of a NaN arrive; the divisor is that of one rank.
      EncodeOwn(piece, body);
    } else {
      EncodeSum(piece, aggregate.content == Content::kResult, body);
    }
    return BodySize(piece);
  }

  absl::Status Decode(const Piece& piece, const uint8_t* body,
                      int64_t size) override {
    TF_GC_RETURN_IF_ERROR(CheckBodySize(name(), size, BodySize(piece)));
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      std::memcpy(exact.reduced + place.begin, body + place.byte,
                  place.length * sizeof(*exact.reduced));
    });
    return absl::OkStatus();
  }

  void Count(const Piece& piece, int64_t /*size*/, int receivers,
             std::vector<VariableTraffic>* traffic) const override {
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      VariableTraffic& variable = (*traffic)[place.variable];
      variable.values += receivers * place.length;
      variable.bytes += receivers * place.length * sizeof(*exact.values);
    });
  }

 private:
  // A segment, and where it begins in the sums and in a body.
  struct Place : Segment {
    int64_t sum;
    int64_t byte;
  };

  // Calls work(variable, place) with the variable in its type. What its loops
  // read and write must not lie behind references: a compiler makes a function
  // for each type, and a byte that is written could be any of them.
  template <typename Work>
  void ForEachSegment(const Piece& piece, const Work& work) const {
    int64_t sum = piece.begin, byte = 0;
    for (const Segment& segment : piece.segments) {
      std::visit(
          [&](const auto& exact) {
            work(exact, Place{segment, sum, byte});
            byte += segment.length * sizeof(*exact.values);
          },
          variables_[segment.variable]);
      sum += segment.length;
    }
  }

  float* sums() const { return reinterpret_cast<float*>(sums_.data()); }

  void EncodeOwn(const Piece& piece, uint8_t* body) const {
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      std::memcpy(body + place.byte, exact.values + place.begin,
                  place.length * sizeof(*exact.values));
    });
  }

  void EncodeSum(const Piece& piece, bool is_result, uint8_t* body) const {
    ForEachSegment(piece, [&](const auto& exact, const Place& place) {
      using T = std::decay_t<decltype(*exact.reduced)>;
      const float divisor = is_result ? exact.divisor : 1;
      const float* const sum = sums() + place.sum;
      uint8_t* const values = body + place.byte;
      for (int64_t i = 0; i < place.length; ++i) {
        WriteNumber(FromFloat32<T>(sum[i] / divisor), values + i * sizeof(T));
      }
    });
  }

  const std::vector<ExactVariable> variables_;
  bool is_mixed_ = false;  // whether variables have different types
  int64_t largest_ = 0;    // of the types' sizes
  // Whether no gradient is of a type that would be rounded at each hop.
  bool suits_trees_ = true;
  bool is_new_ = false;  // whether the next merge is a piece's first
  // Of the bucket's values; where nothing is merged it is not touched, and so
  // takes no memory.
  Bytes sums_;
};

}  // namespace tf_gc

#endif  // TF_GC_OPS_COLLECTIVES_EXACT_HOP_H_
