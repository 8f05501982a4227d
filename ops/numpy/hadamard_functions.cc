// The Hadamard transforms for NumPy.

#include <cstdint>

#include "ops/kernels/hadamard.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

// transform(values, rows, size, transformed) on float32, as an array of the
// dtype of `values`.
template <typename Transform>
py::object TransformValues(const py::array& values,
                           const Transform& transform) {
  const py::array_t<float> floats = RequireFloats(values);
  const int64_t size = values.ndim() > 0 ? values.shape(values.ndim() - 1) : 0;
  if (!IsHadamardSize(size)) {
    throw py::value_error(
        "values must have a power of two as the size of the last axis, got "
        "shape " +
        ToString(values.attr("shape")));
  }
  const int64_t rows = floats.size() / size;
  const float* in = floats.data();
  py::array_t<float> transformed(ShapeOf(values));
  float* out = transformed.mutable_data();
  {
    py::gil_scoped_release release;
    transform(in, rows, size, out);
  }
  return transformed.attr("astype")(values.dtype(), py::arg("copy") = false);
}

py::object PyHadamard(const py::array& values) {
  return TransformValues(
      values, [](const float* in, int64_t rows, int64_t size, float* out) {
        Hadamard(in, rows, size, out, SingleThread);
      });
}

py::object PyRandomizedHadamard(const py::array& values,
                                const py::object& seed) {
  const Seed words = RequireSeed(seed);
  return TransformValues(
      values, [=](const float* in, int64_t rows, int64_t size, float* out) {
        RandomizedHadamard(in, rows, size, words, out, SingleThread);
      });
}

py::object PyInverseRandomizedHadamard(const py::array& values,
                                       const py::object& seed) {
  const Seed words = RequireSeed(seed);
  return TransformValues(
      values, [=](const float* in, int64_t rows, int64_t size, float* out) {
        InverseRandomizedHadamard(in, rows, size, words, out, SingleThread);
      });
}

// ---- Documentation ----------------------------------------------------------

constexpr char kHadamardDoc[] =
    R"doc(Computes the orthonormal Walsh-Hadamard transform of the last axis.

    H_1 = (1),  H_2m = (H_m  H_m; H_m  -H_m)
    transformed = size^(-1/2) H_size values

in float32 arithmetic, whatever the type of `values`; each row of the last axis
by itself. Up to rounding it is its own inverse and keeps norms.

Args:
  values: float32, float16 or bfloat16 array [..., size], `size` a power of two,
    at least 1.

Returns:
  Array of the same dtype and shape. A row that has a NaN is all NaN.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has no dimensions, or the last one is not a power of two.)doc";

constexpr char kRandomizedHadamardDoc[] =
    R"doc(Changes random signs, then computes the Walsh-Hadamard transform.

    transformed = H D values

with the H of `hadamard` and D a diagonal of random signs. It spreads every
row's energy over all of its values. Suresh et al., "Distributed mean estimation
with limited communication", ICML 2017, section 3.

Value i of the flattened array changes its sign where the bit i % 32 of the word
i / 32 of TensorFlow's Philox stream with the key and counter of `seed` is 1.

Args:
  values: float32, float16 or bfloat16 array [..., size], `size` a power of two,
    at least 1.
  seed: An integer (the key), or two of them (key and stream).

Returns:
  Array of the same dtype and shape. A row that has a NaN is all NaN.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has no dimensions, or the last one is not a power of two;
    `seed` is something else.)doc";

constexpr char kInverseRandomizedHadamardDoc[] =
    R"doc(Restores what `randomized_hadamard` has transformed, up to rounding.

    transformed = D H values

Args:
  values: float32, float16 or bfloat16 array [..., size], `size` a power of two,
    at least 1.
  seed: The seed that `randomized_hadamard` got.

Returns:
  Array of the same dtype and shape. A row that has a NaN is all NaN.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has no dimensions, or the last one is not a power of two;
    `seed` is something else.)doc";

}  // namespace

void AddHadamardFunctions(py::module_& module) {
  module.def("hadamard", PyHadamard, py::arg("values"), kHadamardDoc);
  module.def("randomized_hadamard", PyRandomizedHadamard, py::arg("values"),
             py::arg("seed"), kRandomizedHadamardDoc);
  module.def("inverse_randomized_hadamard", PyInverseRandomizedHadamard,
             py::arg("values"), py::arg("seed"), kInverseRandomizedHadamardDoc);
}

}  // namespace tf_gc::kernels
