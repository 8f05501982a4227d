#include "ops/kernels/dispatch.h"

#include <atomic>
#include <cstdlib>

namespace tf_gc::kernels {
namespace {

bool IsSupported(InstructionSet set) {
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  switch (set) {
    case InstructionSet::kBaseline:
      return true;
    case InstructionSet::kAvx2:
      return avx2;
    case InstructionSet::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
  return false;
}

InstructionSet InitialInstructionSet() {
  const std::vector<InstructionSet> supported = SupportedInstructionSets();
  if (const char* wanted = std::getenv("TF_GC_INSTRUCTION_SET")) {
    for (const InstructionSet set : supported) {
      if (InstructionSetName(set) == wanted) return set;
    }
  }
  return supported.back();
}

std::atomic<InstructionSet>& Active() {
  static std::atomic<InstructionSet> active(InitialInstructionSet());
  return active;
}

}  // namespace

std::string_view InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "";
}

std::vector<InstructionSet> SupportedInstructionSets() {
  std::vector<InstructionSet> supported;
  for (const InstructionSet set : kAllInstructionSets) {
    if (IsSupported(set)) supported.push_back(set);
  }
  return supported;
}

InstructionSet ActiveInstructionSet() {
  return Active().load(std::memory_order_relaxed);
}

bool SetInstructionSet(InstructionSet set) {
  if (!IsSupported(set)) return false;
  Active().store(set, std::memory_order_relaxed);
  return true;
}

}  // namespace tf_gc::kernels
