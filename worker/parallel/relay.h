// What one stage of a pipeline hands to the next: a header that says what is there and of which shape, then the tensors. So nothing has to
// stand for what is absent, and shapes may differ from step to step.
#pragma once
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace pm::parallel {

/// Sends what is defined of it to rank `to`. fp32 tensors; throws std::logic_error for others, and as Communicator::send.
void send(const models::Handover&, comm::Communicator&, int to);
/// The next that rank `from` sends, its tensors on `device`. Throws as Communicator::recv.
models::Handover receive(comm::Communicator&, int from, at::Device device = at::kCPU);

}  // namespace pm::parallel
