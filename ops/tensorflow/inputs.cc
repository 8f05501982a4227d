#include "ops/tensorflow/inputs.h"

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_gc {
namespace {

using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::TensorShapeUtils;
using ::tensorflow::thread::ThreadPool;

int64_t Element(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == tensorflow::DT_INT32 ? tensor.flat<int32_t>()(i)
                                                : tensor.flat<int64_t>()(i);
}

// How to share out work whose units have this cost. TensorFlow 2.20 and later
// have a name for it, and warn of the constructor.
template <typename Params>
auto Adaptive(int64_t cost, int) -> decltype(Params::Adaptive(cost)) {
  return Params::Adaptive(cost);
}
template <typename Params>
Params Adaptive(int64_t cost, ...) {
  return Params(ThreadPool::SchedulingStrategy::kAdaptive, cost, std::nullopt);
}

}  // namespace

absl::Status CheckVector(const Tensor& tensor, const char* name) {
  if (tensor.dims() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must be a vector, got shape ", tensor.shape().DebugString()));
}

absl::Status CheckScalar(const Tensor& tensor, const char* name) {
  if (tensor.dims() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must be a scalar, got shape ", tensor.shape().DebugString()));
}

absl::Status GetSizes(tensorflow::OpKernelConstruction* context,
                      std::vector<int64_t>* sizes) {
  TF_RETURN_IF_ERROR(context->GetAttr("sizes", sizes));
  const auto wrong = std::find_if(sizes->begin(), sizes->end(),
                                  [](int64_t size) { return size < 0; });
  if (wrong == sizes->end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sizes must be at least 0, got ", *wrong));
}

absl::Status ReadShape(const Tensor& tensor, TensorShape* shape) {
  TF_RETURN_IF_ERROR(CheckVector(tensor, "shape"));
  const int64_t dims = tensor.NumElements();
  const absl::Status status =
      tensor.dtype() == tensorflow::DT_INT32
          ? TensorShapeUtils::MakeShape(tensor.flat<int32_t>().data(), dims,
                                        shape)
          : TensorShapeUtils::MakeShape(tensor.flat<int64_t>().data(), dims,
                                        shape);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("shape is not one of a tensor: ", status.message()));
}

absl::Status ReadInteger(const Tensor& tensor, const char* name,
                         int64_t* value) {
  TF_RETURN_IF_ERROR(CheckScalar(tensor, name));
  *value = Element(tensor, 0);
  return absl::OkStatus();
}

absl::Status ReadCount(const Tensor& tensor, const char* name, int64_t* count) {
  TF_RETURN_IF_ERROR(ReadInteger(tensor, name, count));
  if (*count >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must not be negative, got ", *count));
}

absl::Status ReadSeed(const Tensor& tensor, kernels::Seed* seed) {
  const bool has_stream = tensor.dims() == 1 && tensor.NumElements() == 2;
  if (tensor.dims() != 0 && !has_stream) {
    return absl::InvalidArgumentError(
        absl::StrCat("seed must be a scalar or a vector of two, got shape ",
                     tensor.shape().DebugString()));
  }
  seed->key = Element(tensor, 0);
  seed->stream = has_stream ? Element(tensor, 1) : 0;
  return absl::OkStatus();
}

absl::Status CheckSeedShape(
    tensorflow::shape_inference::InferenceContext* context, int index) {
  tensorflow::shape_inference::ShapeHandle seed;
  TF_RETURN_IF_ERROR(context->WithRankAtMost(context->input(index), 1, &seed));
  if (!context->RankKnown(seed) || context->Rank(seed) == 0) {
    return absl::OkStatus();
  }
  tensorflow::shape_inference::DimensionHandle two;
  return context->WithValue(context->Dim(seed, 0), 2, &two);
}

absl::Status CheckScalarShapes(
    tensorflow::shape_inference::InferenceContext* context, int begin,
    int end) {
  tensorflow::shape_inference::ShapeHandle scalar;
  for (int i = begin; i < end; ++i) {
    TF_RETURN_IF_ERROR(context->WithRank(context->input(i), 0, &scalar));
  }
  return absl::OkStatus();
}

kernels::ParallelFor IntraOpThreads(tensorflow::OpKernelContext* context) {
  ThreadPool* const threads =
      context->device()->tensorflow_cpu_worker_threads()->workers;
  return [threads](int64_t total, int64_t cost,
                   const kernels::ParallelWork& work) {
    // Eager ops may run on the caller's thread, in whatever modes it has.
    const unsigned modes = _mm_getcsr();
    // Nobody catches what is thrown on the pool's threads.
    std::atomic<bool> lacks_memory = false;
    threads->ParallelFor(total, Adaptive<ThreadPool::SchedulingParams>(cost, 0),
                         [&](int64_t begin, int64_t end) {
                           const unsigned own_modes = _mm_getcsr();
                           _mm_setcsr(modes);
                           try {
                             work(begin, end);
                           } catch (const std::bad_alloc&) {
                             lacks_memory = true;
                           }
                           _mm_setcsr(own_modes);
                         });
    if (lacks_memory) throw std::bad_alloc();
  };
}

}  // namespace tf_gc
