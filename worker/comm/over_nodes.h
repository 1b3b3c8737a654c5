// How a rank of a group over several nodes reaches the others: shared memory on its node, TCP to the rest.
#pragma once
#include <chrono>
#include <memory>

#include "worker/comm/channel.h"
#include "worker/comm/communicator.h"
#include "worker/comm/mesh.h"

namespace pm::comm {

/// The group of all ranks of the mesh. Collectives of a split whose ranks are all on this node go through the segment, as send and recv between ranks of one node do;
/// all else over TCP. Sums are in rank order wherever ranks lie, so that every placement gives the same bits. Made before or after Mesh::meet(), used after it.
/// `segment`: this node's, made for all ranks of the world.
std::shared_ptr<Communicator> over_nodes(std::shared_ptr<Mesh> mesh, const std::string& segment, std::chrono::milliseconds deadline);

/// The channel between rank 0 and `follower`, one of which is this mesh's rank, the other on another node. After Mesh::meet().
std::shared_ptr<Channel> tcp_channel(std::shared_ptr<Mesh> mesh, int follower, std::chrono::milliseconds deadline, Way way = Way::Out);

}  // namespace pm::comm
