// SPDX-License-Identifier: Apache-2.0
// Makes the communicator and the channels of a group over several nodes: shared memory inside a node, TCP between
// nodes.
#pragma once
#include <chrono>
#include <memory>

#include "worker/comm/channel.h"
#include "worker/comm/communicator.h"
#include "worker/comm/tcp/mesh.h"

namespace pm::comm {

/// Makes the communicator of all ranks of the mesh. A split whose ranks are all on this node uses the segment, as do
/// send and recv between ranks of one node; everything else uses TCP. Sums are in rank order wherever ranks run, so
/// that every placement gives the same bits. May be made before Mesh::connect_all() and is used after it. `segment` is
/// the one of this node, made for all ranks of the world.
std::shared_ptr<Communicator> tcp_communicator(std::shared_ptr<Mesh> mesh, const std::string& segment,
                                               std::chrono::milliseconds deadline);

/// Makes the channel between rank 0 and `follower`. One of them is the rank of this mesh, the other is on another node.
/// Must be called after Mesh::connect_all().
std::shared_ptr<Channel> tcp_channel(std::shared_ptr<Mesh> mesh, int follower, std::chrono::milliseconds deadline,
                                     Direction direction = Direction::ToFollower);

}  // namespace pm::comm
