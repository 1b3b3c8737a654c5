// SPDX-License-Identifier: Apache-2.0
// The emulated test device: kernels run under tests/gpu/kernels/emulation, on heap memory whose bounds AddressSanitizer
// checks.
#include <cstring>
#include <new>

#include "tests/gpu/kernels/device.h"
#include "tests/gpu/kernels/emulation/emulation.h"

namespace pm::cuda_test {

std::string why_no_device() { return {}; }
void* allocate(size_t bytes) {
  void* memory = ::operator new[](bytes);
  std::memset(memory, 0xFF, bytes);
  return memory;
}
void release(void* memory) { ::operator delete[](memory); }
void upload(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void download(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void in_each_order(const std::function<void()>& f) {
#if defined(PM_WITH_TSAN)
  constexpr uint64_t orders = 1;  // ThreadSanitizer reports missing barriers in any order
#else
  constexpr uint64_t orders = 2;
#endif
  for (uint64_t seed = 1; seed <= orders; ++seed) {
    SCOPED_TRACE("order of threads " + std::to_string(seed));
    emulation::seed(seed);
    f();
  }
}

}  // namespace pm::cuda_test
