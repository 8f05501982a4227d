// THC between the workers and a parameter server (ops/kernels/thc.h). All
// workers have the scale l of each block from the server, and with it the limit
//
//   M = t_p l / sqrt(d),    t_p = Phi^-1(1 - p / 2)
//
// A push holds the indices. The server adds them up over its pushes without
// decoding, and decodes once.

#ifndef TF_GC_OPS_PARAMETER_SERVER_THC_H_
#define TF_GC_OPS_PARAMETER_SERVER_THC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/parallel.h"
#include "ops/kernels/philox.h"
#include "ops/kernels/thc.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_gc::parameter_server {

// What sums of T[z] have room for.
inline constexpr int64_t kLargestThcSum = UINT16_MAX;

struct ThcSpec {
  float truncation = 0;     // t_p
  float headroom = 0;       // scale over the largest norm of the last round
  uint64_t seed = 0;        // of the signs
  bool is_nearest = false;  // how values are rounded
  kernels::ThcTable table;
};

using kernels::ThcBlocks;

// The bytes of a push's indices.
int64_t ThcIndicesSize(const ThcSpec& spec, int64_t n);

// The L2 norm of each block. False if some value, or norm, is not finite.
bool ThcNorms(const float* values, int64_t n, float* norms,
              const kernels::ParallelFor& parallel_for);

// DataLoss unless these are one float32 per block, none of them negative or
// infinite, or a single NaN: the sender's values were not finite.
absl::Status CheckThcNorms(const uint8_t* body, int64_t size, int64_t n,
                           const std::string& what);

// The same of a push: norms, then indices; nothing behind a single NaN.
absl::Status CheckThcPush(const ThcSpec& spec, const uint8_t* body,
                          int64_t size, int64_t n, const std::string& what);

// Whether a checked body has norms, and no NaN in their place.
bool HasThcNorms(const uint8_t* body, int64_t size);

// The scale of each block of a variable, and the version of the model in which
// the server has published them. Pushes with the same scales can be added up.
struct ThcScales {
  int64_t version = 0;  // 0 if there are none
  tensorflow::Tensor values;
};

// The body of a pull's entry that brings scales, a uint8 tensor; DataLoss
// unless one can be read; and what is read from one.
tensorflow::Tensor EncodeThcScales(const ThcScales& scales);
absl::Status CheckThcScales(const uint8_t* body, int64_t size, int64_t n,
                            const std::string& what);
ThcScales DecodeThcScales(const uint8_t* body, int64_t size);

// The seed of D for one variable and the scales of one version, and that of one
// push's rounding.
kernels::Seed ThcSigns(const ThcSpec& spec, uint32_t id, int64_t version);
kernels::Seed ThcRounding(kernels::Seed signs, uint64_t push);

// The quantisation of one variable by some scales. Denormal numbers count,
// whatever the thread's mode.
class ThcQuantizer {
 public:
  // The caller keeps `spec`.
  ThcQuantizer(const ThcSpec* spec, uint32_t id, int64_t n,
               const ThcScales& scales);

  // Writes ThcIndicesSize bytes. No two pushes of all workers have the same
  // number.
  void Quantize(const float* values, uint64_t push, uint8_t* indices,
                const kernels::ParallelFor& parallel_for) const;

  // sums[i] += T[z_i] for all values, with the padding.
  void Add(const uint8_t* indices, uint16_t* sums,
           const kernels::ParallelFor& parallel_for) const;

  // Adds to n values what these sums over so many pushes stand for.
  void DecodeAdd(const uint16_t* sums, int64_t pushes, float* values,
                 const kernels::ParallelFor& parallel_for) const;

 private:
  const ThcSpec& spec_;
  const int64_t n_;
  const ThcBlocks blocks_;
  const kernels::Seed signs_;
  std::vector<float> limits_;  // M of each block
};

}  // namespace tf_gc::parameter_server

#endif  // TF_GC_OPS_PARAMETER_SERVER_THC_H_
