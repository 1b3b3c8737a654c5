// SPDX-License-Identifier: Apache-2.0
// Connects two launchers: JSON messages, each after its length. Input from either side is untrusted.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/tcp/socket.h"

namespace pm::launch {

class NodeLink {
 public:
  using Clock = std::chrono::steady_clock;
  /// `caller` is true on the side that connected: it sends the greeting, and the other side expects it.
  NodeLink(comm::Socket socket, bool caller);
  /// Sets the size of the longest message that is accepted from the peer.
  void allow(size_t bytes) { longest_ = bytes; }
  void send(const nlohmann::json&);
  /// Reads and writes without waiting. Returns false when the connection has ended or the input is invalid; why() then
  /// holds the cause.
  bool pump();
  /// Returns the next message that has arrived.
  std::optional<nlohmann::json> next();
  const std::string& why() const { return why_; }
  /// Returns the time of the last input; at first the time of construction.
  Clock::time_point heard() const { return heard_; }
  void reset_silence(Clock::time_point now) { heard_ = now; }
  bool has_more_to_send() const { return !out_.empty(); }
  const comm::Socket& socket() const { return socket_; }

 private:
  bool end(const std::string& why);
  bool read();
  bool write();

  comm::Socket socket_;
  bool greeted_;
  size_t longest_ = 1 << 10;
  std::string in_, out_, why_;
  Clock::time_point heard_ = Clock::now();
};

}  // namespace pm::launch
