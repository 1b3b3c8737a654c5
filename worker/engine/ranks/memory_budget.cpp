// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/memory_budget.h"

#include <algorithm>

namespace pm::engine {

namespace {

int64_t at_least_0(int64_t bytes) { return std::max<int64_t>(0, bytes); }

/// Returns the bytes that CUDA graphs hold in the allocator, whose graph pools serve nothing else, and outside the
/// allocator. The latter are counted only if no other rank uses the device.
int64_t graph_bytes(const ops::DeviceMemory& before, const ops::DeviceMemory& after, int ranks_on_device) {
  const int64_t in_allocator =
                    at_least_0(std::max(after.allocated - before.allocated, after.reserved - before.reserved)),
                outside = at_least_0(after.non_torch() - before.non_torch());
  return in_allocator + (ranks_on_device == 1 ? outside : 0);
}

}  // namespace

int64_t MemoryBudget::kv() const { return at_least_0(limit - allocated - step()); }

int64_t MemoryBudget::kv_blocks(int64_t promised, int64_t max_blocks) const {
  const auto blocks_in = [&](int64_t bytes) {
    return block_bytes > 0 ? std::min(max_blocks, at_least_0(bytes) / block_bytes) : max_blocks;
  };
  return std::max(blocks_in(kv() - answers), std::min(promised, blocks_in(kv())));
}

MemoryBudget memory_budget(const WarmUpMemory& memory, int64_t plan_limit, int64_t answers) {
  const ops::DeviceMemory& now = memory.without_blocks;
  return {.limit = std::min(now.reserved + now.free / memory.ranks_on_device, plan_limit),
          .allocated = now.allocated + memory.state_bytes,
          .activations = memory.after_step.peak_allocated - memory.before_step.allocated,
          .fragmentation = at_least_0(memory.after_step.peak_reserved - memory.after_step.peak_allocated),
          .graphs = graph_bytes(memory.without_graphs, memory.with_graphs, memory.ranks_on_device),
          .answers = answers,
          .block_bytes = memory.block_bytes};
}

}  // namespace pm::engine
