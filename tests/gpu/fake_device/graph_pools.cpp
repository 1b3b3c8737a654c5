// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_device/graph_pools.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace pm::fake_device {

void GraphPools::begin_allocate_to_pool(c10::MempoolId_t id, Filter filter) {
  const auto found = use_counts_.find(id);
  TORCH_INTERNAL_ASSERT(found == use_counts_.end() || found->second > 0,
                        "a graph is captured into a pool that has memory and no graph");
  ++use_counts_[id];
  for (const auto& [other, unused] : underway_)
    TORCH_CHECK(other != id, "beginAllocateToPool: already recording to mempool_id");
  underway_.emplace_back(id, std::move(filter));
}

void GraphPools::end_allocate_to_pool(c10::MempoolId_t id) {
  const auto found = std::find_if(underway_.begin(), underway_.end(), [&](const auto& one) { return one.first == id; });
  TORCH_CHECK(found != underway_.end(), "endAllocatePool: not currently recording to mempool_id");
  underway_.erase(found);
}

void GraphPools::release_pool(c10::MempoolId_t id) {
  const auto found = use_counts_.find(id);
  TORCH_INTERNAL_ASSERT(found != use_counts_.end() && found->second > 0, "a pool is released that no graph uses");
  --found->second;
}

std::optional<c10::MempoolId_t> GraphPools::pool_of(c10::Stream stream) const {
  for (const auto& [id, filter] : underway_)
    if (filter(stream)) return id;
  return std::nullopt;
}

}  // namespace pm::fake_device
