// SPDX-License-Identifier: Apache-2.0
// Queries device memory through ATen's device-independent interfaces.
#include "worker/ops/device_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>

namespace pm::ops {

namespace {

c10::DeviceAllocator& allocator(at::Device device) {
  at::globalContext().lazyInitDevice(device.type());
  return *c10::getDeviceAllocator(device.type());
}

using Drivers = std::array<const Driver*, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

Drivers& drivers() {
  static const Driver aten;
  static Drivers all = [] {
    Drivers made;
    made.fill(&aten);
    return made;
  }();
  return all;
}

}  // namespace

DeviceMemory device_memory(at::Device device) {
  const c10::DeviceGuard here(device);
  const auto [free, total] = allocator(device).getMemoryInfo(device.index());
  const auto stats = allocator(device).getDeviceStats(device.index());
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.total = static_cast<int64_t>(total),
          .free = static_cast<int64_t>(free),
          .reserved = stats.reserved_bytes[all].current,
          .allocated = stats.allocated_bytes[all].current,
          .peak_reserved = stats.reserved_bytes[all].peak,
          .peak_allocated = stats.allocated_bytes[all].peak};
}

void reset_peak(at::Device device) { allocator(device).resetPeakStats(device.index()); }

void release_unused(at::Device device) {
  const c10::DeviceGuard here(device);  // first, because the call below restores the current device by selecting it
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  allocator(device).emptyCache();
}

Driver::MemoryInfo Driver::memory_info(at::Device device) const {
  const DeviceMemory memory = device_memory(device);
  return {memory.total, memory.free};
}

at::Tensor Driver::pinned(int64_t bytes) const {
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
}

const Driver& driver(at::DeviceType type) { return *drivers()[static_cast<size_t>(type)]; }
void register_driver(at::DeviceType type, const Driver& driver) { drivers()[static_cast<size_t>(type)] = &driver; }

}  // namespace pm::ops
