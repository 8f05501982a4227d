#include "tests/cuda/emulator/emulator.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a function must keep on the running stack, leaves
// its top in *from, and goes on where the stack `to` was left.
extern "C" void tf_gc_emulator_switch(void** from, void* to);
asm(R"(
  .text
  .globl tf_gc_emulator_switch
  .type tf_gc_emulator_switch, @function
tf_gc_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tf_gc_emulator_switch, . - tf_gc_emulator_switch
)");

namespace emulator {
namespace {

constexpr size_t kStackSize = size_t{256} << 10;

struct Fiber {
  char* stack = nullptr;
  void* top = nullptr;
  bool ended = true;
};

// What runs at the moment.
const std::function<void()>* kernel;
Fiber fibers[kMaxThreads];
int rank;
int threads;
int live_threads;
bool progress;  // Some thread has passed a barrier or ended.
Meeting<kMaxThreads> block_meeting;
std::map<unsigned, std::unique_ptr<Meeting<kWarpSize>>>
    warp_meetings[kMaxThreads / kWarpSize];
unsigned char* dynamic_shared_begin;
void* scheduler_top;

// AddressSanitizer must know which stack is in use.
#if defined(__SANITIZE_ADDRESS__)
const void* scheduler_stack;
size_t scheduler_stack_size;

void SwitchToFiber(Fiber* fiber) {
  void* fake_stack;
  __sanitizer_start_switch_fiber(&fake_stack, fiber->stack, kStackSize);
  tf_gc_emulator_switch(&scheduler_top, fiber->top);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void SwitchToScheduler(Fiber* fiber) {
  void* fake_stack;
  __sanitizer_start_switch_fiber(&fake_stack, scheduler_stack,
                                 scheduler_stack_size);
  tf_gc_emulator_switch(&fiber->top, scheduler_top);
  __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack,
                                  &scheduler_stack_size);
}

void FiberBegins() {
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack,
                                  &scheduler_stack_size);
}
#else
void SwitchToFiber(Fiber* fiber) {
  tf_gc_emulator_switch(&scheduler_top, fiber->top);
}
void SwitchToScheduler(Fiber* fiber) {
  tf_gc_emulator_switch(&fiber->top, scheduler_top);
}
void FiberBegins() {}
#endif

// A fiber runs one thread after the other, of one block after the other.
void FiberMain() {
  FiberBegins();
  Fiber* const fiber = &fibers[rank];
  while (true) {
    (*kernel)();
    fiber->ended = true;
    --live_threads;
    progress = true;
    SwitchToScheduler(fiber);
  }
}

void MakeFiber(Fiber* fiber) {
  fiber->stack =
      static_cast<char*>(mmap(nullptr, kStackSize, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  // As the switch left it: six registers and where to return to. A function
  // begins 8 bytes below an address aligned to 16.
  void** top = reinterpret_cast<void**>(fiber->stack + kStackSize) - 2;
  *top = reinterpret_cast<void*>(&FiberMain);
  fiber->top = top - 6;
}

void SetThread(int new_rank) {
  rank = new_rank;
  const unsigned r = static_cast<unsigned>(rank);
  threadIdx = {r % blockDim.x, r / blockDim.x % blockDim.y,
               r / blockDim.x / blockDim.y};
}

// Lets the other threads run.
void Yield() {
  const int old_rank = rank;
  SwitchToScheduler(&fibers[rank]);
  SetThread(old_rank);
}

template <int kThreads, typename Expected>
void Wait(Meeting<kThreads>* meeting, const Expected& expected) {
  const int64_t round = meeting->round;
  ++meeting->arrived;
  while (meeting->round == round) {
    if (meeting->arrived == expected()) {
      meeting->arrived = 0;
      ++meeting->round;
      progress = true;
    } else {
      Yield();
    }
  }
}

void RunBlock() {
  live_threads = threads;
  block_meeting.arrived = 0;
  for (auto& meetings : warp_meetings) meetings.clear();
  for (int i = 0; i < threads; ++i) fibers[i].ended = false;
  while (live_threads > 0) {
    progress = false;
    for (int i = 0; i < threads; ++i) {
      if (fibers[i].ended) continue;
      if (fibers[i].stack == nullptr) MakeFiber(&fibers[i]);
      SetThread(i);
      SwitchToFiber(&fibers[i]);
    }
    if (!progress) {
      std::fprintf(stderr, "emulator: threads wait for others for ever\n");
      std::abort();
    }
  }
}

}  // namespace

void Run(dim3 grid, dim3 block, size_t dynamic_shared,
         const std::function<void()>& thread) {
  kernel = &thread;
  gridDim = grid;
  blockDim = block;
  threads = static_cast<int>(block.x * block.y * block.z);
  if (threads < 1 || threads > kMaxThreads) {
    std::fprintf(stderr, "emulator: a block of %d threads\n", threads);
    std::abort();
  }
  // malloc aligns to 16 bytes, and AddressSanitizer knows its size.
  const std::unique_ptr<void, void (*)(void*)> shared(
      std::malloc(dynamic_shared), std::free);
  dynamic_shared_begin = static_cast<unsigned char*>(shared.get());
  for (unsigned z = grid.z; z-- > 0;) {
    for (unsigned y = grid.y; y-- > 0;) {
      for (unsigned x = grid.x; x-- > 0;) {
        blockIdx = {x, y, z};
        RunBlock();
      }
    }
  }
}

unsigned char* DynamicShared() { return dynamic_shared_begin; }

int Rank() { return rank; }
int Threads() { return threads; }

Meeting<kMaxThreads>* BlockMeeting() { return &block_meeting; }

void WaitForBlock() {
  Wait(&block_meeting, [] { return live_threads; });
}

Meeting<kWarpSize>* WarpMeeting(unsigned mask) {
  auto& meeting = warp_meetings[rank / kWarpSize][mask];
  if (meeting == nullptr) meeting = std::make_unique<Meeting<kWarpSize>>();
  return meeting.get();
}

void WaitForWarp(unsigned mask) {
  Wait(WarpMeeting(mask), [mask] { return __builtin_popcount(mask); });
}

}  // namespace emulator
