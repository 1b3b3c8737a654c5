// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <limits>

#include "base/byte_size.h"
#include "worker/ops/device_memory.h"

namespace pm::engine {

namespace {

int devices(at::DeviceType type) { return c10::impl::getDeviceGuardImpl(type)->deviceCount(); }

}  // namespace

at::DeviceType device_type(const std::string& name) {
  std::optional<at::Device> device;
  try {
    device.emplace(name);
  } catch (const c10::Error&) {  // ATen does not know this name
  }
  if (device && device->is_cpu()) return at::kCPU;
  if (!device || device->has_index() || !c10::impl::hasDeviceGuardImpl(device->type())) {
    throw Error(Reason::NoDevice,
                "--device " + name +
                    ": this worker was built without it; use cpu, or cuda with a worker built with the preset cuda");
  }
  if (devices(device->type()) == 0) {
    throw Error(
        Reason::NoDevice,
        "--device " + name +
            ": no such device is visible to this process; check the driver and the device resources of the pod");
  }
  return device->type();
}

at::Device rank_device(at::DeviceType type, int rank) {
  if (type == at::kCPU) return at::kCPU;
  return {type, static_cast<c10::DeviceIndex>(rank % devices(type))};
}

int ranks_sharing_device(at::DeviceType type, int rank, int ranks) {
  if (type == at::kCPU) return 1;
  const int count = devices(type);
  return (ranks - rank % count + count - 1) / count;
}

DeviceCapacity device_capacity(at::DeviceType type, int ranks) {
  const ops::Driver& driver = ops::driver(type);
  DeviceCapacity capacity{.memory = std::numeric_limits<int64_t>::max()};
  for (int rank = 0; rank < std::min(ranks, devices(type)); ++rank) {
    const at::Device device = rank_device(type, rank);
    const int together = ranks_sharing_device(type, rank, ranks);
    try {
      const ops::Driver::MemoryInfo info = driver.memory_info(device);
      if (info.free / together >= capacity.memory) continue;
      capacity = {info.free / together,
                  "free of " + base::format_bytes(info.total) + " of " + device.str() +
                      (together > 1 ? ", shared by " + std::to_string(together) + " ranks" : ""),
                  driver.product(device)};
    } catch (const c10::Error& error) {
      throw Error(Reason::NoDevice, device.str() + " does not report its memory: " + error.what_without_backtrace() +
                                        "; check the driver or set --device-memory");
    }
  }
  return capacity;
}

void limit_device_memory(const Plan& plan, int rank, at::Device device, int ranks_of_process) {
  if (device.is_cpu() || plan.device_memory <= 0) return;
  const int64_t each = std::max<int64_t>(0, tensor_memory(plan, rank));
  ops::driver(device.type()).set_memory_limit(device, each * ranks_of_process);
}

void throw_out_of_memory(at::Device device, const std::string& when, const parallel::Executor* executor,
                         const std::string& cause) {
  const size_t begin = cause.find("Tried to allocate "),
               end = begin == std::string::npos ? begin : cause.find("iB", begin);
  const std::string what = end == std::string::npos ? "" : " for " + cause.substr(begin + 18, end + 2 - begin - 18);
  std::string parts;
  if (!device.is_cpu()) {
    const ops::DeviceMemory memory = ops::device_memory(device);
    const int64_t weights = executor ? executor->weight_bytes() : 0,
                  kv = executor ? executor->kv_bytes() + executor->state_bytes() : 0;
    parts =
        ": of its " + base::format_bytes(memory.total) + ", " + base::format_bytes(memory.allocated) +
        " are in this process's tensors" +
        (executor ? " (weights " + base::format_bytes(weights) + ", KV blocks " + base::format_bytes(kv) + ", others " +
                        base::format_bytes(std::max<int64_t>(0, memory.allocated - weights - kv)) + ")"
                  : "") +
        ", " + base::format_bytes(memory.reserved - memory.allocated) + " are cached by its allocator, " +
        base::format_bytes(memory.non_torch()) + " are held by contexts, libraries and other programs, " +
        base::format_bytes(memory.free) + " are free, of which the plan's device memory may allow less";
  }
  throw Error(Reason::OOMKilled,
              device.str() + " has no memory" + what + " " + when + parts +
                  ". Give more --device-memory if the device has more, more --ranks, a 16-bit --precision, a smaller "
                  "--max-sequence-length, a smaller "
                  "--max-concurrency, or --strategy Offload");
}

}  // namespace pm::engine
