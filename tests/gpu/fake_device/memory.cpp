// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_device/memory.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/streams.h"

namespace pm::fake_device {

namespace {

constexpr size_t address_space_bytes = size_t{64} << 30;  // of virtual addresses, not of memory
constexpr size_t page = 4096;

size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

int64_t total() { return environment_integer("PM_FAKE_MEMORY", 16384) << 20; }
int64_t others() { return environment_integer("PM_FAKE_OTHERS", 256) << 20; }

char* map_addresses(int protection) {
  void* base = mmap(nullptr, address_space_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::runtime_error("mmap found no virtual addresses for a fake device");
  return static_cast<char*>(base);
}

}  // namespace

Memory& Memory::instance() {
  static auto* memory = new Memory;  // never destroyed, because tensors of static storage may outlive it
  return *memory;
}

Memory::Memory() : device_(map_addresses(PROT_NONE)), host_(map_addresses(PROT_READ | PROT_WRITE)) {}

at::DataPtr Memory::allocate(size_t bytes) {
  const at::Device device(device_type, current_device());
  if (bytes == 0) return {nullptr, device};
  use_device();
  const size_t size = pages(bytes);
  const c10::Stream stream = Streams::instance().current(device);
  const std::lock_guard lock(mutex_);
  Usage& use = usage_[device.index()];
  const std::optional<c10::MempoolId_t> pool = use.pools.pool_of(stream);
  size_t offset = 0;
  auto* free = pool ? &use.pool_memory[*pool].free[size] : nullptr;
  if (free && !free->empty()) {
    offset = free->back();
    free->pop_back();
  } else {
    if (static_cast<int64_t>(size) > left(use)) release_unused_pools(use);
    TORCH_CHECK_WITH(OutOfMemoryError, static_cast<int64_t>(size) <= left(use),
                     "fake out of memory. Tried to allocate ", static_cast<double>(size) / (1 << 20), " MiB, ",
                     left(use), " bytes are left");
    offset = take(size);
    use.reserved.increase(size);
  }
  if (pool) ++use.pool_memory[*pool].allocated_blocks;
  use.allocated.increase(size);
  blocks_.insert_or_assign(offset, Block{size, stream, pool});
  void* data = device_ + offset;
  return {data, data, &release, device};
}

/// Frees memory, which work of the stream that it was allocated on may still use.
void Memory::release(void* data) {
  Memory& memory = instance();
  const auto offset = static_cast<size_t>(static_cast<char*>(data) - memory.device_);
  std::unique_lock lock(memory.mutex_);
  const Block block = memory.blocks_.at(offset);
  lock.unlock();
  Stream::of(block.stream.device_index()).finish();
  if (block.stream.id() != 0) Streams::instance().finish(block.stream);
  lock.lock();
  Usage& use = memory.usage_[block.stream.device_index()];
  use.allocated.decrease(block.size);
  if (!block.pool) return memory.give_back(offset, block.size, use);
  PoolMemory& pool = use.pool_memory[*block.pool];
  pool.free[block.size].push_back(offset);
  --pool.allocated_blocks;
}

int64_t Memory::left(const Usage& use) const {
  return std::min(use.limit, total() - others() - use.beside) - use.reserved.current;
}

/// Returns the offset of addresses that nothing uses.
size_t Memory::take(size_t size) {
  if (auto& free = free_[size]; !free.empty()) {
    const size_t offset = free.back();
    free.pop_back();
    return offset;
  }
  if (used_ + size > address_space_bytes) throw std::runtime_error("the fake device has no virtual addresses left");
  used_ += size;
  return used_ - size;
}

/// Returns memory to the device.
void Memory::give_back(size_t offset, size_t size, Usage& use) {
  madvise(host_ + offset, size, MADV_DONTNEED);
  free_[size].push_back(offset);
  use.reserved.decrease(size);
}

/// Returns the free memory of pools to the device that no graph uses, and forgets those that have no more memory.
void Memory::release_unused_pools(Usage& use) {
  for (auto at = use.pool_memory.begin(); at != use.pool_memory.end();) {
    auto& [id, pool] = *at;
    if (!use.pools.is_unused(id)) {
      ++at;
      continue;
    }
    for (const auto& [size, offsets] : pool.free)
      for (const size_t offset : offsets) give_back(offset, size, use);
    pool.free.clear();
    if (pool.allocated_blocks > 0) {
      ++at;
      continue;
    }
    use.pools.forget(id);
    at = use.pool_memory.erase(at);
  }
}

void Memory::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(host(to), host(from), bytes);
}

void* Memory::host(const void* address) const {
  const auto* bytes = static_cast<const char*>(address);
  return bytes >= device_ && bytes < device_ + address_space_bytes ? host_ + (bytes - device_)
                                                                   : const_cast<void*>(address);
}

void Memory::emptyCache(c10::MempoolId_t) {
  const std::lock_guard lock(mutex_);
  for (auto& [device, use] : usage_) release_unused_pools(use);
}

c10::CachingDeviceAllocator::DeviceStats Memory::getDeviceStats(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocated_bytes[0] = usage_[device].allocated;
  stats.reserved_bytes[0] = usage_[device].reserved;
  return stats;
}

void Memory::resetPeakStats(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  usage_[device].allocated.reset_peak();
  usage_[device].reserved.reset_peak();
}

std::pair<size_t, size_t> Memory::getMemoryInfo(c10::DeviceIndex device) {
  const OnDevice here(device);
  use_runtime();
  const std::lock_guard lock(mutex_);
  const Usage& use = usage_[device];
  return {static_cast<size_t>(total() - others() - use.beside - use.reserved.current), static_cast<size_t>(total())};
}

void Memory::take_outside_allocator(c10::DeviceIndex device, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  usage_[device].beside += bytes;
}

void Memory::limit(c10::DeviceIndex device, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  usage_[device].limit = bytes;
}

void Memory::begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id, GraphPools::Filter filter) {
  const std::lock_guard lock(mutex_);
  Usage& use = usage_[device];
  use.pools.begin_allocate_to_pool(id, std::move(filter));
  use.pool_memory.try_emplace(id);
}

void Memory::end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  usage_[device].pools.end_allocate_to_pool(id);
}

void Memory::release_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  usage_[device].pools.release_pool(id);
}

size_t Memory::graph_pools(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  return usage_[device].pools.size();
}

size_t Memory::captures_underway(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  return usage_[device].pools.captures_underway();
}

Pinned& Pinned::instance() {
  static auto* pinned = new Pinned;
  return *pinned;
}

at::DataPtr Pinned::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, at::kCPU};
  const size_t size = pages(bytes) + page;
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(base != MAP_FAILED, "no pinned memory");
  *static_cast<size_t*>(base) = size;
  const std::lock_guard lock(mutex_);
  blocks_.emplace(static_cast<char*>(base), size);
  return {static_cast<char*>(base) + page, base, &release, at::kCPU};
}

void Pinned::release(void* base) {
  if (!base) return;
  const std::lock_guard lock(instance().mutex_);
  instance().blocks_.erase(static_cast<char*>(base));
  munmap(base, *static_cast<size_t*>(base));
}

bool Pinned::owns(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(static_cast<const char*>(address));
  return after != blocks_.begin() &&
         static_cast<const char*>(address) < std::prev(after)->first + std::prev(after)->second;
}

void Pinned::begin_allocate_to_pool(c10::MempoolId_t id, GraphPools::Filter filter) {
  const std::lock_guard lock(mutex_);
  pools_.begin_allocate_to_pool(id, std::move(filter));
}

void Pinned::end_allocate_to_pool(c10::MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  pools_.end_allocate_to_pool(id);
}

void Pinned::release_pool(c10::MempoolId_t id) {
  const std::lock_guard lock(mutex_);
  pools_.release_pool(id);
}

size_t Pinned::captures_underway() {
  const std::lock_guard lock(mutex_);
  return pools_.captures_underway();
}

}  // namespace pm::fake_device
