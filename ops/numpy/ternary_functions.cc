// Ternary quantisation for NumPy.

#include <cstdint>

#include "ops/kernels/ternary.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

void RequireScale(float scale) {
  if (IsTernaryScale(scale)) return;
  throw py::value_error("scale must be finite and at least 0, got " +
                        ToString(py::float_(scale)));
}

py::array_t<int8_t> PyTernaryQuantize(const py::array& values, float scale) {
  const auto floats = RequireFloats(values);
  RequireScale(scale);
  const int64_t n = floats.size();
  const float* in = floats.data();
  py::array_t<int8_t> ternary(ShapeOf(values));
  int8_t* out = ternary.mutable_data();
  py::gil_scoped_release release;
  NearestTernary(in, n, scale, out);
  return ternary;
}

py::array_t<int8_t> PyStochasticTernaryQuantize(const py::array& values,
                                                float scale,
                                                const py::object& seed) {
  const auto floats = RequireFloats(values);
  RequireScale(scale);
  const Seed stream = RequireSeed(seed);
  const int64_t n = floats.size();
  const float* in = floats.data();
  py::array_t<int8_t> ternary(ShapeOf(values));
  int8_t* out = ternary.mutable_data();
  py::gil_scoped_release release;
  StochasticTernary(in, n, scale, stream, 0, out);
  return ternary;
}

// ---- Documentation ----------------------------------------------------------

constexpr char kTernaryQuantizeDoc[] =
    R"doc(Quantises values to the nearest of -scale, 0 and scale.

    ternary = sign(values) where 2 |values| > scale, else 0

Half of the scale goes to 0, as does NaN; with the scale 0 all do. It is what
3LC (Lim et al., MLSys 2019), section 3.1, sends for the scale M.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  scale: A finite float32 number, at least 0.

Returns:
  int8 array of that shape, values of {-1, 0, 1}.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `scale` is negative or not finite.)doc";

constexpr char kStochasticTernaryQuantizeDoc[] =
    R"doc(Quantises values to -scale, 0 or scale at random, without bias.

    ternary = sign(values) with probability min(|values| / scale, 1), else 0

so that scale * ternary is an unbiased estimate of a value that is not greater
than the scale. The probability is exact but for 2^-17: |value| is compared with
r scale, and r takes the 2^16 values (u + 0.5) / 2^16. NaN gives 0, infinity its
sign; with the scale 0 all give 0.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  scale: A finite float32 number, at least 0.
  seed: An integer, or two of them: the key and the stream of the Philox
    generator. The same seed gives the same result.

Returns:
  int8 array of that shape, values of {-1, 0, 1}.

Raises:
  TypeError: `values` is not an array of such a dtype.
  ValueError: `scale` is negative or not finite, or the seed is no integer or
    two.)doc";

}  // namespace

void AddTernaryFunctions(py::module_& module) {
  module.def("ternary_quantize", PyTernaryQuantize, py::arg("values"),
             py::arg("scale"), kTernaryQuantizeDoc);
  module.def("stochastic_ternary_quantize", PyStochasticTernaryQuantize,
             py::arg("values"), py::arg("scale"), py::arg("seed"),
             kStochasticTernaryQuantizeDoc);
}

}  // namespace tf_gc::kernels
