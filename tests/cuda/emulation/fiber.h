// Stacks that take turns on one thread, known to the sanitizers.
#pragma once
#include <cstddef>

namespace pm::emulation {

struct Fiber {
  void* stack_pointer = nullptr;   ///< while it does not run
  void* stack = nullptr;           ///< its memory; nullptr: the thread's own
  size_t bytes = 0;
  void* sanitizer = nullptr;       ///< what ThreadSanitizer calls it
};

/// A fiber that begins in `entry`, which never returns, when it is first switched to.
void make_fiber(Fiber&, void (*entry)());
/// Gives its memory back; it never runs again.
void abandon_fiber(Fiber&);
/// Stores where the caller is in `from`, goes on in `to`. Makes no order between them.
void switch_fiber(Fiber& from, Fiber& to);
/// To be called first in an entry.
void arrived_on_fiber();
/// What happened before a release of `place` happened before what comes after a later acquire of it.
void release_order(void* place);
void acquire_order(void* place);

}  // namespace pm::emulation
