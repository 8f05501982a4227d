// Second moments from those of rows and columns, for NumPy.

#include <cstdint>
#include <string>

#include "ops/kernels/second_moment.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

using FloatArray = py::array_t<float>;

// The columns of a matrix of `size` values.
int64_t RequireColumns(int64_t size, int64_t rows) {
  if (rows >= 1 && size >= 1 && size % rows == 0) return size / rows;
  throw py::value_error("rows must divide the number of values, " +
                        std::to_string(size) + ", got " + std::to_string(rows));
}

FloatArray PyMeanSquares(const py::array& values, int64_t rows) {
  const auto floats = RequireFloats(values);
  const int64_t columns = RequireColumns(floats.size(), rows);
  const float* in = floats.data();
  FloatArray statistics(rows + columns);
  float* out = statistics.mutable_data();
  py::gil_scoped_release release;
  MeanSquares(in, rows, columns, out, SingleThread);
  return statistics;
}

FloatArray PySecondMomentUnits(const py::array& statistics, int64_t rows) {
  const auto floats = Require<float>(statistics, "statistics", "float32");
  const int64_t columns = floats.size() - rows;
  if (rows < 1 || columns < 1) {
    throw py::value_error(
        "rows must be in 1 ... the number of statistics - 1, " +
        std::to_string(floats.size() - 1) + ", got " + std::to_string(rows));
  }
  RequirePositive(floats, "statistics", /*allow_zero=*/true);
  const float* in = floats.data();
  FloatArray units(rows + columns);
  float* out = units.mutable_data();
  py::gil_scoped_release release;
  SecondMomentUnits(in, rows, columns, out);
  return units;
}

// ---- Documentation ----------------------------------------------------------

constexpr char kMeanSquaresDoc[] =
    R"doc(Computes the means of the squares of a matrix' rows and columns.

Args:
  values: float32, float16 or bfloat16 array of any shape, taken as a matrix of so
    many rows.
  rows: Their number.

Returns:
  float32 array: the means of the rows, then those of the columns.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `rows` does not divide the number of values, or there are none.)doc";

constexpr char kSecondMomentUnitsDoc[] =
    R"doc(Computes the units u_ij = a_i b_j in which a matrix' values are compared.

    a_i = sqrt(max(r_i, e mean(r)) / mean(r)),  b_j = sqrt(max(c_j, e mean(c)))

with e = 10^-6; all are 1 if a mean is 0.

Args:
  statistics: float32 array: r, the means of the rows' squares, then c, those of
    the columns'.
  rows: The number of rows.

Returns:
  float32 array: a, then b.

Raises:
  TypeError: `statistics` is not a float32 array.
  ValueError: There are no more statistics than rows, or one is negative or not
    finite.)doc";

}  // namespace

void AddSecondMomentFunctions(py::module_& module) {
  module.def("mean_squares", PyMeanSquares, py::arg("values"), py::arg("rows"),
             kMeanSquaresDoc);
  module.def("second_moment_units", PySecondMomentUnits, py::arg("statistics"),
             py::arg("rows"), kSecondMomentUnitsDoc);
}

}  // namespace tf_gc::kernels
