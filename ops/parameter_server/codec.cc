#include "ops/parameter_server/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/half.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/wire/body.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using kernels::ParallelFor;
using kernels::ParallelForUnits;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The values of a unit of work: what is between two passes over them stays in
// the first-level cache.
constexpr int64_t kUnit = 4096;

// Cycles per value.
constexpr int64_t kCost = 1;

constexpr int64_t kScaleSize = sizeof(float);
constexpr float kLargestInt8 = 127;

// ---- Strings

struct Name {
  const char* name;
  Codec codec;
};
constexpr Name kNames[] = {
    {"float32", Codec::kFloat32},   {"float16", Codec::kFloat16},
    {"bfloat16", Codec::kBfloat16}, {"int8", Codec::kInt8},
    {"three_lc", Codec::kThreeLc},  {"thc", Codec::kThcIndices}};

// The fields of a string, which are taken one by one.
class Fields {
 public:
  explicit Fields(std::string_view text)
      : text_(text),
        words_(absl::StrSplit(text, ' ', absl::SkipWhitespace())) {}

  absl::Status Error(std::string_view field, std::string_view problem) const {
    return absl::InvalidArgumentError(
        absl::StrCat("codec \"", text_, "\": ", field, " ", problem));
  }

  // The first word.
  std::string_view name() const {
    return words_.empty() ? std::string_view() : words_.front();
  }

  // Whether there is a word "key=value", which then is taken.
  bool Take(std::string_view key, std::string_view* value) {
    for (size_t i = 1; i < words_.size(); ++i) {
      const auto [left, right] = Split(words_[i]);
      if (left != key) continue;
      *value = right;
      words_.erase(words_.begin() + i);
      return true;
    }
    return false;
  }

  // What `read` makes of a field that must be there.
  template <typename T>
  absl::Status Read(std::string_view key, std::string_view allowed,
                    bool (*read)(std::string_view, T*), T* value) {
    std::string_view text;
    if (!Take(key, &text)) return Error(key, "is missing");
    if (read(text, value)) return absl::OkStatus();
    return Error(key, absl::StrCat("must be ", allowed, ", got ", text));
  }

  // No word is left but the first.
  absl::Status CheckAllTaken() const {
    if (words_.size() <= 1) return absl::OkStatus();
    return Error(Split(words_[1]).first, "is not a field of this codec");
  }

 private:
  static std::pair<std::string_view, std::string_view> Split(
      std::string_view word) {
    const size_t at = word.find('=');
    if (at == word.npos) return {word, {}};
    return {word.substr(0, at), word.substr(at + 1)};
  }

  const std::string_view text_;
  std::vector<std::string_view> words_;
};

bool ReadBits(std::string_view text, int* bits) {
  return absl::SimpleAtoi(text, bits) && kernels::IsPackableBits(*bits);
}

bool ReadPositive(std::string_view text, float* value) {
  return absl::SimpleAtof(text, value) && *value > 0 && std::isfinite(*value);
}

bool ReadSeed(std::string_view text, int64_t* seed) {
  return absl::SimpleAtoi(text, seed);
}

bool ReadFlag(std::string_view text, bool* flag) {
  *flag = text == "1";
  return *flag || text == "0";
}

bool ReadRounding(std::string_view text, bool* is_nearest) {
  *is_nearest = text == "nearest";
  return *is_nearest || text == "stochastic";
}

bool ReadTable(std::string_view text, std::vector<uint16_t>* table) {
  table->clear();
  for (const std::string_view word : absl::StrSplit(text, ',')) {
    int32_t value;
    const int32_t least = table->empty() ? 0 : table->back() + 1;
    if (!absl::SimpleAtoi(word, &value) || value < least ||
        value > kLargestThcSum) {
      return false;
    }
    table->push_back(static_cast<uint16_t>(value));
  }
  return table->front() == 0;
}

bool ReadRows(std::string_view text, int64_t* rows) {
  return absl::SimpleAtoi(text, rows) && *rows > 0;
}

bool ReadDecay(std::string_view text, float* decay) {
  return absl::SimpleAtof(text, decay) && *decay >= 0 && *decay < 1;
}

bool ReadScale(std::string_view text, kernels::ThreeLcScaling::Of* scale) {
  using Of = kernels::ThreeLcScaling::Of;
  *scale = text == "unit" ? Of::kUnit : text == "mean" ? Of::kMean : Of::kMax;
  return text == "unit" || text == "mean" || text == "max";
}

// The fields of 3LC, of which none need be there.
absl::Status ReadThreeLc(Fields* fields, CodecSpec* spec) {
  std::string_view scale, rows, units;
  if (fields->Take("scale", &scale) && !ReadScale(scale, &spec->scale)) {
    return fields->Error(
        "scale", absl::StrCat("must be max, mean or unit, got ", scale));
  }
  if (!fields->Take("rows", &rows)) return absl::OkStatus();
  if (!ReadRows(rows, &spec->rows)) {
    return fields->Error("rows", absl::StrCat("must be positive, got ", rows));
  }
  if (fields->Take("units", &units) && !ReadFlag(units, &spec->units)) {
    return fields->Error("units", absl::StrCat("must be 0 or 1, got ", units));
  }
  return fields->Read("decay", "in [0, 1)", ReadDecay, &spec->decay);
}

absl::Status ReadThc(Fields* fields, ThcSpec* thc) {
  int bits = 0;
  int64_t seed = 0;
  std::vector<uint16_t> table;
  absl::Status status =
      fields->Read("bits", "2, 3, 4, 5 or 8", ReadBits, &bits);
  status.Update(fields->Read("truncation", "positive and finite", ReadPositive,
                             &thc->truncation));
  status.Update(fields->Read("headroom", "positive and finite", ReadPositive,
                             &thc->headroom));
  status.Update(fields->Read("seed", "an integer", ReadSeed, &seed));
  status.Update(fields->Read("table", "integers from 0 that ascend to 65535",
                             ReadTable, &table));
  if (!status.ok()) return status;
  std::string_view rounding;
  if (fields->Take("rounding", &rounding) &&
      !ReadRounding(rounding, &thc->is_nearest)) {
    return fields->Error(
        "rounding",
        absl::StrCat("must be stochastic or nearest, got ", rounding));
  }
  if (table.size() != size_t{1} << bits) {
    return fields->Error(
        "table", absl::StrCat("must have 2^bits values, got ", table.size()));
  }
  thc->seed = static_cast<uint64_t>(seed);
  thc->table = kernels::ThcTable(std::move(table));
  return absl::OkStatus();
}

// ---- Values

// Bytes before the values, and of a value, of the codecs of which every value
// has its own bytes: all but 3LC.
int64_t HeadSize(Codec codec) { return codec == Codec::kInt8 ? kScaleSize : 0; }
int64_t ValueSize(Codec codec) {
  switch (codec) {
    case Codec::kFloat32:
      return 4;
    case Codec::kInt8:
      return 1;
    default:
      return 2;
  }
}

// The largest |value| that a body stands for if the largest |t| is this one.
float LargestDelivered(Codec codec, float max) {
  switch (codec) {
    case Codec::kFloat16:
      return kernels::HalfToFloat(kernels::FloatToHalf(max));
    case Codec::kBfloat16:
      return kernels::Bfloat16ToFloat(kernels::FloatToBfloat16(max));
    default:
      return max;
  }
}

// The bodies of some values, which become what these do not deliver.

template <uint16_t (*kToBits)(float), float (*kToFloat)(uint16_t)>
void EncodeWords(float* values, int64_t n, uint8_t* body) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = kToBits(values[i]);
    WriteNumber(bits, body + 2 * i);
    values[i] -= kToFloat(bits);
  }
}

void EncodeFloats(float* values, int64_t n, uint8_t* body) {
  std::memcpy(body, values, n * sizeof(float));
  std::fill_n(values, n, 0.0f);
}

void EncodeInt8(float max, float* values, int64_t n, uint8_t* body) {
  // Whatever is divided by it is 0.
  const float divisor = max == 0 ? 1 : max;
  const float step = max / kLargestInt8;
  for (int64_t i = 0; i < n; ++i) {
    const float q = std::rint(values[i] / divisor * kLargestInt8);
    body[i] = static_cast<uint8_t>(static_cast<int8_t>(q));
    values[i] -= step * q;
  }
}

void EncodeUnit(Codec codec, float max, float* values, int64_t n,
                uint8_t* body) {
  switch (codec) {
    case Codec::kFloat16:
      return EncodeWords<kernels::FloatToHalf, kernels::HalfToFloat>(values, n,
                                                                     body);
    case Codec::kBfloat16:
      return EncodeWords<kernels::FloatToBfloat16, kernels::Bfloat16ToFloat>(
          values, n, body);
    case Codec::kInt8:
      return EncodeInt8(max, values, n, body);
    default:
      return EncodeFloats(values, n, body);
  }
}

template <float (*kToFloat)(uint16_t)>
void AddWords(const uint8_t* body, int64_t n, float* sum) {
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += kToFloat(ReadNumber<uint16_t>(body + 2 * i));
  }
}

void AddFloats(const uint8_t* body, int64_t n, float* sum) {
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += ReadNumber<float>(body + sizeof(float) * i);
  }
}

void AddInt8(float max, const uint8_t* body, int64_t n, float* sum) {
  const float step = max / kLargestInt8;
  for (int64_t i = 0; i < n; ++i) {
    sum[i] += step * static_cast<float>(static_cast<int8_t>(body[i]));
  }
}

void AddUnit(Codec codec, float max, const uint8_t* body, int64_t n,
             float* sum) {
  switch (codec) {
    case Codec::kFloat16:
      return AddWords<kernels::HalfToFloat>(body, n, sum);
    case Codec::kBfloat16:
      return AddWords<kernels::Bfloat16ToFloat>(body, n, sum);
    case Codec::kInt8:
      return AddInt8(max, body, n, sum);
    default:
      return AddFloats(body, n, sum);
  }
}

// Calls work(first, length) for parts of at most kUnit values.
template <typename Work>
void ForEachUnit(int64_t n, const ParallelFor& parallel_for, Work work) {
  ParallelForUnits(parallel_for, n, kUnit, kCost,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t first = begin; first < end; first += kUnit) {
                       work(first, std::min(kUnit, end - first));
                     }
                   });
}

void FillNan(int64_t n, float* values, const ParallelFor& parallel_for) {
  ForEachUnit(n, parallel_for, [=](int64_t first, int64_t length) {
    std::fill_n(values + first, length, kNan);
  });
}

// Adds to values, or writes them.
template <bool add>
void DecodeTo(Codec codec, const uint8_t* body, int64_t size, int64_t n,
              float* values, const ParallelFor& parallel_for,
              const kernels::Units& units) {
  const kernels::KeepDenormals keep_denormals;
  const int64_t head = codec == Codec::kThreeLc ? kScaleSize : HeadSize(codec);
  const float scale = head > 0 ? ReadNumber<float>(body) : 0;
  body += head;
  if (std::isnan(scale)) return FillNan(n, values, parallel_for);
  if (codec == Codec::kThreeLc) {
    constexpr auto kDecode =
        add ? kernels::ThreeLcDecodeAdd : kernels::ThreeLcDecode;
    kDecode(body, size - head, scale, n, values, parallel_for, units);
    return;
  }
  ForEachUnit(n, parallel_for, [=](int64_t first, int64_t length) {
    if (!add) std::fill_n(values + first, length, -0.0f);  // -0 + x is x
    AddUnit(codec, scale, body + first * ValueSize(codec), length,
            values + first);
  });
}

void KeepResidual(const float* residual, int64_t n, float* new_residual) {
  if (residual == nullptr) {
    std::fill_n(new_residual, n, 0.0f);
  } else {
    std::memmove(new_residual, residual, n * sizeof(float));
  }
}

// The codecs of which every value has its own bytes.
Encoded EncodeValues(Codec codec, const float* values, const float* residual,
                     int64_t n, float* new_residual, uint8_t* body,
                     const ParallelFor& parallel_for) {
  const float max = kernels::MaxAbsSum(values, residual, n, parallel_for);
  const bool is_finite = std::isfinite(LargestDelivered(codec, max));
  const int64_t head = HeadSize(codec);
  const float scale = is_finite ? max : kNan;
  if (head > 0) WriteNumber(scale, body);
  if (is_finite || head == 0) {
    ForEachUnit(n, parallel_for, [=](int64_t first, int64_t length) {
      float t[kUnit];
      if (residual == nullptr) {
        std::copy_n(values + first, length, t);
      } else {
        kernels::AddResidual(values + first, residual + first, length, t);
      }
      EncodeUnit(codec, scale, t, length,
                 body + head + first * ValueSize(codec));
      if (is_finite) std::copy_n(t, length, new_residual + first);
    });
  }
  if (is_finite) return {head + n * ValueSize(codec), true};
  KeepResidual(residual, n, new_residual);
  return {head > 0 ? head : n * ValueSize(codec), false};
}

absl::Status CheckThreeLc(const uint8_t* body, int64_t size, int64_t n,
                          const std::string& what,
                          const ParallelFor& parallel_for) {
  const char* error = kernels::ThreeLcCheckTensor(body, size, n);
  if (error == nullptr && !std::isnan(ReadNumber<float>(body))) {
    const int64_t payload_size = size - kScaleSize;
    error = kernels::ThreeLcCheckUsed(
        kernels::ThreeLcValidate(body + kScaleSize, payload_size, n,
                                 parallel_for),
        payload_size);
  }
  if (error == nullptr) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(what, " message: the 3LC body ", error));
}

}  // namespace

absl::Status ParseCodecSpec(std::string_view text, CodecSpec* spec) {
  Fields fields(text);
  *spec = CodecSpec();
  spec->text = std::string(text);
  const auto* const name =
      std::find_if(std::begin(kNames), std::end(kNames),
                   [&](const Name& n) { return n.name == fields.name(); });
  if (name == std::end(kNames)) {
    return fields.Error("the name",
                        "must be float32, float16, bfloat16, int8, three_lc "
                        "or thc");
  }
  spec->codec = name->codec;
  if (spec->codec == Codec::kThcIndices) {
    TF_GC_RETURN_IF_ERROR(ReadThc(&fields, &spec->thc));
  }
  if (spec->codec == Codec::kThreeLc) {
    TF_GC_RETURN_IF_ERROR(ReadThreeLc(&fields, spec));
  }
  std::string_view feedback;
  if (fields.Take("feedback", &feedback) &&
      !ReadFlag(feedback, &spec->feedback)) {
    return fields.Error("feedback",
                        absl::StrCat("must be 0 or 1, got ", feedback));
  }
  return fields.CheckAllTaken();
}

absl::Status MakeScaling(const CodecSpec& spec, float multiplier,
                         const std::string& variable,
                         kernels::ThreeLcScaling* scaling) {
  *scaling = {multiplier, spec.scale};
  if (spec.codec != Codec::kThreeLc || scaling->IsValid()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "multipliers: that of variable ", variable, " must be in (0, ",
      scaling->limit(), "), got ", multiplier));
}

int64_t MaxEncodedSize(Codec codec, int64_t n) {
  if (codec == Codec::kThreeLc) return kernels::ThreeLcTensorBufferSize(n);
  return HeadSize(codec) + n * ValueSize(codec);
}

Encoded Encode(Codec codec, kernels::ThreeLcScaling scaling,
               const float* values, const float* residual, int64_t n,
               float* new_residual, uint8_t* body,
               const ParallelFor& parallel_for, const kernels::Units& units) {
  const kernels::KeepDenormals keep_denormals;
  if (codec != Codec::kThreeLc) {
    return EncodeValues(codec, values, residual, n, new_residual, body,
                        parallel_for);
  }
  const int64_t size = kernels::ThreeLcEncodeTensor(
      values, residual, scaling, n, new_residual, body, parallel_for, units);
  return {size, !std::isnan(ReadNumber<float>(body))};
}

absl::Status CheckBody(Codec codec, const uint8_t* body, int64_t size,
                       int64_t n, const std::string& what,
                       const ParallelFor& parallel_for) {
  if (codec == Codec::kThreeLc) {
    return CheckThreeLc(body, size, n, what, parallel_for);
  }
  const int64_t head = HeadSize(codec);
  if (head > 0 && size == head && std::isnan(ReadNumber<float>(body))) {
    return absl::OkStatus();
  }
  TF_GC_RETURN_IF_ERROR(CheckBodySize(what, size, head + n * ValueSize(codec)));
  if (head == 0 || IsScale(ReadNumber<float>(body))) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(what, " message: the scale is ", ReadNumber<float>(body)));
}

void Decode(Codec codec, const uint8_t* body, int64_t size, int64_t n,
            float* values, const ParallelFor& parallel_for,
            const kernels::Units& units) {
  DecodeTo</*add=*/false>(codec, body, size, n, values, parallel_for, units);
}

void DecodeAdd(Codec codec, const uint8_t* body, int64_t size, int64_t n,
               float* sum, const ParallelFor& parallel_for,
               const kernels::Units& units) {
  DecodeTo</*add=*/true>(codec, body, size, n, sum, parallel_for, units);
}

}  // namespace tf_gc::parameter_server
