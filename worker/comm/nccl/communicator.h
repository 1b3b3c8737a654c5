// SPDX-License-Identifier: Apache-2.0
// Makes the NCCL communicator of ranks that are processes with a device each: NCCL for tensors of their devices, the
// host communicator for everything else.
#pragma once
#include "worker/comm/membership/device_communicator.h"
#include "worker/comm/nccl/streams.h"

namespace pm::comm::nccl {

/// Makes the communicator of a group. Operations on tensors of its device go into the current stream of the calling
/// thread and return before they are done; a watchdog thread checks that they end within the deadline. Results that
/// were copied to the host are valid only after check(). The first collective of a group and the first transfer between
/// two ranks join them in NCCL, so ranks may load at different times. NCCL ids are sent over `host`, between ranks of
/// one replica generation only. Collectives that differ in operation or size on ranks of one node throw
/// std::logic_error, as do transfers of different size between any two ranks. Empty tensors and groups of one rank make
/// no NCCL call. barrier() runs on the host.
std::shared_ptr<Communicator> join(const DeviceGroup&, const Streams&);

}  // namespace pm::comm::nccl
