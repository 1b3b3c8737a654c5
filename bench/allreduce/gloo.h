// SPDX-License-Identifier: Apache-2.0
// Wraps Gloo's all_reduce, which torch.distributed uses on CPUs, in a function.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

/// Joins a Gloo group over loopback TCP; rank 0 serves the store at `port`. The function sums a tensor in place over
/// all ranks; the last copy leaves the group.
std::function<void(at::Tensor&)> gloo_all_reduce(int rank, int size, unsigned short port);
