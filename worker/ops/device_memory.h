// SPDX-License-Identifier: Apache-2.0
// Device memory usage: what the driver reports, and the statistics of ATen's allocator.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace pm::ops {

/// Device memory in bytes. `total` and `free` count all processes, the other members this process only.
struct DeviceMemory {
  int64_t total = 0, free = 0;
  int64_t reserved = 0, allocated = 0;            ///< taken from the device by the allocator; of that in tensors
  int64_t peak_reserved = 0, peak_allocated = 0;  ///< since reset_peak()
  /// Returns the memory in use that is not ATen's: contexts, libraries and other programs.
  int64_t non_torch() const { return total - free - reserved; }
};

/// Returns the memory usage of a device other than the CPU; creates the process's context on it. Throws c10::Error when
/// the device has failed.
DeviceMemory device_memory(at::Device);
void reset_peak(at::Device);
/// Synchronizes the device and releases the allocator's cached memory to it.
void release_unused(at::Device);

/// Device queries that ATen does not offer. This default implementation reports what ATen knows.
class Driver {
 public:
  virtual ~Driver() = default;
  struct MemoryInfo {
    int64_t total = 0, free = 0;
  };
  /// Returns the memory of a device without leaving a context on it, for a process that will not use it.
  virtual MemoryInfo memory_info(at::Device) const;
  /// Returns the product name as Kubernetes node labels spell it ("NVIDIA-H100-80GB-HBM3"); empty when unknown.
  virtual std::string product(at::Device) const { return {}; }
  /// Limits what the allocator takes of the device for this process to `bytes`; beyond it throws c10::OutOfMemoryError.
  /// Returns false when the device has no such limit.
  virtual bool set_memory_limit(at::Device, int64_t /*bytes*/) const { return false; }
  /// Returns an uninitialised uint8 tensor of `bytes` bytes in pinned host memory. The caller waits for all copies from
  /// it before dropping it. Throws c10::Error when there is no such memory left.
  virtual at::Tensor pinned(int64_t bytes) const;
};

const Driver& driver(at::DeviceType);
/// `driver` stays. Call before the first use of that kind of device.
void register_driver(at::DeviceType, const Driver& driver);

}  // namespace pm::ops
