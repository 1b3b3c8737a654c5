// Which devices ranks run on, what these offer, and what it means when one has no memory left.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "planner/plan.h"
#include "worker/base/error.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// The kind of device that `name` means: cpu, or an accelerator that this program was built with (cuda). Throws Error{Usage, "NoDevice"} when it was
/// built without it, or this host has none.
at::DeviceType device_type(const std::string& name);

/// The device of the rank with this number on its node; where there are fewer devices than ranks, they share them in turn.
at::Device device_of(at::DeviceType, int rank);
/// How many of `ranks` on this node share the device of rank `rank` with it, itself included. 1 on the processor.
int sharing(at::DeviceType, int rank, int ranks);

/// What a device offers to each of the ranks on it, for a plan. Not of the processor.
struct Offer {
  int64_t memory = 0;        ///< bytes for one rank: what is free of the fullest device, in equal parts
  std::string source;        ///< of that figure, in words
  std::string product;       ///< as node labels call it; empty: not known
};
/// Nothing stays in use of the devices. Throws Error{Usage, "NoDevice"} when one does not answer.
Offer offer_of(at::DeviceType, int ranks);

/// Holds the allocator of the device to what its ranks in this process may have by the plan: device memory less runtime and communicator, which are not its own. Does nothing on the processor.
void limit_to_plan(const Plan&, int rank, at::Device, int ranks_of_process);

/// A device without memory for what it was asked: how much that was, what holds the rest, and what to do about it. Throws Error{DoesNotFit, "OOMKilled"}.
[[noreturn]] void refuse_for_memory(at::Device, const std::string& when, const parallel::Executor*, const std::string& cause);

/// `f()`, whose lack of memory becomes such an error. `executor` may be nullptr: while it is being made.
template <typename F>
auto with_memory_errors(at::Device device, const std::string& when, const parallel::Executor* executor, F&& f) {
  try {
    return f();
  } catch (const c10::OutOfMemoryError& error) {
    refuse_for_memory(device, when, executor, error.what_without_backtrace());
  }
}

}  // namespace pm::engine
