// Passing errors on.

#ifndef TF_GC_OPS_WIRE_STATUS_H_
#define TF_GC_OPS_WIRE_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#define TF_GC_RETURN_IF_ERROR(expression)           \
  do {                                              \
    const absl::Status status_or_ok = (expression); \
    if (!status_or_ok.ok()) return status_or_ok;    \
  } while (false)

namespace tf_gc {

// What is found of something that was received: an error names who sent it.
inline absl::Status From(const std::string& sender,
                         const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("from ", sender, ": ", status.message()));
}

}  // namespace tf_gc

#endif  // TF_GC_OPS_WIRE_STATUS_H_
