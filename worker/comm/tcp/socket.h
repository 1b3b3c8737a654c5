// TCP connections between the nodes of a group: non-blocking, without delay, and never believed in for long when the other side is silent.
#pragma once
#include <chrono>
#include <optional>
#include <span>
#include <string>

namespace pm::comm {

/// A descriptor, closed at the end.
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
  /// Ends both directions; whoever waits on it, on either side, hears of it. From any thread while the socket lives.
  void shut() const;

 private:
  int release();
  int descriptor_ = -1;
};

/// Listens on all addresses of this machine; port 0: any free one. Throws Error{Usage, "PortInUse"}.
Socket listen_on(int port);
int port_of(const Socket& listener);
/// The next connection that waits; not open when none does.
Socket accept_from(const Socket& listener);
/// Resolves `host`, a name or an address, and connects. Not open when that failed or took longer than `timeout`; `why` then says what happened.
Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout, std::string& why);
/// The other side's address as digits: "10.88.0.4", "fd00::4".
std::string peer_of(const Socket&);

/// Sends or receives what goes without waiting: the bytes, 0 when it would have to wait, nothing when the connection has ended.
std::optional<size_t> send_some(const Socket&, std::span<const std::byte> head, std::span<const std::byte> body = {});
std::optional<size_t> receive_some(const Socket&, std::span<std::byte> head, std::span<std::byte> body = {});
/// Waits until bytes can be read (or written). False when `timeout` passed.
bool wait_for(const Socket&, bool write, std::chrono::milliseconds timeout);
/// All of them within `timeout`; false when it passed or the connection ended.
bool send_all(const Socket&, std::span<const std::byte>, std::chrono::milliseconds timeout);
bool receive_all(const Socket&, std::span<std::byte>, std::chrono::milliseconds timeout);

}  // namespace pm::comm
