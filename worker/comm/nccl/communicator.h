// The communicator of ranks that are processes with a device each: NCCL for their devices' tensors, the host's communicator for all else.
#pragma once
#include "worker/comm/devices.h"
#include "worker/comm/nccl/streams.h"

namespace pm::comm::nccl {

/// Operations on tensors of the group's device go into the calling thread's current stream and return before they are done; a thread watches that they come to an end within the
/// deadline, and what has come to the host is to be believed after check(). The first collective of a group, and the first hand-over between two ranks, joins them: so ranks need
/// not have loaded at the same time. Ids of NCCL go round over `host`, between ranks of its incarnation only. Collectives that differ in operation or size on ranks of one node are
/// told apart by std::logic_error, as are hand-overs of different size between any two ranks. Empty tensors and groups of one rank ask NCCL nothing. barrier() is the hosts'.
std::shared_ptr<Communicator> join(const DeviceGroup&, const Streams&);

}  // namespace pm::comm::nccl
