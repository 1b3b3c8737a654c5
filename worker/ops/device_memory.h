// What a device's memory holds: the driver's figures, and those of ATen's allocator for it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace pm::ops {

/// Bytes. `total` and `free` are the device's, whoever uses it; the others this process's.
struct DeviceMemory {
  int64_t total = 0, free = 0;
  int64_t reserved = 0, allocated = 0;             ///< taken from the device by the allocator; of that in tensors
  int64_t peak_reserved = 0, peak_allocated = 0;   ///< since reset_peak()
  /// What the device holds beside this process's tensors and the allocator's spare memory: contexts, libraries, other programs.
  int64_t others() const { return total - free - reserved; }
};

/// Of a device that is not the processor; makes the process's context on it. Throws c10::Error when the device has failed.
DeviceMemory device_memory(at::Device);
void reset_peak(at::Device);
/// Gives memory that is in no tensor back to the device, once its work is done.
void release_unused(at::Device);

/// What ATen does not say of a kind of device. This one knows nothing more than ATen.
class Driver {
 public:
  virtual ~Driver() = default;
  struct Room { int64_t total = 0, free = 0; };
  /// The memory of a device, for a process that will not use it: nothing of it stays in use.
  virtual Room look(at::Device) const;
  /// As node labels call it ("NVIDIA-H100-80GB-HBM3"); empty: not known.
  virtual std::string product(at::Device) const { return {}; }
  /// From here on the allocator takes at most so many bytes of the device for this process; more is c10::OutOfMemoryError. False: this device has no such limit.
  virtual bool limit(at::Device, int64_t /*bytes*/) const { return false; }
  /// An uninitialised uint8 tensor in the host's memory from which copies to such devices run beside the host's work; whoever drops it has waited for them. Throws c10::Error when there is no such memory left.
  virtual at::Tensor pinned(int64_t bytes) const;
};

const Driver& driver(at::DeviceType);
/// `driver` stays. Call before the first use of that kind of device.
void use_driver(at::DeviceType, const Driver& driver);

}  // namespace pm::ops
