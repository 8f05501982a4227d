// Selection and the packing of indices for NumPy.

#include <cstdint>
#include <string>

#include "ops/kernels/chunk_argmax.h"
#include "ops/kernels/index_packing.h"
#include "ops/kernels/magnitude_histogram.h"
#include "ops/kernels/top_k.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

using IndexArray = py::array_t<int32_t>;

py::array_t<float> RequireFloatVector(const py::array& values) {
  if (values.ndim() != 1) {
    throw py::value_error("values must have one dimension, got shape " +
                          ToString(values.attr("shape")));
  }
  if (values.size() > kMaxPackedSize) {
    throw py::value_error("values must be fewer than 2^31, got " +
                          std::to_string(values.size()));
  }
  return RequireFloats(values);
}

void RequireWithin(const char* name, int64_t value, int64_t smallest,
                   int64_t largest) {
  if (value >= smallest && value <= largest) return;
  throw py::value_error(
      std::string(name) + " must be in " + std::to_string(smallest) + " ... " +
      std::to_string(largest) + ", got " + std::to_string(value));
}

IndexArray PyTopKIndices(const py::array& values, int64_t k) {
  const auto floats = RequireFloatVector(values);
  const int64_t n = floats.size();
  RequireWithin("k", k, 0, n);
  const float* in = floats.data();
  IndexArray indices(k);
  int32_t* out = indices.mutable_data();
  py::gil_scoped_release release;
  TopKIndices(in, n, k, out, SingleThread);
  return indices;
}

IndexArray PyChunkArgmax(const py::array& values, int64_t chunk) {
  const auto floats = RequireFloatVector(values);
  RequireWithin("chunk", chunk, 1, INT64_MAX);
  const int64_t n = floats.size();
  const float* in = floats.data();
  IndexArray indices(NumChunks(n, chunk));
  int32_t* out = indices.mutable_data();
  py::gil_scoped_release release;
  ChunkArgmax(in, n, chunk, out, SingleThread);
  return indices;
}

py::tuple PyMagnitudeHistogram(const py::array& values) {
  const auto floats = RequireFloatVector(values);
  const int64_t n = floats.size();
  const float* in = floats.data();
  py::array_t<int64_t> counts(kMagnitudeBins);
  py::array_t<double> squares(kMagnitudeBins);
  int64_t* counts_out = counts.mutable_data();
  double* squares_out = squares.mutable_data();
  {
    py::gil_scoped_release release;
    MagnitudeHistogram(in, n, counts_out, squares_out, SingleThread);
  }
  return py::make_tuple(counts, squares);
}

ByteArray PyPackIndices(const py::array& indices, int64_t size) {
  if (indices.ndim() != 1) {
    throw py::value_error("indices must have one dimension, got shape " +
                          ToString(indices.attr("shape")));
  }
  const auto array = Require<int32_t>(indices, "indices", "int32");
  RequireWithin("size", size, 0, kMaxPackedSize);
  const int32_t* in = array.data();
  const int64_t k = array.size();
  const int64_t wrong = FindNotAscending(in, k, size);
  if (wrong >= 0) {
    throw py::value_error(
        "indices must ascend strictly and be in 0 ... size - 1 = " +
        std::to_string(size - 1) + ", got " + std::to_string(in[wrong]) +
        " at position " + std::to_string(wrong));
  }
  ByteArray packed(PackedIndicesSize(k, size));
  uint8_t* out = packed.mutable_data();
  py::gil_scoped_release release;
  PackIndices(in, k, size, out);
  return packed;
}

IndexArray PyUnpackIndices(const py::array& packed, int64_t count,
                           int64_t size) {
  const ByteArray bytes = RequireBytes(packed, "packed");
  RequireWithin("size", size, 0, kMaxPackedSize);
  RequireWithin("count", count, 0, size);
  const std::string numbers = " for " + std::to_string(count) +
                              " indices below " + std::to_string(size);
  const int64_t expected = PackedIndicesSize(count, size);
  if (bytes.size() != expected) {
    throw py::value_error("packed must have " + std::to_string(expected) +
                          " bytes" + numbers + ", got " +
                          std::to_string(bytes.size()));
  }
  const uint8_t* in = bytes.data();
  IndexArray indices(count);
  int32_t* out = indices.mutable_data();
  const char* error;
  {
    py::gil_scoped_release release;
    error = UnpackIndices(in, count, size, out);
  }
  if (error != nullptr) {
    throw py::value_error("packed, " + std::to_string(expected) + " bytes" +
                          numbers + ", " + error);
  }
  return indices;
}

// ---- Documentation ----------------------------------------------------------

constexpr char kTopKIndicesDoc[] =
    R"doc(Finds the k values of the largest magnitude, exactly.

Magnitudes are compared by the bits of |value|: NaN counts as larger than
infinity, and -0 = +0. Of equal magnitudes the lower indices come first.

Args:
  values: float32, float16 or bfloat16 array [n], n < 2^31.
  k: How many of them, 0 ... n.

Returns:
  int32 array [k], their indices in ascending order.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has not one dimension, or k is out of range.)doc";

constexpr char kChunkArgmaxDoc[] =
    R"doc(Finds the value of the largest magnitude in each chunk of values.

    indices[c] = c chunk + argmax_j |values[c chunk + j]|,  0 <= j < chunk

The last chunk may be shorter. Magnitudes are compared by the bits of |value|:
NaN counts as larger than infinity, and -0 = +0. Of equal magnitudes the lowest
index is taken. ScaleCom (Chen et al., NeurIPS 2020), section 3.

Args:
  values: float32, float16 or bfloat16 array [n], n < 2^31.
  chunk: The number of values in a chunk, at least 1.

Returns:
  int32 array [ceil(n / chunk)] of indices of `values`.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has not one dimension, or `chunk` is less than 1.)doc";

constexpr char kMagnitudeHistogramDoc[] =
    R"doc(Counts values, and adds up their squares, by their magnitude.

A bin has the magnitudes of one exponent and of the same upper 5 bits of the
mantissa of float32: bin b those from 2^(b // 32 - 127) (1 + b % 32 / 32) on, up
to where bin b + 1 begins, 1.6 to 3.1 % above. Zeros, and denormal numbers, whose
squares count as 0, are in bins 0 ... 31. Values that are not finite are in no
bin.

Args:
  values: float32, float16 or bfloat16 array [n], n < 2^31.

Returns:
  The counts, int64 [8160], and the sums of squares, float64 [8160]: each square
  is rounded down by at most 2^-29 of itself, and added exactly.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `values` has not one dimension.)doc";

constexpr char kPackIndicesDoc[] =
    R"doc(Packs a set of indices as a bitmap or in Elias-Fano form.

Whichever is smaller is taken: at most size bits in all, and about
2 + log2(size / k) for each of k indices where they are few. The form follows
from k and `size`, which the bytes do not hold.

Args:
  indices: int32 array [k], strictly ascending, in 0 ... size - 1.
  size: What all indices are below, at most 2^31 - 1.

Returns:
  uint8 array; its size follows from k and `size`.

Raises:
  TypeError: `indices` is not an int32 array.
  ValueError: An index does not ascend, or is out of range; `indices` has not
    one dimension; `size` is out of range.)doc";

constexpr char kUnpackIndicesDoc[] =
    R"doc(Unpacks what `pack_indices` has packed.

Args:
  packed: uint8 array.
  count: The number of indices, 0 ... size.
  size: What all indices are below, at most 2^31 - 1.

Returns:
  int32 array [count], strictly ascending, in 0 ... size - 1.

Raises:
  TypeError: `packed` is not a uint8 array.
  ValueError: `packed` has not the size that `count` and `size` ask for, or
    holds what `pack_indices` cannot have written; `count` or `size` is out of
    range.)doc";

}  // namespace

void AddSelectionFunctions(py::module_& module) {
  module.def("top_k_indices", PyTopKIndices, py::arg("values"), py::arg("k"),
             kTopKIndicesDoc);
  module.def("chunk_argmax", PyChunkArgmax, py::arg("values"), py::arg("chunk"),
             kChunkArgmaxDoc);
  module.def("magnitude_histogram", PyMagnitudeHistogram, py::arg("values"),
             kMagnitudeHistogramDoc);
  module.def("pack_indices", PyPackIndices, py::arg("indices"), py::arg("size"),
             kPackIndicesDoc);
  module.def("unpack_indices", PyUnpackIndices, py::arg("packed"),
             py::arg("count"), py::arg("size"), kUnpackIndicesDoc);
}

}  // namespace tf_gc::kernels
