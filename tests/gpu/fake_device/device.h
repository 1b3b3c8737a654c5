// SPDX-License-Identifier: Apache-2.0
// The fake device backend (device.cpp). Linked into a program, it registers the device "fake".
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pm::fake_device {

/// Returns a CPU tensor over the memory behind a fake device's tensor, and other tensors as they are. Tests and kernels
/// read and write through it.
at::Tensor host_view(const at::Tensor&);
/// Waits until the calling thread's current stream of a fake device is idle. It is called before work that is not
/// deferred.
void synchronize_current_stream(at::Device);
/// Returns the host memory behind an address of a fake device, and other addresses as they are.
void* host_address(const void*);

/// Returns how many copies between host and device the host has waited for. PM_FAKE_COPIES reports each on stderr.
int64_t blocking_copies();

/// Takes device memory outside of the allocator, as a library does; negative: releases it.
void take_outside_allocator(int device, int64_t bytes);

/// Makes every wait for a device throw c10::Error, as after a kernel that touched a wrong address; false: no longer.
void break_device(bool so);

/// Returns the integer in an environment variable, or `otherwise` where it is not set.
int64_t environment_integer(const char* name, int64_t otherwise);

}  // namespace pm::fake_device
