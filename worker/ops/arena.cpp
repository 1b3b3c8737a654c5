// SPDX-License-Identifier: Apache-2.0
// Allocates arenas, and counts the allocations of ATen's CPU allocator.
#include "worker/ops/arena.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

namespace pm::ops {

namespace {
// Untouched pages of a chunk cost nothing, but the last huge page of a chunk may be touched in part. Therefore chunks
// are few and large.
constexpr int64_t chunk_bytes = int64_t{1} << 30, min_chunk_bytes = int64_t{32} << 20;

/// Maps anonymous pages; returns nullptr when the system has too few.
void* map_pages(int64_t size) {
  void* base = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

struct Arena::Pages {
  struct Chunk {
    char* base;
    int64_t size, used;
  };
  std::mutex mutex;
  std::vector<Chunk> chunks;
  int64_t bytes = 0;
  ~Pages() {
    for (auto& chunk : chunks) munmap(chunk.base, static_cast<size_t>(chunk.size));
  }
  char* take(int64_t size) {
    std::lock_guard lock(mutex);
    size = (size + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    if (chunks.empty() || chunks.back().size - chunks.back().used < size) {
      int64_t room = std::max(size, chunk_bytes);
      void* base = map_pages(room);
      if (!base) base = map_pages(room = std::max(size, min_chunk_bytes));  // address space is limited here
      if (!base) throw std::bad_alloc();
      madvise(base, static_cast<size_t>(room), MADV_HUGEPAGE);
      chunks.push_back({static_cast<char*>(base), room, 0});
    }
    char* result = chunks.back().base + chunks.back().used;
    chunks.back().used += size;
    bytes += size;
    return result;
  }
};

Arena::Arena(at::Device device) : device_(device), pages_(std::make_shared<Pages>()) {}

at::Tensor Arena::allocate(at::IntArrayRef shape, at::ScalarType type) {
  int64_t elements = 1;
  for (int64_t extent : shape) elements *= extent;
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(type));
  if (bytes == 0) return at::empty(shape, at::TensorOptions(type).device(device_));
  if (!device_.is_cpu()) {
    at::Tensor tensor = at::empty(shape, at::TensorOptions(type).device(device_));
    std::lock_guard lock(pages_->mutex);
    pages_->bytes += (bytes + alignment - 1) / alignment * alignment;
    return tensor;
  }
  char* data = pages_->take(bytes);
  return at::from_blob(data, shape, [pages = pages_](void*) {}, at::TensorOptions(type));
}

int64_t Arena::bytes() const {
  std::lock_guard lock(pages_->mutex);
  return pages_->bytes;
}

namespace {

std::atomic<int64_t> live{0}, peak{0};

/// Counts the sizes that malloc_usable_size() reports. The context of a block is its address, so that oneDNN's raw
/// allocations and deallocations are counted too.
struct Counting final : c10::Allocator {
  static void release(void* data) {
    if (data == nullptr) return;
    live.fetch_sub(static_cast<int64_t>(malloc_usable_size(data)), std::memory_order_relaxed);
    c10::free_cpu(data);
  }
  at::DataPtr allocate(size_t bytes) override {
    const auto device = at::Device(at::DeviceType::CPU);
    if (bytes == 0) return {nullptr, device};
    void* data = c10::alloc_cpu(bytes);
    const auto size = static_cast<int64_t>(malloc_usable_size(data));
    const int64_t now = live.fetch_add(size, std::memory_order_relaxed) + size;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < now && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
    return {data, data, &release, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

void count_allocations() {
  static Counting allocator;  // ATen keeps the pointer for the life of the process
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}
int64_t allocated_bytes() { return live.load(std::memory_order_relaxed); }
int64_t peak_bytes() { return peak.load(std::memory_order_relaxed); }
void reset_peak() { peak.store(live.load()); }

}  // namespace pm::ops
