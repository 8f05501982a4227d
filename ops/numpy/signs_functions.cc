// The kernels of signs for NumPy.

#include <cstdint>
#include <string>

#include "ops/kernels/signs.h"
#include "ops/numpy/arguments.h"
#include "ops/numpy/functions.h"

namespace tf_gc::kernels {
namespace {

ByteArray PySignPack(const py::array& values) {
  const auto floats = RequireFloats(values);
  const int64_t n = floats.size();
  const float* in = floats.data();
  ByteArray packed(SignPackedSize(n));
  uint8_t* out = packed.mutable_data();
  py::gil_scoped_release release;
  SignPack(in, n, out);
  return packed;
}

py::array_t<float> PySignUnpack(const py::array& packed, int64_t size) {
  const ByteArray bytes = RequireBytes(packed, "packed");
  if (size < 0) {
    throw py::value_error("size must not be negative, got " +
                          std::to_string(size));
  }
  if (bytes.size() != SignPackedSize(size)) {
    throw py::value_error("packed must have " +
                          std::to_string(SignPackedSize(size)) + " bytes for " +
                          std::to_string(size) + " values, got " +
                          std::to_string(bytes.size()));
  }
  const uint8_t* in = bytes.data();
  if (!SignPaddingIsZero(in, size)) {
    throw py::value_error("packed must have padding bits of 0 for " +
                          std::to_string(size) + " values, got the last byte " +
                          std::to_string(in[bytes.size() - 1]));
  }
  py::array_t<float> values(size);
  float* out = values.mutable_data();
  py::gil_scoped_release release;
  SignUnpack(in, size, out);
  return values;
}

ByteArray PySignMerge(const py::array& first, const py::array& second,
                      int64_t first_count, int64_t second_count,
                      const py::object& seed) {
  const ByteArray first_bytes = RequireBytes(first, "first");
  const ByteArray second_bytes = RequireBytes(second, "second");
  if (first_bytes.size() != second_bytes.size()) {
    throw py::value_error("second must have the size of first, " +
                          std::to_string(first_bytes.size()) + ", got " +
                          std::to_string(second_bytes.size()));
  }
  if (!AreSignMergeCounts(first_count, second_count)) {
    throw py::value_error(
        "first_count and second_count must be at least 1, and their sum at "
        "most 2^31 - 1, got " +
        std::to_string(first_count) + " and " + std::to_string(second_count));
  }
  const Seed stream = RequireSeed(seed);
  ByteArray merged(first_bytes.size());
  const uint8_t* a = first_bytes.data();
  const uint8_t* b = second_bytes.data();
  const int64_t size = first_bytes.size();
  uint8_t* out = merged.mutable_data();
  py::gil_scoped_release release;
  SignMerge(a, b, size, first_count, second_count, stream, 0, out);
  return merged;
}

// ---- Documentation ----------------------------------------------------------

constexpr char kSignPackDoc[] =
    R"doc(Packs the signs of values, one bit each.

Bit i % 8 of byte i / 8 is 1 where value i >= 0, -0 too, and 0 for NaN. The
padding bits of the last byte are 0.

Args:
  values: float32, float16 or bfloat16 array of any shape, n values in all.

Returns:
  uint8 array [ceil(n / 8)].

Raises:
  TypeError: `values` is not an array of such a dtype.)doc";

constexpr char kSignUnpackDoc[] =
    R"doc(Unpacks what `sign_pack` has packed.

Args:
  packed: uint8 array [ceil(size / 8)].
  size: The number n of values.

Returns:
  float32 array [size]: 1 where the bit is 1, else -1.

Raises:
  TypeError: `packed` is not a uint8 array.
  ValueError: `packed` has not one dimension, not ceil(size / 8) bytes, or a
    padding bit that is not 0; `size` is negative.)doc";

constexpr char kSignMergeDoc[] =
    R"doc(Merges packed signs of two groups of workers into an unbiased sign.

Where the bits of `first` and `second` agree, the result has that bit. Where
they differ it has the bit of `first` with the probability

    first_count / (first_count + second_count)

but for 2^-20 at most. So if each bit is 1 with a probability that is the mean
of its workers' bits, then the result's is the mean of all workers' bits. Marsit
(Wu et al., DAC 2022), section 4.1.1, where `first` is the aggregate of m - 1
workers and `second` the m-th worker's own signs.

The same arguments give the same bits. Merges that are to be independent of each
other need different seeds.

Args:
  first: uint8 array [k], signs as `sign_pack` packs them.
  second: uint8 array [k].
  first_count: How many workers `first` is of, at least 1.
  second_count: How many workers `second` is of, at least 1. The sum of both is
    at most 2^31 - 1.
  seed: An integer, or two of them: the key and the stream of the Philox
    generator.

Returns:
  uint8 array [k].

Raises:
  TypeError: `first` or `second` is not a uint8 array.
  ValueError: The arrays have not one dimension or not the same size, a count or
    the sum is out of range, or the seed is no integer or two.)doc";

}  // namespace

void AddSignsFunctions(py::module_& module) {
  module.def("sign_pack", PySignPack, py::arg("values"), kSignPackDoc);
  module.def("sign_unpack", PySignUnpack, py::arg("packed"), py::arg("size"),
             kSignUnpackDoc);
  module.def("sign_merge", PySignMerge, py::arg("first"), py::arg("second"),
             py::arg("first_count"), py::arg("second_count"), py::arg("seed"),
             kSignMergeDoc);
}

}  // namespace tf_gc::kernels
