// SPDX-License-Identifier: Apache-2.0
// The only part of the emulation that touches the memory of the code under test. It is compiled with the same
// sanitizer, so that the accesses are checked.
#include <cstddef>
#include <cstring>

namespace pm::emulation {

void spoil(void* to, size_t bytes) { std::memset(to, 0xFF, bytes); }

void perform_copy(void* to, const void* from, size_t bytes, bool real) {
  if (real)
    std::memcpy(to, from, bytes);
  else
    std::memset(to, 0, bytes);
}

}  // namespace pm::emulation
