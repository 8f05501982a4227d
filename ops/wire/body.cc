#include "ops/wire/body.h"

#include "absl/strings/str_cat.h"
#include "ops/kernels/signs.h"
#include "ops/wire/status.h"

namespace tf_gc {

absl::Status CheckBodySize(const std::string& message, int64_t size,
                           int64_t expected) {
  if (size == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(message, " message: the body has ",
                                          size, " bytes, expected ", expected));
}

absl::Status CheckSigns(const std::string& message, const uint8_t* signs,
                        int64_t size, int64_t values) {
  TF_GC_RETURN_IF_ERROR(
      CheckBodySize(message, size, kernels::SignPackedSize(values)));
  if (kernels::SignPaddingIsZero(signs, values)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(message, " message: the padding bits behind ", values,
                   " signs are not 0: the last byte is ", signs[values / 8]));
}

}  // namespace tf_gc
