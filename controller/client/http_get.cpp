// SPDX-License-Identifier: Apache-2.0
#include "controller/client/http_get.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace pm::k8s {

namespace {

using Steady = std::chrono::steady_clock;

/// A socket with one deadline for all its operations.
class Socket {
 public:
  explicit Socket(Steady::time_point deadline) : deadline_(deadline) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// Returns "" or the error.
  std::string open(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
      return "'" + host + "' is not an IP address";
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
    fd_ = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return error("socket");
    if (connect(fd_, address->ai_addr, address->ai_addrlen) == 0) return {};
    if (errno != EINPROGRESS) return error("connect");
    if (!wait(POLLOUT)) return "connect: timed out";
    int failure = 0;
    socklen_t size = sizeof failure;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &failure, &size);
    errno = failure;
    return failure == 0 ? std::string() : error("connect");
  }

  std::string send_all(const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n > 0)
        sent += static_cast<size_t>(n);
      else if (errno != EAGAIN && errno != EINTR)
        return error("send");
      else if (!wait(POLLOUT))
        return "send: timed out";
    }
    return {};
  }

  /// Appends received bytes; returns true at the end of the stream. `failure` receives the error.
  bool receive(std::string& out, std::string& failure) {
    char buffer[8192];
    for (;;) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n > 0) {
        out.append(buffer, static_cast<size_t>(n));
        return false;
      }
      if (n == 0) return true;
      if (errno == EINTR) continue;
      if (errno != EAGAIN)
        failure = error("receive");
      else if (wait(POLLIN))
        continue;
      else
        failure = "receive: timed out";
      return true;
    }
  }

 private:
  static std::string error(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

  bool wait(short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Steady::now()).count();
      if (left <= 0) return false;
      pollfd waiter{fd_, events, 0};
      const int ready = poll(&waiter, 1, static_cast<int>(left));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

  const Steady::time_point deadline_;
  int fd_ = -1;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Returns the value of a header in the lower-case head, or "".
std::string header(const std::string& head, const std::string& name) {
  const size_t begin = head.find("\r\n" + name + ":");
  if (begin == std::string::npos) return {};
  const size_t value = begin + name.size() + 3, end = head.find("\r\n", value);
  std::string text = head.substr(value, end - value);
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

}  // namespace

std::variant<PlainReply, std::string> http_get(const std::string& host, int port, const std::string& path,
                                               std::chrono::milliseconds timeout, size_t max_bytes) {
  Socket socket(Steady::now() + timeout);
  if (auto failure = socket.open(host, port); !failure.empty()) return failure;
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + name + ":" + std::to_string(port) +
                              "\r\nConnection: close\r\nAccept: application/json\r\n\r\n";
  if (auto failure = socket.send_all(request); !failure.empty()) return failure;

  std::string text, failure;
  size_t body = std::string::npos, length = std::string::npos;
  PlainReply reply;
  for (bool ended = false; !ended;) {
    ended = socket.receive(text, failure);
    if (!failure.empty()) return failure;
    if (text.size() > max_bytes) return "the answer is longer than " + std::to_string(max_bytes) + " bytes";
    if (body == std::string::npos) {
      const size_t end = text.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const std::string head = lower(text.substr(0, end + 2));
      const auto [rest, bad] =
          std::from_chars(head.data() + std::min<size_t>(9, head.size()), head.data() + head.size(), reply.status);
      if (head.rfind("http/1.", 0) != 0 || bad != std::errc() || rest == head.data()) return "the answer is not HTTP";
      if (!header(head, "transfer-encoding").empty()) return "the answer is chunked";
      if (const std::string given = header(head, "content-length"); !given.empty()) {
        if (std::from_chars(given.data(), given.data() + given.size(), length).ec != std::errc())
          return "the answer is not HTTP";
      }
      body = end + 4;
    }
    if (length != std::string::npos && text.size() - body >= length) break;
  }
  if (body == std::string::npos || (length != std::string::npos && text.size() - body < length))
    return "the answer was cut";
  reply.body = text.substr(body, length == std::string::npos ? std::string::npos : length);
  return reply;
}

}  // namespace pm::k8s
