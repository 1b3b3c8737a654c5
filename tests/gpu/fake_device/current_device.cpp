// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_device/current_device.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pm::fake_device {

namespace {

thread_local c10::DeviceIndex selected = 0;  ///< by the runtime
thread_local c10::DeviceIndex wanted = -1;   ///< what maybe_set_device() left for later; -1: nothing
std::atomic<uint64_t> context_bits{0};

uint64_t bit(c10::DeviceIndex device) { return uint64_t{1} << device; }

void make_context(c10::DeviceIndex device) {
  if (has_context(device) || (context_bits.fetch_or(bit(device)) & bit(device)) != 0) return;
  if (std::getenv("PM_FAKE_CONTEXTS"))
    std::fprintf(stderr, "fake device: process %d has a context on fake:%d\n", static_cast<int>(getpid()), device);
}

}  // namespace

c10::DeviceIndex current_device() { return wanted >= 0 ? wanted : selected; }

void set_device(c10::DeviceIndex device) {
  wanted = -1;
  if (device == selected) return;
  selected = device;
  make_context(device);
}

void maybe_set_device(c10::DeviceIndex device) noexcept {
  if (device < 0) return;
  if (has_context(device))
    set_device(device);
  else
    wanted = device;
}

void use_runtime() { make_context(selected); }

void use_device() {
  set_device(current_device());
  make_context(selected);
}

void require_current(at::Device device) {
  TORCH_CHECK(device.index() == current_device(), "CUDA error: invalid resource handle: a launch on ", device,
              " by a thread whose current device is ", static_cast<int>(current_device()));
  use_device();
}

bool has_context(c10::DeviceIndex device) { return (context_bits.load() & bit(device)) != 0; }

std::set<int> contexts() {
  std::set<int> all;
  for (int device = 0; device < 64; ++device)
    if (has_context(static_cast<c10::DeviceIndex>(device))) all.insert(device);
  return all;
}

void forget_context(c10::DeviceIndex device) { context_bits.fetch_and(~bit(device)); }
void forget_contexts() { context_bits = 0; }

}  // namespace pm::fake_device
