// A client's connection, plain or TLS, with a limit on every wait: httplib limits single reads only, so that one byte now and then would hold a
// thread for hours.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "worker/server/tls.h"

namespace pm::server {

struct ConnectionLimits {
  std::chrono::milliseconds read{5000};      ///< of one wait for bytes
  std::chrono::milliseconds head{10'000};    ///< from a request's first byte to the end of its headers; also of a TLS handshake
  std::chrono::milliseconds body{30'000};    ///< of a body, and a second more per `rate` bytes that came
  std::chrono::milliseconds write{10'000};   ///< of one piece of a reply, and a second more per `rate` of its bytes
  std::chrono::milliseconds idle{10'000};    ///< between requests
  size_t head_bytes = 64 << 10;              ///< of a request's line and headers
  size_t rate = 64 << 10;                    ///< bytes per second, below which a peer is too slow
};

/// Used by one thread. Owns the descriptor.
class Connection {
 public:
  Connection(int fd, Tls* tls, const ConnectionLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The TLS handshake; true at once without TLS.
  bool handshake();
  enum class Head { Ready, Gone, TooSlow, TooLarge };
  /// Waits until the next request's line and headers are here whole. Gone: closed, silent for `idle`, or `stopping`.
  Head await_head(const std::atomic<bool>& stopping);
  /// Bytes of the request, those of its head first. 0: the peer has closed; negative: broken, or too slow.
  ptrdiff_t read(char* to, size_t size);
  /// All of it, or false.
  bool write(const char* data, size_t size);
  /// Whether the peer has closed its side; costs one system call.
  bool peer_gone() const;
  /// Ends our side, then reads on for a moment so that the peer gets the last reply instead of a reset.
  void finish();
  int descriptor() const { return fd_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  bool wait(short events, Time until) const;
  ptrdiff_t receive(char* to, size_t size, Time until);
  ptrdiff_t try_receive(char* to, size_t size, short& wanted);
  ptrdiff_t try_send(const char* data, size_t size, short& wanted);
  ptrdiff_t fill(Time until);

  const int fd_;
  const ConnectionLimits limits_;
  std::unique_ptr<SSL, SslFree> ssl_;
  std::string buffer_;         ///< read from the peer and not yet taken
  size_t taken_ = 0;           ///< of buffer_
  size_t received_ = 0;        ///< of the present body
  Time body_began_;
};

}  // namespace pm::server
