// Which instruction set the kernels run on: the best that the processor has,
// chosen once. The environment variable TF_GC_INSTRUCTION_SET (baseline, avx2
// or avx512), read once, asks for another; one that the processor lacks, or
// that does not exist, is ignored.

#ifndef TF_GC_OPS_KERNELS_DISPATCH_H_
#define TF_GC_OPS_KERNELS_DISPATCH_H_

#include <string_view>
#include <vector>

namespace tf_gc::kernels {

enum class InstructionSet {
  kBaseline = 0,  // x86-64-v2: SSE 4.2
  kAvx2 = 1,      // x86-64-v3: AVX2, BMI
  kAvx512 = 2,    // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
};

inline constexpr InstructionSet kAllInstructionSets[] = {
    InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512};

// "baseline", "avx2" or "avx512".
std::string_view InstructionSetName(InstructionSet set);

// Those that this processor has, the slowest first.
std::vector<InstructionSet> SupportedInstructionSets();

InstructionSet ActiveInstructionSet();

// Makes all threads use `set` from their next call of a kernel on, for tests,
// benchmarks and debugging. False, with nothing changed, if this processor
// lacks it.
bool SetInstructionSet(InstructionSet set);

// That of three tables, in the order of InstructionSet, which is in use.
template <typename Table>
const Table& ActiveTable(const Table& baseline, const Table& avx2,
                         const Table& avx512) {
  const Table* const tables[] = {&baseline, &avx2, &avx512};
  return *tables[static_cast<int>(ActiveInstructionSet())];
}

// The table of kernel_table.h with this name that is in use.
#define TF_GC_ACTIVE_TABLE(name) \
  ActiveTable(baseline::name, avx2::name, avx512::name)

}  // namespace tf_gc::kernels

#endif  // TF_GC_OPS_KERNELS_DISPATCH_H_
