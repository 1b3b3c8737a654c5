// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/membership/membership.h"

#include <cstring>

#include "worker/comm/membership/device_communicator.h"
#include "worker/comm/tcp/tcp_communicator.h"

namespace pm::comm {
namespace {

/// Returns the address at which the status table shows another rank to listen; nothing while it is unknown.
std::optional<Address> address_on(StatusTable& status_table, const RankPlacement& placement, int rank) {
  RankStatus& status = status_table.rank(rank);
  const int port = status.port.load(std::memory_order_acquire);
  if (port == 0) return std::nullopt;
  return Address{placement.is_local(rank) ? "127.0.0.1"
                                          : std::string(status.address, strnlen(status.address, sizeof status.address)),
                 port};
}

/// Returns `host`, or the device communicator of the ranks on top of it. A group of one rank needs that too, because it
/// gathers tensors of its device from itself.
std::shared_ptr<Communicator> on_devices(const RankPlacement& placement, std::shared_ptr<Communicator> host) {
  if (placement.device.is_cpu()) return host;
  return device_communicator({.host = std::move(host),
                              .segment = Segment::open(placement.segment, placement.size),
                              .device = placement.device,
                              .deadline = placement.deadline});
}

}  // namespace

Membership::Membership(const RankPlacement& placement, std::shared_ptr<StatusTable> status_table)
    : placement_(placement) {
  if (placement.is_single_node()) {
    communicator_ =
        on_devices(placement, shared_memory(placement.segment, placement.rank, placement.size, placement.deadline));
    return;
  }
  MeshSettings settings{.rank = placement.rank,
                        .size = placement.size,
                        .first = placement.first,
                        .count = placement.count,
                        .replica_generation = placement.replica_generation};
  settings.token = [status_table] { return Token{status_table->token()[0].load(), status_table->token()[1].load()}; };
  settings.resolve_address = [status_table, placement](int rank) { return address_on(*status_table, placement, rank); };
  mesh_ = std::make_shared<Mesh>(std::move(settings), Segment::open(placement.segment, placement.size));
  communicator_ = on_devices(placement, tcp_communicator(mesh_, placement.segment, placement.deadline));
  status_table->rank(placement.rank).port.store(mesh_->port(), std::memory_order_release);
}

Membership::~Membership() = default;

void Membership::connect_all() {
  if (mesh_) mesh_->connect_all();
}

std::shared_ptr<Channel> Membership::channel(int follower, Direction direction) const {
  if (mesh_ && !(placement_.is_local(0) && placement_.is_local(follower)))
    return tcp_channel(mesh_, follower, placement_.deadline, direction);
  return shared_memory_channel(placement_.segment, follower, placement_.deadline, direction);
}

}  // namespace pm::comm
