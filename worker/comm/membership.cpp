// See membership.h.
#include "worker/comm/membership.h"

#include <cstring>

#include "worker/comm/devices.h"
#include "worker/comm/over_nodes.h"

namespace pm::comm {
namespace {

/// Where the board says that another rank listens.
std::optional<Address> address_on(StatusBoard& board, const Place& place, int rank) {
  RankStatus& status = board.rank(rank);
  const int port = status.port.load(std::memory_order_acquire);
  if (port == 0) return std::nullopt;
  return Address{place.here(rank) ? "127.0.0.1" : std::string(status.address, strnlen(status.address, sizeof status.address)), port};
}

/// `host`, or what joins the ranks' devices beside it; a group of one rank, too, has tensors there that it gathers of itself.
std::shared_ptr<Communicator> on_devices(const Place& place, std::shared_ptr<Communicator> host) {
  if (place.device.is_cpu()) return host;
  return over_devices({.host = std::move(host), .segment = Segment::open(place.segment, place.size), .device = place.device, .deadline = place.deadline});
}

}  // namespace

Membership::Membership(const Place& place, std::shared_ptr<StatusBoard> board) : place_(place) {
  if (place.one_node()) {
    communicator_ = on_devices(place, shared_memory(place.segment, place.rank, place.size, place.deadline));
    return;
  }
  MeshSettings settings{.rank = place.rank, .size = place.size, .first = place.first, .count = place.count, .incarnation = place.incarnation};
  settings.token = [board] { return Token{board->token()[0].load(), board->token()[1].load()}; };
  settings.book = [board, place](int rank) { return address_on(*board, place, rank); };
  mesh_ = std::make_shared<Mesh>(std::move(settings), Segment::open(place.segment, place.size));
  communicator_ = on_devices(place, over_nodes(mesh_, place.segment, place.deadline));
  board->rank(place.rank).port.store(mesh_->port(), std::memory_order_release);
}

Membership::~Membership() = default;

void Membership::meet() {
  if (mesh_) mesh_->meet();
}

std::shared_ptr<Channel> Membership::channel(int follower, Way way) const {
  if (mesh_ && !(place_.here(0) && place_.here(follower))) return tcp_channel(mesh_, follower, place_.deadline, way);
  return shared_memory_channel(place_.segment, follower, place_.deadline, way);
}

}  // namespace pm::comm
