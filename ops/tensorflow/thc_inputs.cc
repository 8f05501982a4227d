#include "ops/tensorflow/thc_inputs.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/tensorflow/quantization_inputs.h"

namespace tf_gc {

absl::Status ReadThcTable(const tensorflow::Tensor& tensor, int bits,
                          kernels::ThcTable* table) {
  std::vector<uint16_t> integers(int64_t{1} << bits);
  TF_RETURN_IF_ERROR(ReadTable(tensor, bits, integers.data()));
  for (size_t z = 0; z < integers.size(); ++z) {
    if (z == 0 ? integers[z] != 0 : integers[z] <= integers[z - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table must ascend from 0, got ", integers[z], " at index ", z));
    }
  }
  *table = kernels::ThcTable(std::move(integers));
  return absl::OkStatus();
}

}  // namespace tf_gc
