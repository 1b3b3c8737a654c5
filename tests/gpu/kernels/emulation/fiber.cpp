// SPDX-License-Identifier: Apache-2.0
// Fibers: creates stacks and switches between them.
#include "tests/gpu/kernels/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if !defined(__x86_64__)
#error "tests/gpu/kernels/emulation switches stacks in x86-64 assembly"
#endif
#if defined(PM_WITH_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(PM_WITH_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// registers that a call keeps, on the stack; then the other stack's
asm(R"(
.text
.globl pm_switch_stacks
.type pm_switch_stacks, @function
pm_switch_stacks:
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
.size pm_switch_stacks, .-pm_switch_stacks
)");
extern "C" void pm_switch_stacks(void** save, void* to);

namespace pm::emulation {

namespace {
constexpr size_t stack_bytes = size_t{256} << 10;  // pages that are not touched cost nothing
#if defined(PM_WITH_ASAN)
Fiber* left = nullptr;  // to learn the bounds of the thread's own stack
#endif
}  // namespace

void make_fiber(Fiber& fiber, void (*entry)()) {
  fiber.bytes = stack_bytes;
  fiber.stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fiber.stack == MAP_FAILED) throw std::bad_alloc();
  auto* top = reinterpret_cast<uint64_t*>(static_cast<char*>(fiber.stack) + stack_bytes);
  *--top = 0;  // what `entry` would return to; it begins, as after a call, 8 bytes off a multiple of 16
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber.stack_pointer = top;
#if defined(PM_WITH_TSAN)
  fiber.sanitizer = __tsan_create_fiber(0);
#endif
}

void abandon_fiber(Fiber& fiber) {
#if defined(PM_WITH_ASAN)
  __asan_unpoison_memory_region(fiber.stack, fiber.bytes);
#endif
#if defined(PM_WITH_TSAN)
  __tsan_destroy_fiber(fiber.sanitizer);
#endif
  munmap(fiber.stack, fiber.bytes);
}

void switch_fiber(Fiber& from, Fiber& to) {
#if defined(PM_WITH_ASAN)
  void* kept = nullptr;
  left = &from;
  __sanitizer_start_switch_fiber(&kept, to.stack, to.bytes);
#endif
#if defined(PM_WITH_TSAN)
  if (!from.sanitizer) from.sanitizer = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
  pm_switch_stacks(&from.stack_pointer, to.stack_pointer);
#if defined(PM_WITH_ASAN)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(kept, &bottom, &bytes);
  left->stack = const_cast<void*>(bottom);
  left->bytes = bytes;
#endif
}

void arrived_on_fiber() {
#if defined(PM_WITH_ASAN)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  left->stack = const_cast<void*>(bottom);
  left->bytes = bytes;
#endif
}

void release_order([[maybe_unused]] void* place) {
#if defined(PM_WITH_TSAN)
  __tsan_release(place);
#endif
}
void acquire_order([[maybe_unused]] void* place) {
#if defined(PM_WITH_TSAN)
  __tsan_acquire(place);
#endif
}

}  // namespace pm::emulation
