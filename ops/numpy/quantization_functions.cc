// The kernels of quantisation for NumPy.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ops/kernels/bit_packing.h"
#include "ops/kernels/stochastic_quantize.h"
#include "ops/kernels/table_sum.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

void RequireBits(int64_t bits) {
  if (IsPackableBits(bits)) return;
  throw py::value_error("bits must be 2, 3, 4, 5 or 8, got " +
                        std::to_string(bits));
}

py::array_t<float> RequireLevels(const py::array& array) {
  const auto levels = Require<float>(array, "levels", "float32");
  if (levels.ndim() != 1 || levels.size() < kMinLevels ||
      levels.size() > kMaxLevels) {
    throw py::value_error("levels must be a vector of " +
                          std::to_string(kMinLevels) + " to " +
                          std::to_string(kMaxLevels) + ", got shape " +
                          ToString(array.attr("shape")));
  }
  const int wrong =
      FindBadLevel(levels.data(), static_cast<int>(levels.size()));
  if (wrong >= 0) {
    throw py::value_error("levels must be finite and ascending, got " +
                          ToString(py::float_(levels.at(wrong))) +
                          " at index " + std::to_string(wrong));
  }
  return levels;
}

// n packed values.
ByteArray RequirePacked(const py::array& array, int64_t n, int bits) {
  const ByteArray packed = RequireBytes(array, "packed");
  if (packed.size() != PackedSize(n, bits)) {
    throw py::value_error(
        "packed must have " + std::to_string(PackedSize(n, bits)) +
        " bytes for " + std::to_string(n) + " values of " +
        std::to_string(bits) + " bits, got " + std::to_string(packed.size()));
  }
  if (!PaddingIsZero(packed.data(), n, bits)) {
    throw py::value_error("packed must have padding of 0, got the last byte " +
                          std::to_string(packed.at(packed.size() - 1)));
  }
  return packed;
}

// A table of 2^bits values that fit in a Lane.
template <typename Lane>
std::vector<Lane> RequireTable(const py::array& array, int bits) {
  if (array.dtype().kind() != 'i' && array.dtype().kind() != 'u') {
    throw py::type_error("table must have an integer dtype, got " +
                         ToString(array.dtype()));
  }
  if (array.ndim() != 1 || array.size() != 1 << bits) {
    throw py::value_error(
        "table must be a vector of 2^bits = " + std::to_string(1 << bits) +
        " values, got shape " + ToString(array.attr("shape")));
  }
  const py::array_t<int64_t, py::array::forcecast> values(array);
  constexpr int64_t kLargest = static_cast<Lane>(-1);
  std::vector<Lane> table;
  for (int z = 0; z < 1 << bits; ++z) {
    const int64_t value = values.at(z);
    if (value < 0 || value > kLargest) {
      throw py::value_error(
          "table must hold values in 0 ... " + std::to_string(kLargest) +
          ", got " + std::to_string(value) + " at index " + std::to_string(z));
    }
    table.push_back(static_cast<Lane>(value));
  }
  return table;
}

ByteArray PyStochasticQuantize(const py::array& values, const py::array& levels,
                               const py::object& seed) {
  const py::array_t<float> floats = RequireFloats(values);
  const py::array_t<float> all_levels = RequireLevels(levels);
  const Seed words = RequireSeed(seed);
  ByteArray indices(ShapeOf(values));
  const float* in = floats.data();
  const int64_t n = floats.size();
  const float* first_level = all_levels.data();
  const int num_levels = static_cast<int>(all_levels.size());
  uint8_t* out = indices.mutable_data();
  py::gil_scoped_release release;
  StochasticQuantize(in, n, first_level, num_levels, words, /*first=*/0, out);
  return indices;
}

ByteArray PyPackBits(const py::array& indices, int64_t bits) {
  const auto values = Require<uint8_t>(indices, "indices", "uint8");
  RequireBits(bits);
  const int64_t n = values.size();
  const uint8_t* in = values.data();
  ByteArray packed(PackedSize(n, static_cast<int>(bits)));
  uint8_t* out = packed.mutable_data();
  int64_t wrong;
  {
    py::gil_scoped_release release;
    wrong = FindUnpackable(in, n, static_cast<int>(bits));
    if (wrong < 0) PackBits(in, n, static_cast<int>(bits), out);
  }
  if (wrong >= 0) {
    throw py::value_error(
        "indices must be less than 2^bits = " + std::to_string(1 << bits) +
        ", got " + std::to_string(in[wrong]) + " at index " +
        std::to_string(wrong));
  }
  return packed;
}

ByteArray PyUnpackBits(const py::array& packed, int64_t bits, int64_t size) {
  RequireBits(bits);
  if (size < 0) {
    throw py::value_error("size must not be negative, got " +
                          std::to_string(size));
  }
  const ByteArray bytes = RequirePacked(packed, size, static_cast<int>(bits));
  ByteArray indices(size);
  const uint8_t* in = bytes.data();
  uint8_t* out = indices.mutable_data();
  py::gil_scoped_release release;
  UnpackBits(in, size, static_cast<int>(bits), out);
  return indices;
}

template <typename Lane>
py::array_t<Lane> SumsOf(const py::array& packed, const py::array& table,
                         int bits, const py::array& accumulator) {
  const py::array_t<Lane, py::array::c_style | py::array::forcecast> old_sums(
      accumulator);
  const int64_t n = old_sums.size();
  const ByteArray bytes = RequirePacked(packed, n, bits);
  const std::vector<Lane> lanes = RequireTable<Lane>(table, bits);
  py::array_t<Lane> sums(ShapeOf(accumulator));
  const uint8_t* in = bytes.data();
  const Lane* old_values = old_sums.data();
  Lane* out = sums.mutable_data();
  py::gil_scoped_release release;
  if (n > 0) std::memcpy(out, old_values, n * sizeof(Lane));
  TableSum(in, n, lanes.data(), bits, out);
  return sums;
}

py::array PyTableSum(const py::array& packed, const py::array& table,
                     int64_t bits, const py::array& accumulator) {
  RequireBits(bits);
  const int bit_count = static_cast<int>(bits);
  if (HasType<uint8_t>(accumulator)) {
    return SumsOf<uint8_t>(packed, table, bit_count, accumulator);
  }
  if (HasType<uint16_t>(accumulator)) {
    return SumsOf<uint16_t>(packed, table, bit_count, accumulator);
  }
  throw py::type_error("accumulator must have dtype uint8 or uint16, got " +
                       ToString(accumulator.dtype()));
}

// ---- Documentation ----------------------------------------------------------

constexpr char kStochasticQuantizeDoc[] =
    R"doc(Rounds each value to one of the two levels around it, at random.

    v = value, clamped to [levels[0], levels[-1]]; NaN becomes levels[0]
    z = the largest index <= len(levels) - 2 with levels[z] <= v
    index = z + 1 with probability (v - levels[z]) / (levels[z + 1] - levels[z]),
            else z

so that levels[index] is v on average. The arithmetic is float32, and the
probability a multiple of 2^-16, at most 2^-17 from the exact one. Value i is
drawn with the 16 bits i % 8 of block i / 8 of the seed's Philox4x32-10 stream:
the same arguments give the same indices everywhere. THC (Li et al., NSDI 2024),
sections 4.1 and 4.3.

Args:
  values: float32, float16 or bfloat16 array of any shape.
  levels: float32 array [L], finite and ascending, 2 <= L <= 256.
  seed: The key of the stream, an integer; or two, the key and which of its
    streams. One integer means stream 0.

Returns:
  uint8 array of the shape of `values`, indices of `levels`.

Raises:
  TypeError: `values` or `levels` is not an array of such a dtype.
  ValueError: `levels` has another length, or a level is not finite or less than
    the one before; `seed` is not one or two integers.)doc";

constexpr char kPackBitsDoc[] =
    R"doc(Packs indices of a few bits.

Index i is the bits [bits i, bits (i + 1)) of a little-endian bit string: bit b
of it is bit b % 8 of byte b / 8. The last byte is padded with zeros.

Args:
  indices: uint8 array of any shape, n indices less than 2^bits in all.
  bits: 2, 3, 4, 5 or 8.

Returns:
  uint8 array [ceil(n bits / 8)].

Raises:
  TypeError: `indices` is not a uint8 array.
  ValueError: `bits` is another number, or an index is too large.)doc";

constexpr char kUnpackBitsDoc[] =
    R"doc(Unpacks what `pack_bits` has packed.

Args:
  packed: uint8 array [ceil(size bits / 8)].
  bits: 2, 3, 4, 5 or 8.
  size: The number of indices.

Returns:
  uint8 array [size], indices less than 2^bits.

Raises:
  TypeError: `packed` is not a uint8 array.
  ValueError: `packed` has another size, or padding other than 0; `bits` is
    another number; `size` is negative.)doc";

constexpr char kTableSumDoc[] =
    R"doc(Adds table values of packed indices to sums, without decoding.

    sums[i] = accumulator[i] + table[index i of packed]

modulo 2^8 for uint8 and 2^16 for uint16. What THC's server does with the
indices of every worker (Li et al., NSDI 2024, section 4.3): the sums of N
workers fit while N max(table) is less than 2^8 or 2^16.

Args:
  packed: uint8 array [ceil(n bits / 8)], from `pack_bits`.
  table: Array of integers [2^bits] that fit in the accumulator's dtype.
  bits: 2, 3, 4, 5 or 8.
  accumulator: uint8 or uint16 array of any shape, n sums in all.

Returns:
  Array of the shape and dtype of `accumulator`.

Raises:
  TypeError: An array is not of such a dtype.
  ValueError: `packed` or `table` has another size; `packed` has padding other
    than 0; an entry of `table` does not fit; `bits` is another number.)doc";

}  // namespace

void AddQuantizationFunctions(py::module_& module) {
  module.def("stochastic_quantize", PyStochasticQuantize, py::arg("values"),
             py::arg("levels"), py::arg("seed"), kStochasticQuantizeDoc);
  module.def("pack_bits", PyPackBits, py::arg("indices"), py::arg("bits"),
             kPackBitsDoc);
  module.def("unpack_bits", PyUnpackBits, py::arg("packed"), py::arg("bits"),
             py::arg("size"), kUnpackBitsDoc);
  module.def("table_sum", PyTableSum, py::arg("packed"), py::arg("table"),
             py::arg("bits"), py::arg("accumulator"), kTableSumDoc);
}

}  // namespace tf_gc::kernels
