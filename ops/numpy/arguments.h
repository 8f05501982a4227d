// What the functions of tf_gc.kernels do with their arguments and results.

#ifndef TF_GC_OPS_NUMPY_ARGUMENTS_H_
#define TF_GC_OPS_NUMPY_ARGUMENTS_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/kernels/philox.h"

namespace tf_gc::kernels {

namespace py = ::pybind11;

using Shape = std::vector<py::ssize_t>;
using ByteArray = py::array_t<uint8_t>;

// ---- Arguments --------------------------------------------------------------

inline std::string ToString(const py::handle& object) {
  return py::str(object);
}

inline Shape ShapeOf(const py::array& array) {
  return Shape(array.shape(), array.shape() + array.ndim());
}

// Whether the array holds values of T. dtypes that come from another process
// are equal to NumPy's own, but other objects.
template <typename T>
bool HasType(const py::array& array) {
  return array.dtype().equal(py::dtype::of<T>());
}

// `array` in C order, as an array of T.
template <typename T>
py::array_t<T> Require(const py::array& array, const char* name,
                       const char* dtype) {
  if (!HasType<T>(array)) {
    throw py::type_error(std::string(name) + " must have dtype " + dtype +
                         ", got " + ToString(array.dtype()));
  }
  return py::array_t<T, py::array::c_style | py::array::forcecast>(array);
}

inline ByteArray RequireBytes(const py::array& array, const char* name) {
  if (array.ndim() != 1) {
    throw py::value_error(std::string(name) +
                          " must have one dimension, got shape " +
                          ToString(array.attr("shape")));
  }
  return Require<uint8_t>(array, name, "uint8");
}

// Refuses values that are not finite and above 0, or at least 0 if
// `allow_zero`.
inline void RequirePositive(const py::array_t<float>& values,
                            const std::string& name, bool allow_zero = false) {
  for (int64_t i = 0; i < values.size(); ++i) {
    const float value = values.data()[i];
    const bool is_good = value > 0 || (allow_zero && value == 0);
    if (is_good && std::isfinite(value)) continue;
    throw py::value_error(name + " must be finite and " +
                          (allow_zero ? "at least" : "above") + " 0, got " +
                          ToString(py::float_(value)) + " at index " +
                          std::to_string(i));
  }
}

// `values` as float32. float16 and bfloat16 are exact there.
inline py::array_t<float> RequireFloats(const py::array& values) {
  const std::string dtype = ToString(values.dtype());
  if (dtype != "float32" && dtype != "float16" && dtype != "bfloat16") {
    throw py::type_error(
        "values must have dtype float32, float16 or bfloat16, got " + dtype);
  }
  return py::array_t<float, py::array::c_style | py::array::forcecast>(values);
}

// The number of values of `shape`, of which n bytes can be counted.
inline int64_t CheckedSize(const Shape& shape) {
  int64_t size = 1;
  for (const py::ssize_t dimension : shape) {
    if (dimension < 0) {
      throw py::value_error(
          "shape must not have negative dimensions, got one of " +
          std::to_string(dimension));
    }
    int64_t product;
    if (__builtin_mul_overflow(size, dimension, &product) ||
        product > INT64_MAX / static_cast<int64_t>(sizeof(float))) {
      throw py::value_error("shape must have fewer than 2^61 values, got " +
                            std::to_string(dimension) + " times " +
                            std::to_string(size));
    }
    size = product;
  }
  return size;
}

// A seed: an integer of 64 bits, or two of them.
inline Seed RequireSeed(const py::object& seed) {
  const auto words =
      py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(
          py::array(seed));
  const char kind = py::array(seed).dtype().kind();
  const bool is_integer =
      words && (kind == 'i' || kind == 'u' || words.size() == 0);
  if (!is_integer || words.ndim() > 1 ||
      (words.ndim() == 1 && words.size() != 2)) {
    PyErr_Clear();
    throw py::value_error(
        "seed must be an integer of 64 bits or two of them, got " +
        ToString(py::repr(seed)));
  }
  const int64_t* word = words.data();
  return {static_cast<uint64_t>(word[0]),
          words.ndim() == 1 ? static_cast<uint64_t>(word[1]) : 0};
}

// ---- Results ----------------------------------------------------------------

// Room that need not be cleared.
inline std::unique_ptr<uint8_t[]> MakeBuffer(int64_t size) {
  return std::unique_ptr<uint8_t[]>(new uint8_t[size]);
}

inline ByteArray CopyBytes(const uint8_t* bytes, int64_t size) {
  ByteArray array(size);
  if (size > 0) std::memcpy(array.mutable_data(), bytes, size);
  return array;
}

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_NUMPY_ARGUMENTS_H_
