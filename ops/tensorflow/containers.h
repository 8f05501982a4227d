// Which programs have resources in this process: those of a program that has
// ended without a word are freed when the next one begins.

#ifndef TF_GC_OPS_TENSORFLOW_CONTAINERS_H_
#define TF_GC_OPS_TENSORFLOW_CONTAINERS_H_

#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_gc {

// To be called before a resource is made in a container, "program/...". Where
// it is of another program than the last one, frees what those before have
// made. FailedPrecondition if the container's own program was ended so. Nothing
// is done for an empty name.
absl::Status EnterContainer(const std::string& container,
                            tensorflow::ResourceMgr* resources);

}  // namespace tf_gc

#endif  // TF_GC_OPS_TENSORFLOW_CONTAINERS_H_
