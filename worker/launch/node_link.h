// One connection between two launchers: JSON messages, each after its length, neither of which anybody has to believe.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/socket.h"

namespace pm::launch {

class Link {
 public:
  using Clock = std::chrono::steady_clock;
  /// `caller`: this side connected, and greets first; the other expects that.
  Link(comm::Socket socket, bool caller);
  /// Longest message that is taken from the other side.
  void allow(size_t bytes) { longest_ = bytes; }
  void send(const nlohmann::json&);
  /// Reads and writes what goes without waiting. False when the connection has ended or what came is not of this kind; why() then says which.
  bool pump();
  /// The next message that has come.
  std::optional<nlohmann::json> next();
  const std::string& why() const { return why_; }
  /// When anything came last; at first when it was made.
  Clock::time_point heard() const { return heard_; }
  void forgive(Clock::time_point now) { heard_ = now; }
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
