// SPDX-License-Identifier: Apache-2.0
// Fibers: stacks that run alternately on one thread and are known to the sanitizers.
#pragma once
#include <cstddef>

namespace pm::emulation {

struct Fiber {
  void* stack_pointer = nullptr;  ///< while it does not run
  void* stack = nullptr;          ///< its memory; nullptr: the thread's own
  size_t bytes = 0;
  void* sanitizer = nullptr;  ///< what ThreadSanitizer calls it
};

/// Prepares a fiber that starts in `entry`, which never returns, when it is first switched to.
void make_fiber(Fiber&, void (*entry)());
/// Frees the memory of a fiber that never runs again.
void abandon_fiber(Fiber&);
/// Saves the caller's state in `from` and continues in `to`. It establishes no order between them for ThreadSanitizer.
void switch_fiber(Fiber& from, Fiber& to);
/// Must be called first in an entry.
void arrived_on_fiber();
/// Happens-before annotations: what precedes a release of `place` happens before what follows a later acquire of it.
void release_order(void* place);
void acquire_order(void* place);

}  // namespace pm::emulation
