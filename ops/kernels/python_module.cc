// The kernels for NumPy: the extension module tf_gc.kernels.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/kernels/dispatch.h"
#include "ops/kernels/quartic.h"
#include "ops/kernels/three_lc.h"
#include "ops/kernels/three_lc_tensor.h"
#include "ops/kernels/zero_run.h"

namespace tf_gc::kernels {
namespace {

namespace py = ::pybind11;

using Shape = std::vector<py::ssize_t>;
using ByteArray = py::array_t<uint8_t>;

// ---- Arguments --------------------------------------------------------------

std::string ToString(const py::handle& object) { return py::str(object); }

Shape ShapeOf(const py::array& array) {
  return Shape(array.shape(), array.shape() + array.ndim());
}

// `array` in C order, as an array of T.
template <typename T>
py::array_t<T> Require(const py::array& array, const char* name,
                       const char* dtype) {
  if (!array.dtype().is(py::dtype::of<T>())) {
    throw py::type_error(std::string(name) + " must have dtype " + dtype +
                         ", got " + ToString(array.dtype()));
  }
  return py::array_t<T, py::array::c_style | py::array::forcecast>(array);
}

ByteArray RequireBytes(const py::array& array, const char* name) {
  if (array.ndim() != 1) {
    throw py::value_error(std::string(name) +
                          " must have one dimension, got shape " +
                          ToString(array.attr("shape")));
  }
  return Require<uint8_t>(array, name, "uint8");
}

// `values` as float32. float16 and bfloat16 are exact there.
py::array_t<float> RequireFloats(const py::array& values) {
  const std::string dtype = ToString(values.dtype());
  if (dtype != "float32" && dtype != "float16" && dtype != "bfloat16") {
    throw py::type_error(
        "values must have dtype float32, float16 or bfloat16, got " + dtype);
  }
  return py::array_t<float, py::array::c_style | py::array::forcecast>(values);
}

// The number of values of `shape`, of which n bytes can be counted.
int64_t CheckedSize(const Shape& shape) {
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

// The arguments that quantising starts from.
struct Inputs {
  py::array_t<float> values;
  py::array_t<float> residual;
  float sparsity_multiplier;
};

Inputs RequireInputs(const py::array& values, const py::array& residual,
                     float sparsity_multiplier) {
  Inputs inputs = {RequireFloats(values),
                   Require<float>(residual, "residual", "float32"),
                   sparsity_multiplier};
  if (ShapeOf(values) != ShapeOf(residual)) {
    throw py::value_error("residual must have the shape of values, " +
                          ToString(values.attr("shape")) + ", got " +
                          ToString(residual.attr("shape")));
  }
  if (!IsSparsityMultiplier(sparsity_multiplier)) {
    throw py::value_error(
        "sparsity_multiplier must be at least 1 and less than 2, got " +
        ToString(py::float_(sparsity_multiplier)));
  }
  return inputs;
}

// ---- Results ----------------------------------------------------------------

// Room that need not be cleared.
std::unique_ptr<uint8_t[]> MakeBuffer(int64_t size) {
  return std::unique_ptr<uint8_t[]>(new uint8_t[size]);
}

ByteArray CopyBytes(const uint8_t* bytes, int64_t size) {
  ByteArray array(size);
  if (size > 0) std::memcpy(array.mutable_data(), bytes, size);
  return array;
}

// ---- Functions --------------------------------------------------------------

ByteArray PyQuarticEncode(const py::array& ternary) {
  const auto values = Require<int8_t>(ternary, "ternary", "int8");
  const int64_t n = values.size();
  const int8_t* in = values.data();
  ByteArray quartic(QuarticSize(n));
  uint8_t* out = quartic.mutable_data();
  int64_t wrong;
  {
    py::gil_scoped_release release;
    wrong = FindNonTernary(in, n);
    if (wrong < 0) QuarticEncode(in, n, out);
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
  const int64_t wrong = FindNonQuartic(in, n);
  if (wrong >= 0) {
    throw py::value_error(
        "encoded must hold bytes in 0 ... 242, with padding of 0, got " +
        std::to_string(in[wrong]) + " at index " + std::to_string(wrong));
  }
  py::array_t<int8_t> ternary(shape);
  int8_t* out = ternary.mutable_data();
  py::gil_scoped_release release;
  QuarticDecode(in, n, out);
  return ternary;
}

ByteArray PyZeroRunEncode(const py::array& quartic) {
  const ByteArray bytes = RequireBytes(quartic, "quartic");
  const int64_t m = bytes.size();
  const uint8_t* in = bytes.data();
  const auto buffer = MakeBuffer(ZeroRunBufferSize(m));
  int64_t size = 0;
  int64_t wrong;
  {
    py::gil_scoped_release release;
    // m bytes of 5 values have no padding to check.
    wrong = FindNonQuartic(in, 5 * m);
    if (wrong < 0) size = ZeroRunEncode(in, m, buffer.get());
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
  const int64_t decoded_size = ZeroRunDecodedSize(bytes.data(), bytes.size());
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
  ZeroRunDecode(in, in_size, size, out);
  return quartic;
}

std::pair<ByteArray, py::array_t<float>> PyThreeLcEncode(
    const py::array& values, const py::array& residual,
    float sparsity_multiplier) {
  const Inputs inputs = RequireInputs(values, residual, sparsity_multiplier);
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
                               buffer.get());
  }
  return {CopyBytes(buffer.get(), size), std::move(new_residual)};
}

py::array_t<float> PyThreeLcDecode(const py::array& encoded,
                                   const Shape& shape) {
  const ByteArray bytes = RequireBytes(encoded, "encoded");
  const int64_t n = CheckedSize(shape);
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
    error = ThreeLcDecodeTensor(in, size, n, out);
  }
  check(error);
  return values;
}

py::tuple PyThreeLcQuantize(const py::array& values, const py::array& residual,
                            float sparsity_multiplier) {
  const Inputs inputs = RequireInputs(values, residual, sparsity_multiplier);
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
    scale = ThreeLcScale(in, old_residual, sparsity_multiplier, n);
    if (scale == scale) {
      TernaryQuantize(in, old_residual, scale, n, q, out);
    } else {
      std::memset(q, 0, n);
      std::memcpy(out, old_residual, n * sizeof(float));
    }
  }
  return py::make_tuple(scale, ternary, new_residual);
}

std::vector<std::string> PyInstructionSets() {
  std::vector<std::string> names;
  for (const InstructionSet set : SupportedInstructionSets()) {
    names.emplace_back(InstructionSetName(set));
  }
  return names;
}

void PySetInstructionSet(const std::string& name) {
  for (const InstructionSet set : SupportedInstructionSets()) {
    if (InstructionSetName(set) == name) {
      SetInstructionSet(set);
      return;
    }
  }
  throw py::value_error("name must be one of instruction_sets(), got '" + name +
                        "'");
}

// ---- Documentation ----------------------------------------------------------

constexpr char kModuleDoc[] = R"doc(The compression kernels, for NumPy arrays.

The same code as the ops of `tf_gc.ops`, without TensorFlow. Functions release
the interpreter's lock while they compute. Errors name the argument, what it is
and what it may be.)doc";

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
    M = sparsity_multiplier * max |t|
    q = sign(t) where 2 |t| > M, else 0
    new_residual = t - M q
    encoded = M, zero_run_encode(quartic_encode(q))

in float32 arithmetic, whatever the type of `values`. If some t is not finite,
or M overflows, the scale M is sent as NaN without a payload and the residual
stays as it was. 3LC (Lim et al., MLSys 2019), section 3.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  residual: float32 array of the same shape.
  sparsity_multiplier: s, 1 <= s < 2. The greater it is, the fewer bytes are
    sent, and the later small values arrive.

Returns:
  A tuple of
    encoded: uint8 array, 4 bytes of scale (little-endian float32) and the
      payload of at most one byte for five values;
    new_residual: float32 array of the same shape.

Raises:
  TypeError: `values` or `residual` is not an array of such a dtype.
  ValueError: The shapes differ, or the sparsity multiplier is out of range.)doc";

constexpr char kThreeLcDecodeDoc[] =
    R"doc(Decodes what `three_lc_encode` has encoded: M q.

Args:
  encoded: uint8 array, the scale and the payload.
  shape: The shape of the result, a sequence of dimensions.

Returns:
  float32 array of that shape: values of {-M, 0, M}, or NaN everywhere if the
  scale is NaN.

Raises:
  TypeError: `encoded` is not a uint8 array.
  ValueError: `encoded` is truncated, too long for `shape`, or not such an
    encoding; `shape` has a negative dimension.)doc";

constexpr char kThreeLcQuantizeDoc[] =
    R"doc(Computes what `three_lc_encode` sends, without packing it.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  residual: float32 array of the same shape.
  sparsity_multiplier: s, 1 <= s < 2.

Returns:
  A tuple of
    scale: M as a float, NaN if `three_lc_encode` would send no payload;
    ternary: int8 array of the same shape, q; zeros if there is no payload;
    new_residual: float32 array of the same shape.

Raises:
  TypeError: `values` or `residual` is not an array of such a dtype.
  ValueError: The shapes differ, or the sparsity multiplier is out of range.)doc";

constexpr char kInstructionSetsDoc[] =
    R"doc(Names of the instruction sets that this processor has for the kernels.

Returns:
  A list of "baseline", "avx2" and "avx512", the slowest first. The last one is
  used unless the environment variable TF_GC_INSTRUCTION_SET names another.)doc";

constexpr char kSetInstructionSetDoc[] =
    R"doc(Makes this module's functions use another instruction set.

For tests and benchmarks: all give the same bits. `tf_gc.ops` is not affected.

Args:
  name: One of `instruction_sets()`.

Raises:
  ValueError: This processor has no such instruction set.)doc";

}  // namespace

PYBIND11_MODULE(kernels, module) {
  module.doc() = kModuleDoc;
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
             kThreeLcEncodeDoc);
  module.def("three_lc_decode", PyThreeLcDecode, py::arg("encoded"),
             py::arg("shape"), kThreeLcDecodeDoc);
  module.def("three_lc_quantize", PyThreeLcQuantize, py::arg("values"),
             py::arg("residual"), py::arg("sparsity_multiplier"),
             kThreeLcQuantizeDoc);
  module.def("instruction_sets", PyInstructionSets, kInstructionSetsDoc);
  module.def("set_instruction_set", PySetInstructionSet, py::arg("name"),
             kSetInstructionSetDoc);
}

}  // namespace tf_gc::kernels
