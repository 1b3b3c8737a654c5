// SPDX-License-Identifier: Apache-2.0
// The private memory pools of graphs, by the rules that both of PyTorch's caching allocators have for them
// (CUDACachingAllocator.cpp for device memory, CachingHostAllocator.h for pinned memory), with their assertions.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pm::fake_device {

/// The pools of one allocator, whose mutex guards them. A pool exists from its first capture on. Once no graph uses it,
/// it may not be captured into, until the allocator has freed its memory and forgets it.
class GraphPools {
 public:
  /// Returns true for a stream whose allocations belong to a capture.
  using Filter = std::function<bool(c10::Stream)>;

  /// Throws c10::Error for a pool that no graph uses any more, and while another capture allocates to the pool.
  void begin_allocate_to_pool(c10::MempoolId_t, Filter);
  /// Throws c10::Error unless a capture allocates to the pool.
  void end_allocate_to_pool(c10::MempoolId_t);
  /// Ends the use by one graph. Throws c10::Error for an unknown pool.
  void release_pool(c10::MempoolId_t);

  /// Returns the pool that an allocation on the stream belongs to; nullopt outside of captures.
  std::optional<c10::MempoolId_t> pool_of(c10::Stream) const;
  bool is_unused(c10::MempoolId_t id) const { return use_counts_.at(id) == 0; }
  void forget(c10::MempoolId_t id) { use_counts_.erase(id); }
  size_t size() const { return use_counts_.size(); }
  size_t captures_underway() const { return underway_.size(); }

 private:
  std::map<c10::MempoolId_t, int> use_counts_;  ///< graphs of each pool
  std::vector<std::pair<c10::MempoolId_t, Filter>> underway_;
};

}  // namespace pm::fake_device
