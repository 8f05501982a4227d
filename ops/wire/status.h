// Passing errors on.

#ifndef TF_GC_OPS_WIRE_STATUS_H_
#define TF_GC_OPS_WIRE_STATUS_H_

#include "absl/status/status.h"

#define TF_GC_RETURN_IF_ERROR(expression)           \
  do {                                              \
    const absl::Status status_or_ok = (expression); \
    if (!status_or_ok.ok()) return status_or_ok;    \
  } while (false)

#endif  // TF_GC_OPS_WIRE_STATUS_H_
