#include "ops/tensorflow/containers.h"

#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"

namespace tf_gc {
namespace {

struct Programs {
  std::mutex mutex;
  std::string current;
  std::set<std::string> containers;  // of the current one
  std::set<std::string> ended;
};

std::string ProgramOf(const std::string& container) {
  return container.substr(0, container.find('/'));
}

}  // namespace

absl::Status EnterContainer(const std::string& container,
                            tensorflow::ResourceMgr* resources) {
  if (container.empty()) return absl::OkStatus();
  static auto* const programs = new Programs;
  const std::string program = ProgramOf(container);
  std::lock_guard<std::mutex> lock(programs->mutex);
  if (programs->ended.count(program) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another program, ", programs->current,
                     ", uses this cluster now: it has ended program ", program,
                     ". Give each program servers and workers of its own."));
  }
  if (program != programs->current) {
    for (const std::string& old : programs->containers) {
      TF_RETURN_IF_ERROR(resources->Cleanup(old));
    }
    programs->containers.clear();
    if (!programs->current.empty()) programs->ended.insert(programs->current);
    programs->current = program;
  }
  programs->containers.insert(container);
  return absl::OkStatus();
}

}  // namespace tf_gc
