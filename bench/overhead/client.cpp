// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pm::bench {
namespace {

/// One connection; it retains the end of the reply, which contains the token counts.
class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect to port " + std::to_string(port));
  }
  ~Connection() {
    if (socket_ >= 0) ::close(socket_);
  }
  Connection(Connection&& other) noexcept : socket_(std::exchange(other.socket_, -1)), end_(std::move(other.end_)) {}

  int socket() const { return socket_; }
  void send(const std::string& request) {
    if (::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      throw std::runtime_error("a request could not be sent");
  }
  /// Reads available bytes; returns true at the end of the reply.
  bool read() {
    static thread_local std::vector<char> buffer(1 << 16);
    const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (count < 0) throw std::runtime_error("a reply broke off");
    end_.append(buffer.data(), static_cast<size_t>(count));
    if (end_.size() > 8192) end_.erase(0, end_.size() - 4096);
    return count == 0;
  }
  const std::string& end() const { return end_; }

 private:
  int socket_;
  std::string end_;
};

std::string request_of(const Asked& asked) {
  const std::string body =
      R"({"prompt": [1, 2, 3, 4, 5, 6, 7, 8], "temperature": 0, "ignore_eos": true, "max_tokens": )" +
      std::to_string(asked.tokens) +
      (asked.stream ? R"(, "stream": true, "stream_options": {"include_usage": true}})" : "}");
  return "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: "
         "application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

double ask(const Asked& asked) {
  std::vector<Connection> connections;
  for (int64_t i = 0; i < asked.clients; ++i) connections.emplace_back(asked.port);
  const std::string request = request_of(asked), whole = "\"completion_tokens\":" + std::to_string(asked.tokens);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pollfd> open;
  for (auto& connection : connections) {
    connection.send(request);
    open.push_back({connection.socket(), POLLIN, 0});
  }
  for (size_t left = open.size(); left > 0;) {
    if (::poll(open.data(), open.size(), 60'000) <= 0) throw std::runtime_error("nothing came for a minute");
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents == 0 || !connections[i].read()) continue;
      open[i].fd = -1;  // poll skips it
      --left;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& connection : connections)
    if (connection.end().find(whole) == std::string::npos)
      throw std::runtime_error("a reply without " + whole + "; its end is: " + connection.end());
  return seconds;
}

}  // namespace pm::bench
