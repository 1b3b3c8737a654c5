// SPDX-License-Identifier: Apache-2.0
// Sends the state of one pipeline stage to the next: a header with the names and shapes of the tensors, then the
// tensors. Absent tensors take no space, and shapes may differ from step to step.
#pragma once
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace pm::parallel {

/// Sends the defined tensors of the state to rank `to`. They must be F32. Throws std::logic_error for other dtypes, and
/// what Communicator::send throws.
void send(const models::StageState&, comm::Communicator&, int to);
/// Receives the next state from rank `from`, with its tensors on `device`. Throws what Communicator::recv throws.
models::StageState receive(comm::Communicator&, int from, at::Device device = at::kCPU);

}  // namespace pm::parallel
