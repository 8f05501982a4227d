#include "ops/parameter_server/thc.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/table_sum.h"
#include "ops/kernels/three_lc.h"
#include "ops/parameter_server/buffers.h"
#include "ops/wire/body.h"
#include "ops/wire/seeds.h"
#include "ops/wire/status.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::Tensor;

// The values of a unit of work: whole bytes of packed indices.
constexpr int64_t kUnit = 4096;

// Cycles per value.
constexpr int64_t kCost = 1;

constexpr int64_t kNormSize = sizeof(float);
constexpr int64_t kVersionSize = sizeof(int64_t);

// Calls work(block, its first value, how many of them are no padding).
template <typename Work>
void ForEachBlock(const ThcBlocks& blocks, int64_t n,
                  const kernels::ParallelFor& parallel_for, Work work) {
  parallel_for(blocks.count, blocks.size * kCost,
               [&](int64_t begin, int64_t end) {
                 for (int64_t b = begin; b < end; ++b) {
                   const int64_t first = b * blocks.size;
                   work(b, first, std::min(blocks.size, n - first));
                 }
               });
}

float Norm(const float* values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{values[i]} * values[i];
  return static_cast<float>(std::sqrt(sum));
}

// None of one norm, or scale, per block is negative or not finite.
absl::Status CheckNorms(const uint8_t* body, int64_t n,
                        const std::string& what) {
  const int64_t blocks = ThcBlocks(n).count;
  for (int64_t b = 0; b < blocks; ++b) {
    const float norm = ReadNumber<float>(body + b * kNormSize);
    if (!IsScale(norm)) {
      return absl::DataLossError(
          absl::StrCat(what, " message: the norm of block ", b, " is ", norm));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ThcIndicesSize(const ThcSpec& spec, int64_t n) {
  return kernels::PackedSize(ThcBlocks(n).padded(), spec.table.bits);
}

bool ThcNorms(const float* values, int64_t n, float* norms,
              const kernels::ParallelFor& parallel_for) {
  const kernels::KeepDenormals keep_denormals;
  const ThcBlocks blocks(n);
  ForEachBlock(blocks, n, parallel_for,
               [=](int64_t block, int64_t first, int64_t length) {
                 norms[block] = Norm(values + first, length);
               });
  return std::all_of(norms, norms + blocks.count,
                     [](float norm) { return std::isfinite(norm); });
}

bool HasThcNorms(const uint8_t* body, int64_t size) {
  return size < kNormSize || !std::isnan(ReadNumber<float>(body));
}

absl::Status CheckThcNorms(const uint8_t* body, int64_t size, int64_t n,
                           const std::string& what) {
  if (size == kNormSize && !HasThcNorms(body, size)) return absl::OkStatus();
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(what, size, ThcBlocks(n).count * kNormSize));
  return CheckNorms(body, n, what);
}

absl::Status CheckThcPush(const ThcSpec& spec, const uint8_t* body,
                          int64_t size, int64_t n, const std::string& what) {
  if (size == kNormSize && !HasThcNorms(body, size)) return absl::OkStatus();
  const int64_t norms = ThcBlocks(n).count * kNormSize;
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(what, size, norms + ThcIndicesSize(spec, n)));
  return CheckNorms(body, n, what);
}

Tensor EncodeThcScales(const ThcScales& scales) {
  const int64_t size = scales.values.TotalBytes();
  Tensor body = NewBytes(kVersionSize + size);
  WriteNumber(scales.version, BytesOf(&body));
  std::copy_n(scales.values.tensor_data().data(), size,
              BytesOf(&body) + kVersionSize);
  return body;
}

absl::Status CheckThcScales(const uint8_t* body, int64_t size, int64_t n,
                            const std::string& what) {
  const int64_t scales = ThcBlocks(n).count * kNormSize;
  TF_GC_RETURN_IF_ERROR(CheckBodySize(what, size, kVersionSize + scales));
  const int64_t version = DecodeThcScales(body, size).version;
  if (version <= 0) {
    return absl::DataLossError(
        absl::StrCat(what, " message: the version of the scales is ", version));
  }
  return CheckNorms(body + kVersionSize, n, what);
}

ThcScales DecodeThcScales(const uint8_t* body, int64_t size) {
  ThcScales scales = {ReadNumber<int64_t>(body),
                      NewFloats((size - kVersionSize) / kNormSize)};
  std::memcpy(FloatsOf(&scales.values), body + kVersionSize,
              size - kVersionSize);
  return scales;
}

kernels::Seed ThcSigns(const ThcSpec& spec, uint32_t id, int64_t version) {
  return {MixBits(spec.seed ^ MixBits(id)), static_cast<uint64_t>(version)};
}

kernels::Seed ThcRounding(kernels::Seed signs, uint64_t push) {
  return {MixBits(signs.key ^ MixBits(push)), signs.stream};
}

ThcQuantizer::ThcQuantizer(const ThcSpec* spec, uint32_t id, int64_t n,
                           const ThcScales& scales)
    : spec_(*spec),
      n_(n),
      blocks_(n),
      signs_(ThcSigns(*spec, id, scales.version)) {
  const kernels::KeepDenormals keep_denormals;
  const float* const of_block = FloatsOf(scales.values);
  for (int64_t b = 0; b < blocks_.count; ++b) {
    limits_.push_back(spec_.truncation * of_block[b] /
                      std::sqrt(static_cast<float>(blocks_.size)));
  }
}

void ThcQuantizer::Quantize(const float* values, uint64_t push,
                            uint8_t* indices,
                            const kernels::ParallelFor& parallel_for) const {
  const kernels::KeepDenormals keep_denormals;
  const std::unique_ptr<float[]> padded(new float[blocks_.padded()]);
  std::copy_n(values, n_, padded.get());
  std::fill(padded.get() + n_, padded.get() + blocks_.padded(), 0.0f);
  std::optional<kernels::Seed> rounding;
  if (!spec_.is_nearest) rounding = ThcRounding(signs_, push);
  kernels::ThcQuantize(padded.get(), blocks_, limits_.data(), spec_.table,
                       signs_, rounding, padded.get(), indices, parallel_for);
}

void ThcQuantizer::Add(const uint8_t* indices, uint16_t* sums,
                       const kernels::ParallelFor& parallel_for) const {
  const int bits = spec_.table.bits;
  kernels::ParallelForUnits(
      parallel_for, blocks_.padded(), kUnit, kernels::kTableSumCost,
      [&](int64_t begin, int64_t end) {
        kernels::TableSum(indices + kernels::PackedSize(begin, bits),
                          end - begin, spec_.table.integers.data(), bits,
                          sums + begin);
      });
}

void ThcQuantizer::DecodeAdd(const uint16_t* sums, int64_t pushes,
                             float* values,
                             const kernels::ParallelFor& parallel_for) const {
  const kernels::KeepDenormals keep_denormals;
  const std::unique_ptr<float[]> decoded(new float[blocks_.padded()]);
  kernels::ThcDecodeSums(sums, blocks_, limits_.data(),
                         spec_.table.granularity(), pushes, signs_,
                         decoded.get(), parallel_for);
  kernels::AddResidual(values, decoded.get(), n_, values);
}

}  // namespace tf_gc::parameter_server
