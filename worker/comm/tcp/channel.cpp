// SPDX-License-Identifier: Apache-2.0
// Implements the channel between nodes over the control connection of the two ranks. Each message follows its length;
// the two directions of the connection are two channels.
#include <algorithm>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/comm/tcp/exchange.h"
#include "worker/comm/tcp/tcp_communicator.h"

namespace pm::comm {
namespace {

constexpr uint64_t longest = uint64_t{4} << 30;
constexpr size_t piece = 1 << 20;  ///< memory is allocated as bytes arrive, not as a length announces

class TcpChannel final : public Channel {
 public:
  TcpChannel(std::shared_ptr<Mesh> mesh, int other, std::chrono::milliseconds deadline)
      : mesh_(std::move(mesh)),
        other_(other),
        socket_(mesh_->connection(other, Purpose::Control)),
        exchange_(mesh_->segment().note(), mesh_->settings().rank, mesh_->settings().count, deadline,
                  [m = mesh_.get()](const std::string& why) { m->abort(why); }) {}

  void send(std::span<const uint8_t> message) override {
    const std::span<std::byte> body(reinterpret_cast<std::byte*>(const_cast<uint8_t*>(message.data())),
                                    message.size());  // an outgoing transfer only reads its body
    Transfer transfer{.socket = &socket_, .peer = other_, .outgoing = true, .tag = message.size(), .body = body};
    exchange_.run("channel send", std::span(&transfer, 1));
  }

  std::optional<std::vector<uint8_t>> receive(std::chrono::milliseconds timeout) override {
    if (!exchange_.wait_for_data("channel receive", socket_, timeout)) return std::nullopt;
    Transfer length{.socket = &socket_, .peer = other_, .any_tag = true};
    exchange_.run("channel receive", std::span(&length, 1));
    if (length.tag > longest) {
      const std::string what = "channel receive on rank " + std::to_string(mesh_->settings().rank) + ": a message of " +
                               std::to_string(length.tag) + " bytes from rank " + std::to_string(other_);
      mesh_->abort(what);
      throw Error(Reason::CommunicatorAborted, what);
    }
    std::vector<uint8_t> message;
    while (message.size() < length.tag) {
      const size_t at = message.size(), count = std::min<uint64_t>(piece, length.tag - at);
      message.resize(at + count);
      Transfer body{.socket = &socket_,
                    .peer = other_,
                    .body = std::as_writable_bytes(std::span(message).subspan(at)),
                    .done = sizeof(uint64_t)};
      exchange_.run("channel receive", std::span(&body, 1));
    }
    return message;
  }

  void abort(const std::string& reason) override { mesh_->abort(reason); }

 private:
  const std::shared_ptr<Mesh> mesh_;
  const int other_;
  const Socket& socket_;
  Exchange exchange_;
};

}  // namespace

std::shared_ptr<Channel> tcp_channel(std::shared_ptr<Mesh> mesh, int follower, std::chrono::milliseconds deadline,
                                     Direction) {
  const int rank = mesh->settings().rank;
  if (follower < 1 || follower >= mesh->settings().size || (rank != 0 && rank != follower))
    throw std::invalid_argument("channel between rank 0 and rank " + std::to_string(follower) + " on rank " +
                                std::to_string(rank) + " of " + std::to_string(mesh->settings().size));
  return std::make_shared<TcpChannel>(std::move(mesh), rank == 0 ? follower : 0, deadline);
}

}  // namespace pm::comm
