// SPDX-License-Identifier: Apache-2.0
// The handles and workspaces of cuBLAS as PyTorch has them (CUDABlasHandlePool, CublasHandlePool.cpp): a thread has a
// handle on each device, which later threads take over. A workspace belongs to a handle and a stream. It is allocated
// at the first product there, so within a capture from the pool of the graph, and it stays until the process ends.
#pragma once
#include <c10/core/Device.h>

#include <string>

namespace pm::fake_device {

constexpr size_t blas_workspace_bytes = 64 << 10;  // 32 MiB on Hopper

/// Returns true for an operation of ATen that cuBLAS computes on a GPU.
bool is_blas(const std::string& operation);
/// Allocates the workspace of the calling thread's handle and current stream, unless there is one.
void use_blas(at::Device);
/// Returns the number of workspaces of a device.
size_t blas_workspaces(c10::DeviceIndex);

}  // namespace pm::fake_device
