#include "ops/parameter_server/thc.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ops/kernels/bit_packing.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/hadamard.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
#include "ops/kernels/three_lc.h"
#include "ops/parameter_server/buffers.h"
#include "ops/wire/body.h"
#include "ops/wire/seeds.h"

namespace tf_gc::parameter_server {
namespace {

using ::tensorflow::Tensor;

constexpr int64_t kLargestBlock = int64_t{1} << 16;
constexpr int64_t kSmallestBlock = int64_t{1} << 6;
constexpr int64_t kPaddingPart = 128;

// The values of a unit of work: whole bytes of packed indices.
constexpr int64_t kUnit = 4096;

// Cycles per value.
constexpr int64_t kCost = 1;

constexpr int64_t kNormSize = sizeof(float);
constexpr int64_t kVersionSize = sizeof(int64_t);

float ReadNorm(const uint8_t* body, int64_t block) {
  float norm;
  std::memcpy(&norm, body + block * kNormSize, kNormSize);
  return norm;
}

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

// Calls work(first, how many) for all values, with the padding.
template <typename Work>
void ForEachUnit(const ThcBlocks& blocks,
                 const kernels::ParallelFor& parallel_for, Work work) {
  kernels::ParallelForUnits(
      parallel_for, blocks.padded(), kUnit, kCost,
      [&](int64_t begin, int64_t end) { work(begin, end - begin); });
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
    const float norm = ReadNorm(body, b);
    if (!(norm >= 0 && std::isfinite(norm))) {
      return absl::DataLossError(
          absl::StrCat(what, " message: the norm of block ", b, " is ", norm));
    }
  }
  return absl::OkStatus();
}

}  // namespace

float ThcTruncation(double p) {
  // The fraction that lies outside of [-t, t] is erfc(t / sqrt(2)).
  double below = 0, above = 40;
  while (true) {
    const double middle = (below + above) / 2;
    if (middle <= below || middle >= above) break;
    (std::erfc(middle / std::sqrt(2.0)) > p ? below : above) = middle;
  }
  return static_cast<float>(above);
}

ThcBlocks::ThcBlocks(int64_t n) : size(kLargestBlock) {
  const auto padding = [&] { return (size - n % size) % size; };
  while (size > kSmallestBlock && padding() > n / kPaddingPart) size /= 2;
  count = n / size + (n % size != 0);
}

int64_t ThcIndicesSize(const ThcSpec& spec, int64_t n) {
  return kernels::PackedSize(ThcBlocks(n).padded(), spec.bits);
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
  return size < kNormSize || !std::isnan(ReadNorm(body, 0));
}

absl::Status CheckThcNorms(const uint8_t* body, int64_t size, int64_t n,
                           const std::string& what) {
  if (size == kNormSize && !HasThcNorms(body, size)) return absl::OkStatus();
  const absl::Status checked =
      CheckBodySize(what, size, ThcBlocks(n).count * kNormSize);
  return checked.ok() ? CheckNorms(body, n, what) : checked;
}

absl::Status CheckThcPush(const ThcSpec& spec, const uint8_t* body,
                          int64_t size, int64_t n, const std::string& what) {
  if (size == kNormSize && !HasThcNorms(body, size)) return absl::OkStatus();
  const int64_t norms = ThcBlocks(n).count * kNormSize;
  const absl::Status checked =
      CheckBodySize(what, size, norms + ThcIndicesSize(spec, n));
  return checked.ok() ? CheckNorms(body, n, what) : checked;
}

Tensor EncodeThcScales(const ThcScales& scales) {
  const int64_t size = scales.values.TotalBytes();
  Tensor body = NewBytes(kVersionSize + size);
  std::memcpy(BytesOf(&body), &scales.version, kVersionSize);
  std::copy_n(scales.values.tensor_data().data(), size,
              BytesOf(&body) + kVersionSize);
  return body;
}

absl::Status CheckThcScales(const uint8_t* body, int64_t size, int64_t n,
                            const std::string& what) {
  const int64_t scales = ThcBlocks(n).count * kNormSize;
  const absl::Status checked = CheckBodySize(what, size, kVersionSize + scales);
  if (!checked.ok()) return checked;
  const int64_t version = DecodeThcScales(body, size).version;
  if (version <= 0) {
    return absl::DataLossError(
        absl::StrCat(what, " message: the version of the scales is ", version));
  }
  return CheckNorms(body + kVersionSize, n, what);
}

ThcScales DecodeThcScales(const uint8_t* body, int64_t size) {
  ThcScales scales = {0, NewFloats((size - kVersionSize) / kNormSize)};
  std::memcpy(&scales.version, body, kVersionSize);
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

float ThcQuantizer::Limit(int64_t block) const {
  return spec_.truncation * FloatsOf(scales_.values)[block] /
         std::sqrt(static_cast<float>(blocks_.size));
}

void ThcQuantizer::Quantize(const float* values, uint64_t push,
                            uint8_t* indices,
                            const kernels::ParallelFor& parallel_for) const {
  const kernels::KeepDenormals keep_denormals;
  const kernels::Seed rounding = ThcRounding(signs_, push);
  const std::unique_ptr<float[]> room(new float[blocks_.padded()]);
  float* const rotated = room.get();
  std::copy_n(values, n_, rotated);
  std::fill(rotated + n_, rotated + blocks_.padded(), 0.0f);
  kernels::RandomizedHadamard(rotated, blocks_.count, blocks_.size, signs_,
                              rotated, parallel_for);
  ForEachBlock(blocks_, n_, parallel_for,
               [&](int64_t block, int64_t first, int64_t) {
                 const float limit = Limit(block);
                 float* const r = rotated + first;
                 for (int64_t i = 0; i < blocks_.size; ++i) {
                   r[i] = limit > 0 ? r[i] / limit : 0;
                 }
               });
  ForEachUnit(blocks_, parallel_for, [&](int64_t first, int64_t length) {
    kernels::StochasticQuantizePack(
        rotated + first, length, spec_.levels.data(),
        static_cast<int>(spec_.levels.size()), rounding, first, spec_.bits,
        indices + kernels::PackedSize(first, spec_.bits));
  });
}

void ThcQuantizer::Add(const uint8_t* indices, uint16_t* sums,
                       const kernels::ParallelFor& parallel_for) const {
  ForEachUnit(blocks_, parallel_for, [&](int64_t first, int64_t length) {
    kernels::TableSum(indices + kernels::PackedSize(first, spec_.bits), length,
                      spec_.table.data(), spec_.bits, sums + first);
  });
}

void ThcQuantizer::DecodeAdd(const uint16_t* sums, int64_t pushes,
                             float* values,
                             const kernels::ParallelFor& parallel_for) const {
  const kernels::KeepDenormals keep_denormals;
  const std::unique_ptr<float[]> room(new float[blocks_.padded()]);
  float* const rotated = room.get();
  const float step = 2.0f / static_cast<float>(spec_.granularity());
  const float offset = static_cast<float>(pushes);
  ForEachBlock(blocks_, n_, parallel_for,
               [&](int64_t block, int64_t first, int64_t) {
                 const float limit = Limit(block);
                 for (int64_t i = first; i < first + blocks_.size; ++i) {
                   rotated[i] = limit * (sums[i] * step - offset);
                 }
               });
  kernels::InverseRandomizedHadamard(rotated, blocks_.count, blocks_.size,
                                     signs_, rotated, parallel_for);
  kernels::AddResidual(values, rotated, n_, values);
}

}  // namespace tf_gc::parameter_server
