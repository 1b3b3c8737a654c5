// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/tcp/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int unanswered_ms = 15'000;  ///< a connection ends when bytes stay unacknowledged for so long
constexpr int unsent_bytes = 1 << 20;  ///< send buffer of a connection, where the kernel allows it

void set(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);
}

/// Sets the options of all connections. Where the kernel refuses one, the limits above still hold.
void prepare(int descriptor) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
  set(descriptor, SOL_SOCKET, SO_SNDBUF, unsent_bytes);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left <= 0 ? 0 : static_cast<int>(std::min<long long>(left, 3'600'000));
}

std::string text(int error) { return std::strerror(error); }

bool is_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

template <class Span>
msghdr message(iovec (&parts)[2], Span head, Span body) {
  parts[0] = {const_cast<std::byte*>(head.data()), head.size()};
  parts[1] = {const_cast<std::byte*>(body.data()), body.size()};
  msghdr out{};
  out.msg_iov = parts, out.msg_iovlen = 2;
  return out;
}

Socket connect_one(const addrinfo& where, Clock::time_point deadline, std::string& why) {
  Socket socket(::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return why = text(errno), Socket();
  prepare(socket.descriptor());
  int error = ::connect(socket.descriptor(), where.ai_addr, where.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd event{socket.descriptor(), POLLOUT, 0};
    const int ready = poll(&event, 1, milliseconds_until(deadline));
    socklen_t size = sizeof error;
    if (ready <= 0)
      error = ETIMEDOUT;
    else
      getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return socket;
  why = text(error);
  return Socket();
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) close(), descriptor_ = other.release();
  return *this;
}

int Socket::release() { return std::exchange(descriptor_, -1); }

void Socket::close() {
  if (is_open()) ::close(release());
}

void Socket::shut() const {
  if (is_open()) ::shutdown(descriptor_, SHUT_RDWR);
}

Socket listen_on(int port) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {  // an IPv6 socket, where it exists, takes connections of both families
    Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) continue;
    set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_in6 six{};
    sockaddr_in four{};
    six.sin6_family = AF_INET6, six.sin6_port = htons(static_cast<uint16_t>(port));
    four.sin_family = AF_INET, four.sin_port = six.sin6_port;
    if (family == AF_INET6) set(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const int bound = family == AF_INET6 ? bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&six), sizeof six)
                                         : bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&four), sizeof four);
    if (bound == 0 && listen(socket.descriptor(), 128) == 0) return socket;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  throw Error(Reason::PortInUse,
              "cannot listen on port " + std::to_string(port) + " for the other nodes of the group: " + text(error));
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) prepare(socket.descriptor());
  return socket;
}

Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout, std::string& why) {
  const auto deadline = Clock::now() + timeout;
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC, wanted.ai_socktype = SOCK_STREAM, wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list); error != 0) {
    why = gai_strerror(error);
    return Socket();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next)
    if (Socket socket = connect_one(*one, deadline, why); socket.is_open()) return socket;
  return Socket();
}

std::string peer_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char digits[64] = {};
  if (getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string out = digits, mapped = "::ffff:";  // an IPv4 address of a connection to the IPv6 listener
  return out.starts_with(mapped) && out.find('.') != std::string::npos ? out.substr(mapped.size()) : out;
}

std::optional<size_t> send_some(const Socket& socket, std::span<const std::byte> head,
                                std::span<const std::byte> body) {
  iovec parts[2];
  const msghdr all = message(parts, head, body);
  const ssize_t count = sendmsg(socket.descriptor(), &all, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  return is_wait(errno) ? std::optional<size_t>(0) : std::nullopt;
}

std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> head, std::span<std::byte> body) {
  iovec parts[2];
  msghdr all = message(parts, head, body);
  const ssize_t count = recvmsg(socket.descriptor(), &all, MSG_DONTWAIT);
  if (count > 0) return static_cast<size_t>(count);
  return count < 0 && is_wait(errno) ? std::optional<size_t>(0) : std::nullopt;
}

bool wait_for(const Socket& socket, bool write, std::chrono::milliseconds timeout) {
  const auto deadline = timeout > std::chrono::hours(24) ? Clock::time_point::max() : Clock::now() + timeout;
  do {
    pollfd event{socket.descriptor(), static_cast<short>(write ? POLLOUT : POLLIN), 0};
    if (poll(&event, 1, deadline == Clock::time_point::max() ? 3'600'000 : milliseconds_until(deadline)) > 0)
      return true;
  } while (Clock::now() < deadline);
  return false;
}

bool send_all(const Socket& socket, std::span<const std::byte> bytes, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!bytes.empty()) {
    const auto count = send_some(socket, bytes);
    if (!count) return false;
    bytes = bytes.subspan(*count);
    if (*count == 0 && !wait_for(socket, true, std::chrono::milliseconds(milliseconds_until(deadline)))) return false;
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (!bytes.empty()) {
    const auto count = receive_some(socket, bytes);
    if (!count) return false;
    bytes = bytes.subspan(*count);
    if (!bytes.empty() && Clock::now() >= deadline) return false;  // also limits a peer that sends one byte at a time
    if (*count == 0 && !wait_for(socket, false, std::chrono::milliseconds(milliseconds_until(deadline)))) return false;
  }
  return true;
}

}  // namespace pm::comm
