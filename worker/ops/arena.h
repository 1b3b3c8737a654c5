// SPDX-License-Identifier: Apache-2.0
// Memory whose size is counted: weights and KV blocks come from an Arena, all other CPU memory of ATen from a counting
// allocator.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace pm::ops {

/// Allocates tensors and releases none of them singly. CPU tensors lie in anonymous pages, which are unmapped with the
/// last tensor; tensors of another device come from ATen's allocator of that device.
class Arena {
 public:
  static constexpr int64_t alignment = 64;  ///< bytes to which each tensor's size is rounded up
  explicit Arena(at::Device device = at::kCPU);
  /// Returns an uninitialised contiguous tensor, aligned to 64 bytes. Throws std::bad_alloc when the host has no memory
  /// left, c10::OutOfMemoryError when the device has none left.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type);
  /// Returns the bytes allocated so far, alignment included.
  int64_t bytes() const;

 private:
  struct Pages;
  at::Device device_;
  std::shared_ptr<Pages> pages_;
};

/// Installs the counting allocator as ATen's CPU allocator. It is called once, before the first tensor.
void count_allocations();
/// Returns the bytes of live ATen allocations of this process, and their peak since reset_peak().
int64_t allocated_bytes();
int64_t peak_bytes();
void reset_peak();

}  // namespace pm::ops
