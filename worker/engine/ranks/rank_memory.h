// SPDX-License-Identifier: Apache-2.0
// Reports the memory that a rank holds in its row of the status table.
#pragma once
#include "worker/comm/membership/status_table.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// Reports weights with adapters, KV blocks and runtime after loading, and resets the peaks. On a device, runtime is
/// all device memory in use except this rank's tensors, KV blocks, communicator buffers and the allocated part of its
/// activation peak: CUDA context, libraries, spare allocator memory and other programs. A larger activation peak in the
/// table is kept.
void report_loaded(parallel::Executor&, comm::RankStatus&);
/// Reports after a step the peak of everything but weights and KV blocks. On a device it also refreshes the other
/// numbers every few steps.
void report_step(parallel::Executor&, comm::RankStatus&);

}  // namespace pm::engine
