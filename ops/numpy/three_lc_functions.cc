// 3LC's kernels for NumPy.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "ops/kernels/quartic.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/kernels/zero_run.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

// The rows' units a and the columns' b, if there are any.
using UnitsArgument = std::optional<std::pair<py::array, py::array>>;

// Those of n values, with the arrays that they lie in.
struct ArrayUnits {
  py::array_t<float> rows;
  py::array_t<float> columns;
  Units units;
};

ArrayUnits RequireUnits(const UnitsArgument& argument, int64_t n) {
  if (!argument) return {};
  ArrayUnits result = {Require<float>(argument->first, "units[0]", "float32"),
                       Require<float>(argument->second, "units[1]", "float32"),
                       {}};
  const int64_t rows = result.rows.size(), columns = result.columns.size();
  int64_t product;
  if (result.rows.ndim() != 1 || result.columns.ndim() != 1 ||
      __builtin_mul_overflow(rows, columns, &product) || product != n) {
    throw py::value_error(
        "units must be two vectors the product of whose sizes is " +
        std::to_string(n) + ", the number of values, got shapes " +
        ToString(argument->first.attr("shape")) + " and " +
        ToString(argument->second.attr("shape")));
  }
  RequirePositive(result.rows, "units[0]");
  RequirePositive(result.columns, "units[1]");
  result.units = {result.rows.data(), result.columns.data(), columns, 0};
  return result;
}

// The arguments that quantising starts from.
struct Inputs {
  py::array_t<float> values;
  py::array_t<float> residual;
  float sparsity_multiplier;
  ArrayUnits units;
};

Inputs RequireInputs(const py::array& values, const py::array& residual,
                     float sparsity_multiplier, const UnitsArgument& units) {
  Inputs inputs = {RequireFloats(values),
                   Require<float>(residual, "residual", "float32"),
                   sparsity_multiplier, RequireUnits(units, values.size())};
  if (ShapeOf(values) != ShapeOf(residual)) {
    throw py::value_error("residual must have the shape of values, " +
                          ToString(values.attr("shape")) + ", got " +
                          ToString(residual.attr("shape")));
  }
  if (!IsSparsityMultiplier(sparsity_multiplier)) {
    throw py::value_error(
        "sparsity_multiplier must be above 0 and less than 2, got " +
        ToString(py::float_(sparsity_multiplier)));
  }
  return inputs;
}

ByteArray PyQuarticEncode(const py::array& ternary) {
  const auto values = Require<int8_t>(ternary, "ternary", "int8");
  const int64_t n = values.size();
  const int8_t* in = values.data();
  ByteArray quartic(QuarticSize(n));
  uint8_t* out = quartic.mutable_data();
  int64_t wrong;
  {
    py::gil_scoped_release release;
    wrong = FindNonTernary(in, n, SingleThread);
    if (wrong < 0) QuarticEncode(in, n, out, SingleThread);
  }
  if (wrong >= 0) {
    throw py::value_error("ternary must hold only -1, 0 and 1, got " +
                          std::to_string(in[wrong]) + " at index " +
                          std::to_string(wrong));
  }
  return quartic;
}

py::array_t<int8_t> PyQuarticDecode(const py::array& encoded,
                                    const Shape& shape) {
  const ByteArray quartic = RequireBytes(encoded, "encoded");
  const int64_t n = CheckedSize(shape);
  if (quartic.size() != QuarticSize(n)) {
    throw py::value_error(
        "encoded must have " + std::to_string(QuarticSize(n)) + " bytes for " +
        std::to_string(n) + " values, got " + std::to_string(quartic.size()));
  }
  const uint8_t* in = quartic.data();
  const int64_t wrong = FindNonQuartic(in, n, SingleThread);
  if (wrong >= 0) {
    throw py::value_error(
        "encoded must hold bytes in 0 ... 242, with padding of 0, got " +
        std::to_string(in[wrong]) + " at index " + std::to_string(wrong));
  }
  py::array_t<int8_t> ternary(shape);
  int8_t* out = ternary.mutable_data();
  py::gil_scoped_release release;
  QuarticDecode(in, n, out, SingleThread);
  return ternary;
}

ByteArray PyZeroRunEncode(const py::array& quartic) {
  const ByteArray bytes = RequireBytes(quartic, "quartic");
  const int64_t m = bytes.size();
  const uint8_t* in = bytes.data();
  const auto buffer = MakeBuffer(m);
  int64_t size = 0;
  int64_t wrong;
  {
    py::gil_scoped_release release;
    // m bytes of 5 values have no padding to check.
    wrong = FindNonQuartic(in, 5 * m, SingleThread);
    if (wrong < 0) size = ZeroRunEncode(in, m, buffer.get(), SingleThread);
  }
  if (wrong >= 0) {
    throw py::value_error("quartic must hold bytes in 0 ... 242, got " +
                          std::to_string(in[wrong]) + " at index " +
                          std::to_string(wrong));
  }
  return CopyBytes(buffer.get(), size);
}

ByteArray PyZeroRunDecode(const py::array& encoded, int64_t size) {
  const ByteArray bytes = RequireBytes(encoded, "encoded");
  if (size < 0) {
    throw py::value_error("size must not be negative, got " +
                          std::to_string(size));
  }
  const int64_t decoded_size =
      ZeroRunDecodedSize(bytes.data(), bytes.size(), SingleThread);
  if (decoded_size != size) {
    throw py::value_error(
        "encoded must stand for size = " + std::to_string(size) +
        " quartic bytes, but stands for " + std::to_string(decoded_size));
  }
  ByteArray quartic(size);
  const uint8_t* in = bytes.data();
  const int64_t in_size = bytes.size();
  uint8_t* out = quartic.mutable_data();
  py::gil_scoped_release release;
  ZeroRunDecode(in, in_size, size, out, SingleThread);
  return quartic;
}

std::pair<ByteArray, py::array_t<float>> PyThreeLcEncode(
    const py::array& values, const py::array& residual,
    float sparsity_multiplier, const UnitsArgument& units) {
  const Inputs inputs =
      RequireInputs(values, residual, sparsity_multiplier, units);
  const int64_t n = inputs.values.size();
  const float* in = inputs.values.data();
  const float* old_residual = inputs.residual.data();
  py::array_t<float> new_residual(ShapeOf(values));
  float* out = new_residual.mutable_data();
  const auto buffer = MakeBuffer(ThreeLcTensorBufferSize(n));
  int64_t size;
  {
    py::gil_scoped_release release;
    size = ThreeLcEncodeTensor(in, old_residual, sparsity_multiplier, n, out,
                               buffer.get(), SingleThread, inputs.units.units);
  }
  return {CopyBytes(buffer.get(), size), std::move(new_residual)};
}

py::array_t<float> PyThreeLcDecode(const py::array& encoded, const Shape& shape,
                                   const UnitsArgument& units) {
  const ByteArray bytes = RequireBytes(encoded, "encoded");
  const int64_t n = CheckedSize(shape);
  const ArrayUnits array_units = RequireUnits(units, n);
  const uint8_t* in = bytes.data();
  const int64_t size = bytes.size();
  const auto check = [&](const char* error) {
    if (error == nullptr) return;
    throw py::value_error("encoded, " + std::to_string(size) + " bytes for " +
                          std::to_string(n) + " values, " + error);
  };
  check(ThreeLcCheckTensor(in, size, n));
  py::array_t<float> values(shape);
  float* out = values.mutable_data();
  const char* error;
  {
    py::gil_scoped_release release;
    error =
        ThreeLcDecodeTensor(in, size, n, out, SingleThread, array_units.units);
  }
  check(error);
  return values;
}

py::tuple PyThreeLcQuantize(const py::array& values, const py::array& residual,
                            float sparsity_multiplier,
                            const UnitsArgument& units) {
  const Inputs inputs =
      RequireInputs(values, residual, sparsity_multiplier, units);
  const int64_t n = inputs.values.size();
  const float* in = inputs.values.data();
  const float* old_residual = inputs.residual.data();
  py::array_t<int8_t> ternary(ShapeOf(values));
  py::array_t<float> new_residual(ShapeOf(values));
  int8_t* q = ternary.mutable_data();
  float* out = new_residual.mutable_data();
  float scale;
  {
    py::gil_scoped_release release;
    scale = ThreeLcScale(in, old_residual, sparsity_multiplier, n, SingleThread,
                         inputs.units.units);
    if (scale == scale) {
      TernaryQuantize(in, old_residual, scale, n, q, out, inputs.units.units);
    } else {
      std::memset(q, 0, n);
      std::memcpy(out, old_residual, n * sizeof(float));
    }
  }
  return py::make_tuple(scale, ternary, new_residual);
}

// ---- Documentation ----------------------------------------------------------

constexpr char kQuarticEncodeDoc[] =
    R"doc(Packs five values of {-1, 0, 1} in one byte.

1 is added to the flattened values, zeros are appended up to a multiple of five,
and the result is cut in five equal partitions p0 ... p4. Then

    quartic[i] = 81 p0[i] + 27 p1[i] + 9 p2[i] + 3 p3[i] + p4[i]

3LC (Lim et al., MLSys 2019), section 3.2.

Args:
  ternary: int8 array of any shape, n values of {-1, 0, 1} in all.

Returns:
  uint8 array [ceil(n / 5)], each byte in 0 ... 242.

Raises:
  TypeError: `ternary` is not an int8 array.
  ValueError: A value is not -1, 0 or 1.)doc";

constexpr char kQuarticDecodeDoc[] =
    R"doc(Unpacks what `quartic_encode` has packed.

Args:
  encoded: uint8 array [ceil(n / 5)] for a shape of n values.
  shape: The shape of the result, a sequence of dimensions.

Returns:
  int8 array of that shape, values of {-1, 0, 1}.

Raises:
  TypeError: `encoded` is not a uint8 array.
  ValueError: `encoded` has not the size that `shape` asks for, or holds a byte
    that `quartic_encode` cannot have written; `shape` has a negative dimension.
)doc";

constexpr char kZeroRunEncodeDoc[] =
    R"doc(Shortens runs of the quartic byte 121, which stands for five zeros.

A run of k bytes 121, 2 <= k <= 14, becomes the byte 243 + (k - 2); longer runs
are cut in 14s, and other bytes stay. 3LC (Lim et al., MLSys 2019), section 3.3.

Args:
  quartic: uint8 array [m], bytes in 0 ... 242.

Returns:
  uint8 array of at most m bytes.

Raises:
  TypeError: `quartic` is not a uint8 array.
  ValueError: A byte is greater than 242, or `quartic` has not one dimension.)doc";

constexpr char kZeroRunDecodeDoc[] =
    R"doc(Restores what `zero_run_encode` has shortened.

Args:
  encoded: uint8 array [k].
  size: The number m of quartic bytes.

Returns:
  uint8 array [m], bytes in 0 ... 242.

Raises:
  TypeError: `encoded` is not a uint8 array.
  ValueError: `encoded` stands for fewer or more than `size` bytes, or has not
    one dimension; `size` is negative.)doc";

constexpr char kThreeLcEncodeDoc[] =
    R"doc(Encodes values + residual with 3LC, and keeps what was not sent.

    t = values + residual
    M = sparsity_multiplier * max |t / u|
    q = sign(t) where 2 |t| > M u, else 0
    new_residual = t - M u q
    encoded = M, zero_run_encode(quartic_encode(q))

with units u of 1, or, of the values as a matrix, u_ij = a_i b_j; in float32 arithmetic, whatever the type of `values`. If some t / u is not finite,
or M overflows, the scale M is sent as NaN without a payload and the residual
stays as it was. 3LC (Lim et al., MLSys 2019), section 3.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  residual: float32 array of the same shape.
  sparsity_multiplier: s, 0 < s < 2. The greater it is, the fewer bytes are
    sent, and the later small values arrive. Below 1, values above M u are cut.
  units: The float32 vectors a and b, above 0, of all rows and of all columns of
    the values; None for units of 1.

Returns:
  A tuple of
    encoded: uint8 array, 4 bytes of scale (little-endian float32) and the
      payload of at most one byte for five values;
    new_residual: float32 array of the same shape.

Raises:
  TypeError: `values` or `residual` is not an array of such a dtype.
  ValueError: The shapes differ, or the sparsity multiplier is out of range.)doc";

constexpr char kThreeLcDecodeDoc[] =
    R"doc(Decodes what `three_lc_encode` has encoded: M u q.

Args:
  encoded: uint8 array, the scale and the payload.
  shape: The shape of the result, a sequence of dimensions.
  units: The vectors a and b that were given to `three_lc_encode`, or None.

Returns:
  float32 array of that shape: values of {-M u, 0, M u}, or NaN everywhere if
  the scale is NaN.

Raises:
  TypeError: `encoded` is not a uint8 array.
  ValueError: `encoded` is truncated, too long for `shape`, or not such an
    encoding; `shape` has a negative dimension; `units` are of other sizes.)doc";

constexpr char kThreeLcQuantizeDoc[] =
    R"doc(Computes what `three_lc_encode` sends, without packing it.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  residual: float32 array of the same shape.
  sparsity_multiplier: s, 0 < s < 2.
  units: The vectors a and b of `three_lc_encode`, or None.

Returns:
  A tuple of
    scale: M as a float, NaN if `three_lc_encode` would send no payload;
    ternary: int8 array of the same shape, q; zeros if there is no payload;
    new_residual: float32 array of the same shape.

Raises:
  TypeError: `values` or `residual` is not an array of such a dtype.
  ValueError: The shapes differ, or the sparsity multiplier is out of range.)doc";

}  // namespace

void AddThreeLcFunctions(py::module_& module) {
  module.def("quartic_encode", PyQuarticEncode, py::arg("ternary"),
             kQuarticEncodeDoc);
  module.def("quartic_decode", PyQuarticDecode, py::arg("encoded"),
             py::arg("shape"), kQuarticDecodeDoc);
  module.def("zero_run_encode", PyZeroRunEncode, py::arg("quartic"),
             kZeroRunEncodeDoc);
  module.def("zero_run_decode", PyZeroRunDecode, py::arg("encoded"),
             py::arg("size"), kZeroRunDecodeDoc);
  module.def("three_lc_encode", PyThreeLcEncode, py::arg("values"),
             py::arg("residual"), py::arg("sparsity_multiplier"),
             py::arg("units") = py::none(), kThreeLcEncodeDoc);
  module.def("three_lc_decode", PyThreeLcDecode, py::arg("encoded"),
             py::arg("shape"), py::arg("units") = py::none(),
             kThreeLcDecodeDoc);
  module.def("three_lc_quantize", PyThreeLcQuantize, py::arg("values"),
             py::arg("residual"), py::arg("sparsity_multiplier"),
             py::arg("units") = py::none(), kThreeLcQuantizeDoc);
}

}  // namespace tf_gc::kernels
