// SPDX-License-Identifier: Apache-2.0
// A client's connection, plain or TLS, with a limit on every wait. httplib limits single reads only, so a client that
// sends a byte now and then could occupy a thread for hours.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "worker/server/http/tls.h"

namespace pm::server {

struct ConnectionLimits {
  std::chrono::milliseconds read{5000};  ///< maximum wait for bytes
  std::chrono::milliseconds head{
      10'000};  ///< from a request's first byte to the end of its headers; also of a TLS handshake
  std::chrono::milliseconds body{30'000};   ///< time to receive a body, plus a second per `rate` received bytes
  std::chrono::milliseconds write{10'000};  ///< time to write a chunk of a reply, plus a second per `rate` of its bytes
  std::chrono::milliseconds idle{120'000};  ///< time between requests; gateways reuse connections for a minute and more
  size_t head_bytes = 64 << 10;             ///< maximum bytes of the request line and headers
  size_t rate = 64 << 10;                   ///< bytes per second; a slower peer is disconnected
};

/// A connection, used by one thread. It owns the file descriptor.
class Connection {
 public:
  Connection(int fd, Tls* tls, const ConnectionLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Performs the TLS handshake and returns whether it succeeded; without TLS it returns true at once.
  bool handshake();
  enum class Head { Ready, Gone, TooSlow, TooLarge };
  /// Waits until the next request's line and headers are received completely. Gone: the peer closed, was silent for
  /// `idle`, or end_wait() was called; a connection that has just begun gets a moment for its first request
  /// nevertheless, and a request that has arrived is not lost.
  Head await_head();
  /// Ends this wait for a request and all later ones. Called on any thread.
  void end_wait();
  /// Returns whether end_wait() was called, so that the next reply should be the last.
  bool is_ending() const { return ending_; }
  /// Reads bytes of the request, starting with its head. Returns their number; 0 if the peer has closed, and a negative
  /// value for an error or a peer that is too slow.
  ptrdiff_t read(char* to, size_t size);
  /// Writes all bytes and returns true, or returns false.
  bool write(const char* data, size_t size);
  /// Returns whether the peer has closed its side, with one system call.
  bool peer_gone() const;
  /// Shuts down the sending side. Behind a reply it then reads for a moment, so that the peer gets it instead of a
  /// reset.
  void finish(bool behind_reply);
  int descriptor() const { return fd_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  bool wait(short events, Time until) const;
  ptrdiff_t receive(char* to, size_t size, Time until);
  ptrdiff_t try_receive(char* to, size_t size, short& wanted);
  ptrdiff_t try_send(const char* data, size_t size, short& wanted);
  ptrdiff_t fill(Time until);

  const int fd_;
  std::atomic<bool> ending_{false};
  const ConnectionLimits limits_;
  std::unique_ptr<SSL, SslFree> ssl_;
  std::string buffer_;   ///< bytes received from the peer
  size_t taken_ = 0;     ///< bytes of buffer_ that read() has returned
  size_t received_ = 0;  ///< received bytes of the current body
  Time body_began_;
  Time first_request_end_;  ///< until here end_wait() does not end the wait for the first request
};

}  // namespace pm::server
