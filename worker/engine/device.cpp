// See device.h.
#include "worker/engine/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "worker/ops/device_memory.h"

namespace pm::engine {

namespace {

int devices(at::DeviceType type) { return c10::impl::getDeviceGuardImpl(type)->deviceCount(); }

std::string in_words(int64_t bytes) {
  char text[32];
  const bool large = bytes >= int64_t{1} << 30;
  std::snprintf(text, sizeof text, "%.*f %s", large ? 2 : 1, static_cast<double>(bytes) / (large ? 1 << 30 : 1 << 20), large ? "GiB" : "MiB");
  return text;
}

}  // namespace

at::DeviceType device_type(const std::string& name) {
  std::optional<at::Device> device;
  try {
    device.emplace(name);
  } catch (const c10::Error&) {   // a name that ATen does not know
  }
  if (device && device->is_cpu()) return at::kCPU;
  if (!device || device->has_index() || !c10::impl::hasDeviceGuardImpl(device->type())) {
    throw Error(ErrorKind::Usage, "NoDevice", "--device " + name + ": this worker was built without it; it knows cpu, and cuda when it is built with the preset cuda");
  }
  if (devices(device->type()) == 0) {
    throw Error(ErrorKind::Usage, "NoDevice", "--device " + name + ": this host shows none to this process; look for its driver, and at the resources of the pod");
  }
  return device->type();
}

at::Device device_of(at::DeviceType type, int rank) {
  if (type == at::kCPU) return at::kCPU;
  return {type, static_cast<c10::DeviceIndex>(rank % devices(type))};
}

int sharing(at::DeviceType type, int rank, int ranks) {
  if (type == at::kCPU) return 1;
  const int count = devices(type);
  return (ranks - rank % count + count - 1) / count;
}

Offer offer_of(at::DeviceType type, int ranks) {
  const ops::Driver& driver = ops::driver(type);
  Offer offer{.memory = std::numeric_limits<int64_t>::max()};
  for (int rank = 0; rank < std::min(ranks, devices(type)); ++rank) {
    const at::Device device = device_of(type, rank);
    const int together = sharing(type, rank, ranks);
    try {
      const ops::Driver::Room room = driver.look(device);
      if (room.free / together >= offer.memory) continue;
      offer = {room.free / together, "free of " + in_words(room.total) + " of " + device.str() + (together > 1 ? ", in " + std::to_string(together) + " parts" : ""), driver.product(device)};
    } catch (const c10::Error& error) {
      throw Error(ErrorKind::Usage, "NoDevice", device.str() + " does not say how much memory it has: " + error.what_without_backtrace() + "; look at its driver, or give --device-memory");
    }
  }
  return offer;
}

void limit_to_plan(const Plan& plan, int rank, at::Device device, int ranks_of_process) {
  if (device.is_cpu() || plan.device_memory <= 0) return;
  const Memory& predicted = plan.ranks.at(static_cast<size_t>(rank)).predicted;
  const int64_t each = std::max<int64_t>(0, plan.device_memory - predicted.runtime - predicted.communicator);
  ops::driver(device.type()).limit(device, each * ranks_of_process);
}

void refuse_for_memory(at::Device device, const std::string& when, const parallel::Executor* executor, const std::string& cause) {
  const size_t asked = cause.find("Tried to allocate "), end = asked == std::string::npos ? asked : cause.find("iB", asked);
  const std::string what = end == std::string::npos ? "" : " for " + cause.substr(asked + 18, end + 2 - asked - 18);
  std::string parts;
  if (!device.is_cpu()) {
    const ops::DeviceMemory memory = ops::device_memory(device);
    const int64_t weights = executor ? executor->weight_bytes() : 0, kv = executor ? executor->kv_bytes() : 0;
    parts = ": of its " + in_words(memory.total) + ", " + in_words(memory.allocated) + " are in this process's tensors" +
            (executor ? " (weights " + in_words(weights) + ", KV blocks " + in_words(kv) + ", others " + in_words(std::max<int64_t>(0, memory.allocated - weights - kv)) + ")" : "") + ", " +
            in_words(memory.reserved - memory.allocated) + " are spare memory of its allocator, " + in_words(memory.others()) + " are held by contexts, libraries and other programs, " +
            in_words(memory.free) + " are free, of which the plan's device memory may allow less";
  }
  throw Error(ErrorKind::DoesNotFit, "OOMKilled", device.str() + " has no memory" + what + " " + when + parts +
                                                      ". Give more --device-memory where there is more, more --ranks, a --precision of 16 bits, a shorter --max-sequence-length, a smaller "
                                                      "--max-concurrency, or --strategy Offload");
}

}  // namespace pm::engine
