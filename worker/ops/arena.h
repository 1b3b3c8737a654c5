// Memory whose size we account for: weights and KV blocks come from an Arena, everything else on the CPU from a counting allocator.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace pm::ops {

/// Hands out tensors and never gives single ones back. The processor's come from anonymous pages, which go when the last tensor has gone; those of another
/// device from ATen's allocator for it.
class Arena {
 public:
  static constexpr int64_t alignment = 64;   ///< bytes to which each tensor's size is rounded up
  explicit Arena(at::Device device = at::kCPU);
  /// An uninitialised contiguous tensor, aligned to 64 bytes. Throws std::bad_alloc when the system has no pages, c10::OutOfMemoryError when the device has not.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type);
  /// Bytes handed out, alignment included.
  int64_t bytes() const;

 private:
  struct Pages;
  at::Device device_;
  std::shared_ptr<Pages> pages_;
};

/// Makes ATen's CPU allocator count. Call once, before the first tensor.
void count_allocations();
/// Bytes of live ATen allocations of this process, and their high-water mark since reset_peak().
int64_t allocated_bytes();
int64_t peak_bytes();
void reset_peak();

}  // namespace pm::ops
