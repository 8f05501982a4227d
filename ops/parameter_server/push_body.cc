#include "ops/parameter_server/push_body.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/kernels/half.h"
#include "ops/kernels/second_moment.h"
#include "ops/kernels/units.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::ParallelFor;

// The largest finite bfloat16: what is rounded to infinity would be refused.
constexpr float kLargestStatistic = 0x1.fep127f;

float ReadStatistic(const uint8_t* body, int64_t i) {
  return kernels::Bfloat16ToFloat(
      ReadNumber<uint16_t>(body + i * sizeof(uint16_t)));
}

// The units that follow from the statistics of a body.
class UnitsOf {
 public:
  UnitsOf(const uint8_t* body, int64_t rows, int64_t n) : rows_(rows) {
    if (rows == 0) return;
    columns_ = n / rows;
    const std::vector<float> statistics = DecodeStatistics(body, rows, n);
    factors_.resize(statistics.size());
    kernels::SecondMomentUnits(statistics.data(), rows, columns_,
                               factors_.data());
  }

  kernels::Units view() const {
    if (rows_ == 0) return {};
    return {factors_.data(), factors_.data() + rows_, columns_, /*first=*/0};
  }

 private:
  const int64_t rows_;
  int64_t columns_ = 0;
  std::vector<float> factors_;
};

}  // namespace

std::vector<float> DecodeStatistics(const uint8_t* body, int64_t rows,
                                    int64_t n) {
  std::vector<float> statistics(StatisticsCount(rows, n));
  for (size_t i = 0; i < statistics.size(); ++i) {
    statistics[i] = ReadStatistic(body, i);
  }
  return statistics;
}

int64_t MaxPushSize(Codec codec, int64_t rows, int64_t n) {
  return StatisticsSize(rows, n) + MaxEncodedSize(codec, n);
}

Encoded EncodePushBody(Codec codec, kernels::ThreeLcScaling scaling,
                       int64_t rows, bool units,
                       const std::vector<float>& statistics,
                       const float* values, const float* residual, int64_t n,
                       float* new_residual, uint8_t* body,
                       const ParallelFor& parallel_for) {
  for (size_t i = 0; i < statistics.size(); ++i) {
    WriteNumber(
        kernels::FloatToBfloat16(std::min(statistics[i], kLargestStatistic)),
        body + i * sizeof(uint16_t));
  }
  const int64_t head = StatisticsSize(rows, n);
  const UnitsOf of_body(body, units ? rows : 0, n);
  Encoded encoded = Encode(codec, scaling, values, residual, n, new_residual,
                           body + head, parallel_for, of_body.view());
  encoded.size += head;
  return encoded;
}

absl::Status CheckPushBody(Codec codec, int64_t rows, const uint8_t* body,
                           int64_t size, int64_t n, const std::string& what,
                           const ParallelFor& parallel_for) {
  const int64_t head = StatisticsSize(rows, n);
  if (size < head) {
    return absl::DataLossError(absl::StrCat(what, " message: the body has ",
                                            size, " bytes, fewer than the ",
                                            head, " of its statistics"));
  }
  for (int64_t i = 0; i < StatisticsCount(rows, n); ++i) {
    const float statistic = ReadStatistic(body, i);
    if (!IsScale(statistic)) {
      return absl::DataLossError(
          absl::StrCat(what, " message: statistic ", i, " is ", statistic));
    }
  }
  return CheckBody(codec, body + head, size - head, n, what, parallel_for);
}

void DecodePushBody(Codec codec, int64_t rows, bool units, const uint8_t* body,
                    int64_t size, int64_t n, float* values,
                    const ParallelFor& parallel_for) {
  const int64_t head = StatisticsSize(rows, n);
  const UnitsOf of_body(body, units ? rows : 0, n);
  Decode(codec, body + head, size - head, n, values, parallel_for,
         of_body.view());
}

void DecodeAddPushBody(Codec codec, int64_t rows, bool units,
                       const uint8_t* body, int64_t size, int64_t n, float* sum,
                       const ParallelFor& parallel_for) {
  const int64_t head = StatisticsSize(rows, n);
  const UnitsOf of_body(body, units ? rows : 0, n);
  DecodeAdd(codec, body + head, size - head, n, sum, parallel_for,
            of_body.view());
}

}  // namespace tf_gc::parameter_server
