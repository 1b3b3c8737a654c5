// SPDX-License-Identifier: Apache-2.0
// The fake device backend (device.cpp). Linked into a program, it registers the device "fake".
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace pm::fake_device {

/// Returns a CPU tensor over the memory behind a fake device's tensor, and other tensors as they are. Tests and kernels
/// read and write through it.
at::Tensor host_view(const at::Tensor&);
/// Waits until the calling thread's current stream of a fake device is idle. It is called before work that is not
/// deferred.
void synchronize_current_stream(at::Device);
/// Returns the host memory behind an address of a fake device, and other addresses as they are.
void* host_address(const void*);

/// Takes device memory outside of the allocator, as a library does; negative: releases it.
void take_outside_allocator(int device, int64_t bytes);

/// The operations captured while a graph is captured, to be replayed on the same memory. As on a GPU, nothing may be
/// read on the host then, nor copied to or from it.
struct Capture {
  std::vector<std::function<void()>> steps;
  std::vector<at::Tensor> retained;  ///< tensors allocated during capture, as in a graph's memory pool
};
extern thread_local Capture* capture;

}  // namespace pm::fake_device
