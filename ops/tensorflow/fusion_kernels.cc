// The ops between gradients and the values of a bucket, on the CPU.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/collectives/bucket_layout.h"
#include "ops/kernels/denormals.h"
#include "ops/kernels/magnitude_histogram.h"
#include "ops/kernels/three_lc.h"
#include "ops/tensorflow/bucket.h"
#include "ops/tensorflow/handles.h"
#include "ops/tensorflow/inputs.h"
#include "ops/tensorflow/registration.h"
#include "ops/tensorflow/selection_inputs.h"
#include "ops/wire/floats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_gc {
namespace {

using ::tensorflow::DT_FLOAT;
using ::tensorflow::mutex_lock;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::Var;
using ::tensorflow::core::RefCountPtr;

// The values that threads share out: few enough for the second-level cache.
constexpr int64_t kPieceValues = 1 << 16;

// By variable: raised by any thread that finds a value that is not finite.
using Flags = std::vector<std::atomic<bool>>;

// Calls work(segment, first) for segments that make up variables of these
// sizes, on TensorFlow's intra-op threads. `first` counts the values before the
// segment, those of the variables before it included.
void ForEachSegment(
    OpKernelContext* context, const std::vector<int64_t>& sizes,
    const std::function<void(const Segment&, int64_t first)>& work) {
  const BucketLayout layout(sizes, /*ranks=*/1, kPieceValues);
  const std::vector<Piece>& pieces = layout.shard(0);
  IntraOpThreads(context)(pieces.size(), /*cost=*/kPieceValues,
                          [&](int64_t begin, int64_t end) {
                            const kernels::KeepDenormals keep_denormals;
                            for (int64_t p = begin; p < end; ++p) {
                              int64_t first = pieces[p].begin;
                              for (const Segment& s : pieces[p].segments) {
                                work(s, first);
                                first += s.length;
                              }
                            }
                          });
}

// The same for single values: calls work(i, variable, position) for each i; the
// bucket's value indices[i] is the one at this position of the variable. All
// indices are below the sum of `sizes`.
template <typename Work>
void ForEachIndex(OpKernelContext* context, const std::vector<int64_t>& sizes,
                  const Tensor& indices, const Work& work) {
  std::vector<int64_t> begins(sizes.size() + 1);
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  const auto places = indices.flat<int32_t>();
  constexpr int64_t kUnit = 1 << 12;
  kernels::ParallelForUnits(
      IntraOpThreads(context), places.size(), kUnit, /*cost=*/8,
      [&](int64_t begin, int64_t end) {
        const kernels::KeepDenormals keep_denormals;
        int64_t v = 0;  // neighbours are mostly of one variable
        for (int64_t i = begin; i < end; ++i) {
          const int64_t place = places(i);
          if (place < begins[v] || place >= begins[v + 1]) {
            v = std::upper_bound(begins.begin() + 1, begins.end(), place) -
                begins.begin() - 1;
          }
          work(i, v, place - begins[v]);
        }
      });
}

// 1 for NaN and infinity: their exponents have all bits set.
inline uint32_t IsNonFinite(float value) {
  constexpr uint32_t kExponent = 0x7f800000;
  return (absl::bit_cast<uint32_t>(value) & kExponent) == kExponent;
}

// Which variables have values that are not finite.
Flags FindNonFinite(OpKernelContext* context, const Tensor& tensor,
                    const std::vector<int64_t>& sizes) {
  const float* const values = tensor.flat<float>().data();
  Flags non_finite(sizes.size());
  ForEachSegment(context, sizes, [&](const Segment& segment, int64_t first) {
    if (!kernels::AllFinite(values + first, segment.length,
                            kernels::SingleThread)) {
      non_finite[segment.variable] = true;
    }
  });
  return non_finite;
}

// The same, of those at indices.
Flags FindNonFinite(OpKernelContext* context, const Tensor& tensor,
                    const std::vector<int64_t>& sizes, const Tensor& indices) {
  const float* const values = tensor.flat<float>().data();
  Flags non_finite(sizes.size());
  ForEachIndex(context, sizes, indices, [&](int64_t i, int v, int64_t) {
    if (IsNonFinite(values[i])) non_finite[v] = true;
  });
  return non_finite;
}

// The loops below have no branches, and so become vector instructions. Each
// iteration has its own memory, which the pragma says of arrays that may be the
// same.

// sum <- gradient, plus residual where there is one; whether all are finite.
template <bool kHasResidual, typename T>
bool Add(const T* gradient, const float* residual, int64_t n, float* sum) {
  uint32_t non_finite = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float value = ToFloat32(gradient[i]);
    if constexpr (kHasResidual) value += residual[i];
    sum[i] = value;
    non_finite |= IsNonFinite(value);
  }
  return non_finite == 0;
}

// after <- value where it is finite, else before.
void AssignFinite(const float* value, const float* before, int64_t n,
                  float* after) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float old = before[i];
    after[i] = IsNonFinite(value[i]) ? old : value[i];
  }
}

template <typename T>
void Divide(const float* total, float divisor, int64_t n, T* quotient) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    quotient[i] = FromFloat32<T>(total[i] / divisor);
  }
}

// A tensor's values in another shape.
Tensor Reshaped(const Tensor& tensor, const TensorShape& shape) {
  Tensor reshaped;
  CHECK(reshaped.CopyFrom(tensor, shape));
  return reshaped;
}

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

absl::Status LookupResidual(OpKernelContext* context,
                            const OpInputList& residuals, int i,
                            RefCountPtr<Var>* variable) {
  return LookupHandle(context, residuals[i], absl::StrCat("residuals[", i, "]"),
                      variable);
}

// Of the input `name`, which has the values of a bucket, or, if there is an
// input of indices, those at them.
absl::Status CheckBucket(const Tensor& values, const OpInputList& indices,
                         const std::vector<int64_t>& sizes, const char* name) {
  const int64_t size = Sum(sizes);
  if (indices.size() != 0) return CheckIndexed(indices[0], values, size);
  TF_RETURN_IF_ERROR(CheckVector(values, name));
  if (values.NumElements() == size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must have the ", size,
                   " values of all variables, got ", values.NumElements()));
}

absl::Status CheckFinite(const Tensor& finite, int variables) {
  if (finite.dims() == 1 && finite.NumElements() == variables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("finite must have one flag for each of ", variables,
                   " variables, got shape ", finite.shape().DebugString()));
}

// The variables' buffers: who writes to a variable meanwhile leaves them as
// they are.
absl::Status ReadResiduals(OpKernelContext* context,
                           const OpInputList& gradients,
                           std::vector<Tensor>* residuals) {
  OpInputList handles;
  TF_RETURN_IF_ERROR(context->input_list("residuals", &handles));
  if (handles.size() != 0 && handles.size() != gradients.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("residuals must be none or one per gradient, got ",
                     handles.size(), " for ", gradients.size()));
  }
  for (int i = 0; i < handles.size(); ++i) {
    RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupResidual(context, handles, i, &variable));
    tensorflow::tf_shared_lock lock(*variable->mu());
    const Tensor& residual = *variable->tensor();
    if (residual.dtype() != DT_FLOAT ||
        residual.NumElements() != gradients[i].NumElements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("residuals[", i, "] must be a float32 variable of ",
                       gradients[i].NumElements(), " values, as gradients[", i,
                       "], got ", residual.DeviceSafeDebugString()));
    }
    residuals->push_back(residual);
  }
  return absl::OkStatus();
}

// Lays gradients, plus residuals if there are any, one after the other. Returns
// which variables have sums that are not finite.
template <typename T>
Flags AddAll(OpKernelContext* context, const OpInputList& gradients,
             const std::vector<Tensor>& residuals,
             const std::vector<int64_t>& sizes, float* sums) {
  Flags non_finite(sizes.size());
  ForEachSegment(context, sizes, [&](const Segment& segment, int64_t first) {
    const int v = segment.variable;
    const T* const gradient = gradients[v].flat<T>().data() + segment.begin;
    const bool finite =
        residuals.empty()
            ? Add<false>(gradient, nullptr, segment.length, sums + first)
            : Add<true>(gradient,
                        residuals[v].flat<float>().data() + segment.begin,
                        segment.length, sums + first);
    if (!finite) non_finite[v] = true;
  });
  return non_finite;
}

std::vector<int64_t> Sizes(const OpInputList& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.NumElements());
  return sizes;
}

template <typename T>
class FuseGradientsOp : public OpKernel {
 public:
  explicit FuseGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("group_size", &group_size_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Bucket> bucket;
    OpInputList gradients;
    std::vector<Tensor> residuals;
    OP_REQUIRES_OK(context, LookupBucket(context, &bucket));
    OP_REQUIRES_OK(context, ReadGradients(context, *bucket, &gradients));
    OP_REQUIRES_OK(context, ReadResiduals(context, gradients, &residuals));
    const std::vector<int64_t> sizes = Sizes(gradients);
    Flags non_finite;
    OP_REQUIRES_OK(context,
                   Fuse(context, gradients, residuals, sizes, &non_finite));
    Tensor* finite = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                1, TensorShape({gradients.size()}), &finite));
    for (int v = 0; v < gradients.size(); ++v) {
      finite->flat<bool>()(v) = !non_finite[v];
    }
    Traffic step(bucket->variables());
    step.AddStep(sizes, group_size_);
    bucket->Count(step);
  }

 private:
  static absl::Status ReadGradients(OpKernelContext* context,
                                    const Bucket& bucket,
                                    OpInputList* gradients) {
    TF_RETURN_IF_ERROR(context->input_list("gradients", gradients));
    if (gradients->size() == bucket.variables()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "gradients: ", gradients->size(), " tensors for a bucket of ",
        bucket.variables(), " variables"));
  }

  static absl::Status Fuse(OpKernelContext* context,
                           const OpInputList& gradients,
                           const std::vector<Tensor>& residuals,
                           const std::vector<int64_t>& sizes,
                           Flags* non_finite) {
    const TensorShape shape({Sum(sizes)});
    if constexpr (std::is_same_v<T, float>) {
      // A single gradient is already what the values are to be.
      if (sizes.size() == 1 && residuals.empty()) {
        *non_finite = FindNonFinite(context, gradients[0], sizes);
        if (!(*non_finite)[0]) {
          context->set_output(0, Reshaped(gradients[0], shape));
          return absl::OkStatus();
        }
      }
    }
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &values));
    float* const sums = values->flat<float>().data();
    *non_finite = AddAll<T>(context, gradients, residuals, sizes, sums);
    float* sum = sums;
    for (size_t v = 0; v < sizes.size(); sum += sizes[v++]) {
      if ((*non_finite)[v]) std::fill_n(sum, sizes[v], 0.0f);
    }
    return absl::OkStatus();
  }

  int group_size_;
};

template <typename T>
class GradientHistogramOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    bool is_wanted;
    OP_REQUIRES_OK(context, ReadScalar(context, "wanted", &is_wanted));
    const TensorShape shape({is_wanted ? kernels::kMagnitudeBins : 0});
    Tensor *counts, *squares;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &counts));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &squares));
    if (!is_wanted) return;
    OpInputList gradients;
    std::vector<Tensor> residuals;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    OP_REQUIRES_OK(context, ReadResiduals(context, gradients, &residuals));
    const std::vector<int64_t> sizes = Sizes(gradients);
    Tensor values;
    OP_REQUIRES_OK(context, context->allocate_temp(
                                DT_FLOAT, TensorShape({Sum(sizes)}), &values));
    float* const sums = values.flat<float>().data();
    AddAll<T>(context, gradients, residuals, sizes, sums);
    kernels::MagnitudeHistogram(
        sums, values.NumElements(), counts->flat<int64_t>().data(),
        squares->flat<double>().data(), IntraOpThreads(context));
  }
};

class StoreResidualsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    std::vector<RefCountPtr<Var>> variables;
    OP_REQUIRES_OK(context, LookupResiduals(context, &variables));
    // Destroyed before the references to the variables are.
    std::vector<mutex_lock> locks;
    OP_REQUIRES_OK(context, Lock(variables, &locks));
    std::vector<int64_t> sizes;
    OP_REQUIRES_OK(context, ReadSizes(context, variables, &sizes));

    const Tensor* residual;
    OP_REQUIRES_OK(context, context->input("residual", &residual));
    const float* const values = residual->flat<float>().data();
    std::vector<bool> is_kept;
    OP_REQUIRES_OK(context, ReadKept(context, sizes.size(), &is_kept));
    if (sizes.size() == 1 && !is_kept[0] &&
        !FindNonFinite(context, *residual, sizes)[0] &&
        Move(context, variables[0].get())) {
      return;
    }
    std::vector<Tensor> before(sizes.size());
    std::vector<Tensor> after(sizes.size());
    for (size_t v = 0; v < sizes.size(); ++v) {
      if (is_kept[v]) continue;
      OP_REQUIRES_OK(context, PrepareToWrite(context, variables[v].get(),
                                             &before[v], &after[v]));
    }
    ForEachSegment(context, sizes, [&](const Segment& segment, int64_t first) {
      const int v = segment.variable;
      if (is_kept[v]) return;
      AssignFinite(
          values + first, before[v].flat<float>().data() + segment.begin,
          segment.length, after[v].flat<float>().data() + segment.begin);
    });
    for (size_t v = 0; v < sizes.size(); ++v) {
      if (!is_kept[v]) *variables[v]->tensor() = after[v];
    }
  }

 private:
  static absl::Status LookupResiduals(
      OpKernelContext* context, std::vector<RefCountPtr<Var>>* variables) {
    OpInputList handles;
    TF_RETURN_IF_ERROR(context->input_list("residuals", &handles));
    variables->resize(handles.size());
    for (int i = 0; i < handles.size(); ++i) {
      TF_RETURN_IF_ERROR(LookupResidual(context, handles, i, &(*variables)[i]));
    }
    return absl::OkStatus();
  }

  // In the order of their addresses, as TensorFlow's own ops do: so two ops
  // never wait for each other.
  static absl::Status Lock(const std::vector<RefCountPtr<Var>>& variables,
                           std::vector<mutex_lock>* locks) {
    Residuals order;
    for (size_t i = 0; i < variables.size(); ++i) {
      TF_RETURN_IF_ERROR(NoteResidual(variables[i].get(), i, &order));
    }
    for (const auto& [variable, i] : order)
      locks->emplace_back(*variable->mu());
    return absl::OkStatus();
  }

  static absl::Status ReadSizes(OpKernelContext* context,
                                const std::vector<RefCountPtr<Var>>& variables,
                                std::vector<int64_t>* sizes) {
    for (size_t i = 0; i < variables.size(); ++i) {
      const Tensor& tensor = *variables[i]->tensor();
      if (tensor.dtype() != DT_FLOAT) {
        return absl::InvalidArgumentError(
            absl::StrCat("residuals[", i, "] must be a float32 variable, got ",
                         tensor.DeviceSafeDebugString()));
      }
      sizes->push_back(tensor.NumElements());
    }
    const Tensor* residual;
    TF_RETURN_IF_ERROR(context->input("residual", &residual));
    TF_RETURN_IF_ERROR(CheckVector(*residual, "residual"));
    if (residual->NumElements() == Sum(*sizes)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "residual must have the ", Sum(*sizes),
        " values of the variables `residuals`, got ", residual->NumElements()));
  }

  static absl::Status ReadKept(OpKernelContext* context, int variables,
                               std::vector<bool>* is_kept) {
    const Tensor* finite;
    TF_RETURN_IF_ERROR(context->input("finite", &finite));
    TF_RETURN_IF_ERROR(CheckFinite(*finite, variables));
    const auto flags = finite->flat<bool>();
    is_kept->assign(flags.data(), flags.data() + variables);
    is_kept->flip();
    return absl::OkStatus();
  }

  // Gives a variable the buffer of the input `residual`, if nothing else needs
  // it.
  static bool Move(OpKernelContext* context, Var* variable) {
    const auto buffer = context->forward_input(
        0, OpKernelContext::Params::kNoReservation, DT_FLOAT,
        variable->tensor()->shape(), tensorflow::DEVICE_MEMORY,
        tensorflow::AllocatorAttributes());
    if (buffer == nullptr) return false;
    *variable->tensor() = *buffer;
    return true;
  }

  // Who has read the variable keeps what it has read: then a fresh buffer is to
  // take the place of the variable's.
  static absl::Status PrepareToWrite(OpKernelContext* context, Var* variable,
                                     Tensor* before, Tensor* after) {
    const Tensor& tensor = *variable->tensor();
    const bool is_shared =
        variable->copy_on_read_mode || !tensor.RefCountIsOne();
    *before = tensor;
    if (is_shared) {
      return context->allocate_temp(DT_FLOAT, tensor.shape(), after);
    }
    *after = tensor;
    return absl::OkStatus();
  }
};

class AllFiniteOp : public OpKernel {
 public:
  explicit AllFiniteOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetSizes(context, &sizes_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& values = context->input(0);
    OpInputList indices;
    OP_REQUIRES_OK(context, context->input_list("indices", &indices));
    OP_REQUIRES_OK(context, CheckBucket(values, indices, sizes_, "values"));
    const Flags non_finite =
        indices.size() == 0
            ? FindNonFinite(context, values, sizes_)
            : FindNonFinite(context, values, sizes_, indices[0]);
    const TensorShape shape({static_cast<int64_t>(sizes_.size())});
    Tensor* finite = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &finite));
    std::transform(non_finite.begin(), non_finite.end(),
                   finite->flat<bool>().data(), std::logical_not<bool>());
  }

 private:
  std::vector<int64_t> sizes_;
};

// The sum of |value|, one after the other in double: it may be beyond float32.
double SumLargeMagnitudes(const float* values, int64_t n) {
  return std::accumulate(values, values + n, 0.0, [](double sum, float value) {
    return sum + std::abs(value);
  });
}

// The sum of |value|. Adds kLanes sums side by side, which become vectors, for
// kRow values, and the rows' sums in double.
double SumMagnitudes(const float* values, int64_t n) {
  constexpr int64_t kLanes = 16, kRow = 1 << 12;
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kRow) {
    const float* const row = values + begin;
    const int64_t length = std::min(kRow, n - begin);
    float lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= length; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] += std::abs(row[i + j]);
    }
    for (; i < length; ++i) lanes[i % kLanes] += std::abs(row[i]);
    const double of_row = std::accumulate(lanes, lanes + kLanes, 0.0);
    sum += std::isfinite(of_row) ? of_row : SumLargeMagnitudes(row, length);
  }
  return sum;
}

class MeanMagnitudesOp : public OpKernel {
 public:
  explicit MeanMagnitudesOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, GetSizes(context, &sizes_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    OP_REQUIRES_OK(context, CheckBucket(input, {}, sizes_, "values"));
    const float* const values = input.flat<float>().data();
    // Those of each variable's segments, in their order.
    std::vector<std::vector<double>> sums;
    for (const int64_t size : sizes_) {
      sums.emplace_back(size / kPieceValues + 2);
    }
    ForEachSegment(context, sizes_, [&](const Segment& segment, int64_t first) {
      sums[segment.variable][NumberOf(segment)] =
          SumMagnitudes(values + first, segment.length);
    });
    const TensorShape shape({static_cast<int64_t>(sizes_.size())});
    Tensor* means = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &means));
    for (size_t v = 0; v < sizes_.size(); ++v) {
      const double sum = std::accumulate(sums[v].begin(), sums[v].end(), 0.0);
      means->flat<float>()(v) = static_cast<float>(
          sum / static_cast<double>(std::max<int64_t>(sizes_[v], 1)));
    }
  }

 private:
  // In its variable: a first segment may be shorter than a piece, and a last
  // one.
  static int64_t NumberOf(const Segment& segment) {
    return (segment.begin + kPieceValues - 1) / kPieceValues;
  }

  std::vector<int64_t> sizes_;
};

template <typename T>
class UnfuseGradientsOp : public OpKernel {
 public:
  explicit UnfuseGradientsOp(OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("shapes", &shapes_));
    for (const TensorShape& shape : shapes_) {
      sizes_.push_back(shape.num_elements());
    }
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& total = context->input(0);
    const Tensor& finite = context->input(1);
    OpInputList indices;
    float divisor;
    OP_REQUIRES_OK(context, context->input_list("indices", &indices));
    OP_REQUIRES_OK(context, CheckBucket(total, indices, sizes_, "total"));
    OP_REQUIRES_OK(context, CheckFinite(finite, sizes_.size()));
    OP_REQUIRES_OK(context, ReadDivisor(context, &divisor));
    const bool is_dense = indices.size() == 0;
    const auto flags = finite.flat<bool>();
    if constexpr (std::is_same_v<T, float>) {
      if (is_dense && sizes_.size() == 1 && flags(0) && divisor == 1) {
        context->set_output(0, Reshaped(total, shapes_[0]));
        return;
      }
    }
    std::vector<T*> gradients;
    OP_REQUIRES_OK(context, AllocateOutputs(context, is_dense, &gradients));
    const float* const totals = total.flat<float>().data();
    ForEachSegment(context, sizes_, [&](const Segment& segment, int64_t first) {
      T* const gradient = gradients[segment.variable] + segment.begin;
      if (!flags(segment.variable)) {
        std::fill_n(gradient, segment.length,
                    std::numeric_limits<T>::quiet_NaN());
      } else if (is_dense) {
        Divide(totals + first, divisor, segment.length, gradient);
      } else {
        std::fill_n(gradient, segment.length, T(0));
      }
    });
    if (is_dense) return;
    ForEachIndex(context, sizes_, indices[0],
                 [&](int64_t i, int v, int64_t position) {
                   if (!flags(v)) return;
                   gradients[v][position] = FromFloat32<T>(totals[i] / divisor);
                 });
  }

 private:
  static absl::Status ReadDivisor(OpKernelContext* context, float* divisor) {
    TF_RETURN_IF_ERROR(ReadScalar(context, "divisor", divisor));
    if (*divisor > 0 && std::isfinite(*divisor)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("divisor must be positive and finite, got ", *divisor));
  }

  absl::Status AllocateOutputs(OpKernelContext* context, bool is_dense,
                               std::vector<T*>* gradients) const {
    // A single gradient may be divided where it is.
    const bool in_place =
        is_dense && std::is_same_v<T, float> && shapes_.size() == 1;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      Tensor* gradient = nullptr;
      TF_RETURN_IF_ERROR(
          in_place ? context->forward_input_or_allocate_output(
                         {0}, i, shapes_[i], &gradient)
                   : context->allocate_output(i, shapes_[i], &gradient));
      gradients->push_back(gradient->flat<T>().data());
    }
    return absl::OkStatus();
  }

  std::vector<TensorShape> shapes_;
  std::vector<int64_t> sizes_;
};

TF_GC_REGISTER(DEVICE_CPU, "TfGc>AllFinite", AllFiniteOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>MeanMagnitudes", MeanMagnitudesOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>FuseGradients", FuseGradientsOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>GradientHistogram",
                      GradientHistogramOp);
TF_GC_REGISTER(DEVICE_CPU, "TfGc>StoreResiduals", StoreResidualsOp);
TF_GC_REGISTER_FLOATS(DEVICE_CPU, "TfGc>UnfuseGradients", UnfuseGradientsOp);

}  // namespace
}  // namespace tf_gc
