// SPDX-License-Identifier: Apache-2.0
// The allocators of the fake device: device memory, which the host cannot touch, and pinned host memory.
// PM_FAKE_MEMORY is the MiB of each device (default 16384), PM_FAKE_OTHERS the MiB of these that others hold (default
// 256).
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/gpu/fake_device/graph_pools.h"

namespace pm::fake_device {

constexpr auto device_type = at::DeviceType::PrivateUse1;

/// The device allocator: addresses that fault when they are touched, and the host memory that backs them. Freed memory
/// goes back to the device, but for that of a graph's pool, which stays in the pool for later captures until no graph
/// uses the pool and the cache is emptied.
class Memory final : public c10::DeviceAllocator {
 public:
  static Memory& instance();
  at::DataPtr allocate(size_t bytes) override;
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override;
  void* host(const void* address) const;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override;
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override;
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override;
  void take_outside_allocator(c10::DeviceIndex, int64_t bytes);
  void limit(c10::DeviceIndex, int64_t bytes);

  // as c10::cuda::CUDACachingAllocator has them
  void begin_allocate_to_pool(c10::DeviceIndex, c10::MempoolId_t, GraphPools::Filter);
  void end_allocate_to_pool(c10::DeviceIndex, c10::MempoolId_t);
  void release_pool(c10::DeviceIndex, c10::MempoolId_t);
  size_t graph_pools(c10::DeviceIndex);
  size_t captures_underway(c10::DeviceIndex);

 private:
  struct Block {
    size_t size = 0;
    c10::Stream stream;
    std::optional<c10::MempoolId_t> pool;
  };
  struct PoolMemory {
    std::map<size_t, std::vector<size_t>> free;  ///< offsets by size
    size_t allocated_blocks = 0;
  };
  struct Usage {
    c10::CachingAllocator::Stat allocated, reserved;
    int64_t limit = std::numeric_limits<int64_t>::max(), beside = 0;
    GraphPools pools;
    std::map<c10::MempoolId_t, PoolMemory> pool_memory;
  };
  Memory();
  static void release(void* data);
  int64_t left(const Usage&) const;
  size_t take(size_t size);
  void give_back(size_t offset, size_t size, Usage&);
  void release_unused_pools(Usage&);

  char *device_, *host_;
  std::mutex mutex_;  ///< guards the members below
  size_t used_ = 0;
  std::unordered_map<size_t, Block> blocks_;
  std::map<c10::DeviceIndex, Usage> usage_;
  std::map<size_t, std::vector<size_t>> free_;
};

/// Pinned memory in pages of its own, which fault once they are freed, so that a late copy does not go unnoticed.
/// Captures have pools here, too, as in PyTorch's allocator of pinned memory; nothing is allocated to them.
class Pinned final : public c10::Allocator {
 public:
  static Pinned& instance();
  at::DataPtr allocate(size_t bytes) override;
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  /// Returns whether the address lies in pinned memory.
  bool owns(const void* address);

  void begin_allocate_to_pool(c10::MempoolId_t, GraphPools::Filter);
  void end_allocate_to_pool(c10::MempoolId_t);
  void release_pool(c10::MempoolId_t);
  size_t captures_underway();

 private:
  Pinned() = default;
  static void release(void* base);
  std::mutex mutex_;  ///< guards the members below
  GraphPools pools_;
  std::map<const char*, size_t> blocks_;  ///< bytes from each address
};

}  // namespace pm::fake_device
