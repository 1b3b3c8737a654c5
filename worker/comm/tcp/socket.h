// SPDX-License-Identifier: Apache-2.0
// Wraps TCP connections between the nodes of a group. They are non-blocking, without delay (TCP_NODELAY), and end after
// a bounded silence of the peer.
#pragma once
#include <chrono>
#include <optional>
#include <span>
#include <string>

namespace pm::comm {

/// Owns a descriptor and closes it when destroyed.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();
  /// Shuts down both directions, which wakes whoever waits on either side. May be called from any thread while the
  /// socket lives.
  void shut() const;

 private:
  int release();
  int descriptor_ = -1;
};

/// Listens on all addresses of this machine; port 0 takes any free one. Throws Error{PortInUse}.
Socket listen_on(int port);
int port_of(const Socket& listener);
/// Accepts the next pending connection; the result is not open when there is none.
Socket accept_from(const Socket& listener);
/// Resolves `host`, a name or an address, and connects. The result is not open when that failed or took longer than
/// `timeout`; `why` then holds the cause.
Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout, std::string& why);
/// Returns the address of the peer as digits: "10.88.0.4", "fd00::4".
std::string peer_of(const Socket&);

/// Send or receive without waiting. Return the number of bytes, 0 when the call would have to wait, and nothing when
/// the connection has ended.
std::optional<size_t> send_some(const Socket&, std::span<const std::byte> head, std::span<const std::byte> body = {});
std::optional<size_t> receive_some(const Socket&, std::span<std::byte> head, std::span<std::byte> body = {});
/// Waits until bytes can be read (or written). Returns false when `timeout` passed.
bool wait_for(const Socket&, bool write, std::chrono::milliseconds timeout);
/// Send or receive all bytes within `timeout`. Return false when it passed or the connection ended.
bool send_all(const Socket&, std::span<const std::byte>, std::chrono::milliseconds timeout);
bool receive_all(const Socket&, std::span<std::byte>, std::chrono::milliseconds timeout);

}  // namespace pm::comm
