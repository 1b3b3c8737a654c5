// SPDX-License-Identifier: Apache-2.0
// The devices that ranks run on, their capacity, and the error for a device that runs out of memory.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "planner/plan.h"
#include "worker/base/error.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// Parses the name of a device type: cpu, or an accelerator that this program was built with (cuda). Throws
/// Error{NoDevice} if the program was built without it or the host has no such device.
at::DeviceType device_type(const std::string& name);

/// Returns the device of a rank, which is numbered on its node. If there are fewer devices than ranks, the ranks share
/// the devices round-robin.
at::Device rank_device(at::DeviceType, int rank);
/// Returns how many of the `ranks` on this node share the device of rank `rank`, that rank included; 1 on the CPU.
int ranks_sharing_device(at::DeviceType, int rank, int ranks);

/// Device memory per rank, as input for the planner. Not used on the CPU.
struct DeviceCapacity {
  int64_t memory = 0;   ///< bytes for one rank: the free memory of the fullest device divided by its ranks
  std::string source;   ///< where the number comes from, in words
  std::string product;  ///< product name as in node labels; empty: unknown
};
/// Queries the devices of a node without allocating memory on them. Throws Error{NoDevice} if a device does
/// not answer.
DeviceCapacity device_capacity(at::DeviceType, int ranks);

/// Limits the device allocator to what the plan grants the ranks of this process: device memory less runtime and
/// communicator memory, which the allocator does not hold. Does nothing on the CPU.
void limit_device_memory(const Plan&, int rank, at::Device, int ranks_of_process);

/// Reports that a device ran out of memory: the size of the allocation, what holds the rest, and what to do. Throws
/// Error{OOMKilled}.
[[noreturn]] void throw_out_of_memory(at::Device, const std::string& when, const parallel::Executor*,
                                      const std::string& cause);

/// Calls `f()` and turns an out-of-memory exception into the error of throw_out_of_memory(). `executor` is nullptr
/// while the executor is being made.
template <typename F>
auto with_memory_errors(at::Device device, const std::string& when, const parallel::Executor* executor, F&& f) {
  try {
    return f();
  } catch (const c10::OutOfMemoryError& error) {
    throw_out_of_memory(device, when, executor, error.what_without_backtrace());
  }
}

}  // namespace pm::engine
