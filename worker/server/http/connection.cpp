// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/connection.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pm::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between looks at whether a wait was ended. An eventfd would wake it, but take a second descriptor for each
// connection.
constexpr milliseconds end_check_interval{100};
// A client sends its first request at once. So for this long after the accept, end_wait() does not end the wait for it.
constexpr milliseconds first_request_time{200};
constexpr milliseconds linger_time{500};
constexpr size_t max_linger_bytes = 1 << 20;
constexpr size_t read_bytes = 16 << 10;
constexpr ptrdiff_t timed_out = -2;  // returned by receive() after a timeout

milliseconds time_of(size_t bytes, size_t rate) { return milliseconds(bytes * 1000 / std::max<size_t>(rate, 1)); }

/// Returns the event that a failed SSL_read or SSL_write waits for: POLLIN, POLLOUT, or 0 after an error.
short wanted_by(const SSL* ssl, int result) {
  const int error = SSL_get_error(ssl, result);
  return error == SSL_ERROR_WANT_READ ? POLLIN : error == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
}

}  // namespace

Connection::Connection(int fd, Tls* tls, const ConnectionLimits& limits)
    : fd_(fd), limits_(limits), first_request_end_(steady_clock::now() + first_request_time) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  if (tls) ssl_ = tls->accept(fd_);
}

Connection::~Connection() { ::close(fd_); }

void Connection::end_wait() { ending_ = true; }

bool Connection::wait(short events, Time until) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now()).count();
    if (left < 0) return false;
    pollfd waiting{fd_, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left + 1, 60'000)));
    if (ready > 0) return true;  // also an error or hang-up, which the next read shows
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::handshake() {
  if (!ssl_) return true;
  const auto until = steady_clock::now() + limits_.head;
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return true;
    const short wanted = wanted_by(ssl_.get(), result);
    if (wanted == 0 || !wait(wanted, until)) return false;
  }
}

/// Returns the number of bytes, 0 if the peer has closed, or -1 for an error or, if `wanted` is set, for a wait for
/// that event.
ptrdiff_t Connection::try_receive(char* to, size_t size, short& wanted) {
  wanted = 0;
  if (ssl_) {
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), to, static_cast<int>(std::min<size_t>(size, 1 << 30)));
    if (n > 0) return n;
    if (SSL_get_error(ssl_.get(), n) == SSL_ERROR_ZERO_RETURN) return 0;
    wanted = wanted_by(ssl_.get(), n);
    return -1;
  }
  for (;;) {
    const ssize_t n = recv(fd_, to, size, 0);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) wanted = POLLIN;
    return -1;
  }
}

ptrdiff_t Connection::try_send(const char* data, size_t size, short& wanted) {
  wanted = 0;
  if (ssl_) {
    ERR_clear_error();
    const int n = SSL_write(ssl_.get(), data, static_cast<int>(std::min<size_t>(size, 1 << 30)));
    if (n <= 0) wanted = wanted_by(ssl_.get(), n);
    return n > 0 ? n : -1;
  }
  for (;;) {
    const ssize_t n = send(fd_, data, size, MSG_NOSIGNAL);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) wanted = POLLOUT;
    return -1;
  }
}

/// Waits for bytes and returns as try_receive, or timed_out after `until`.
ptrdiff_t Connection::receive(char* to, size_t size, Time until) {
  for (;;) {
    short wanted = 0;
    const ptrdiff_t n = try_receive(to, size, wanted);
    if (n >= 0 || wanted == 0) return n;
    if (!wait(wanted, until)) return timed_out;
  }
}

/// Appends received bytes to the buffer and returns as receive().
ptrdiff_t Connection::fill(Time until) {
  if (taken_ > 0) {
    buffer_.erase(0, taken_);
    taken_ = 0;
  }
  const size_t before = buffer_.size();
  buffer_.resize(before + read_bytes);
  const ptrdiff_t n = receive(buffer_.data() + before, read_bytes, until);
  buffer_.resize(before + static_cast<size_t>(std::max<ptrdiff_t>(n, 0)));
  return n;
}

Connection::Head Connection::await_head() {
  const auto idle_end = steady_clock::now() + limits_.idle;
  const auto skip_line_ends = [&] {  // some clients send them after a body
    while (taken_ + 1 < buffer_.size() && buffer_[taken_] == '\r' && buffer_[taken_ + 1] == '\n') taken_ += 2;
  };
  for (skip_line_ends(); taken_ == buffer_.size(); skip_line_ends()) {
    const auto now = steady_clock::now(), end = ending_ ? std::min(idle_end, first_request_end_) : idle_end;
    const bool last_look = now >= end;  // a request that arrived before the end is still answered
    const ptrdiff_t n = fill(last_look ? now : std::min(now + end_check_interval, end));
    if (n <= 0 && (n != timed_out || last_look)) return Head::Gone;
  }
  const auto head_end = steady_clock::now() + limits_.head;
  for (size_t from = taken_;;) {
    const size_t found = buffer_.find("\n\r\n", from);
    if ((found == buffer_.npos ? buffer_.size() : found) - taken_ > limits_.head_bytes) return Head::TooLarge;
    if (found != buffer_.npos) break;
    from = std::max<size_t>(buffer_.size() - taken_, 2) - 2;  // fill() moves the remaining bytes to the front
    const ptrdiff_t n = fill(std::min(head_end, steady_clock::now() + limits_.read));
    if (n <= 0) return n == timed_out ? Head::TooSlow : Head::Gone;
  }
  received_ = 0;
  body_began_ = steady_clock::now();
  first_request_end_ = {};
  return Head::Ready;
}

ptrdiff_t Connection::read(char* to, size_t size) {
  if (taken_ < buffer_.size()) {
    const size_t n = std::min(size, buffer_.size() - taken_);
    buffer_.copy(to, n, taken_);
    taken_ += n;
    return static_cast<ptrdiff_t>(n);
  }
  const auto until =
      std::min(steady_clock::now() + limits_.read, body_began_ + limits_.body + time_of(received_, limits_.rate));
  if (size < read_bytes) {  // httplib reads lines byte by byte
    if (const ptrdiff_t n = fill(until); n <= 0) return n;
    received_ += buffer_.size();
    return read(to, size);
  }
  const ptrdiff_t n = receive(to, size, until);
  if (n > 0) received_ += static_cast<size_t>(n);
  return n;
}

bool Connection::write(const char* data, size_t size) {
  const auto until = steady_clock::now() + limits_.write + time_of(size, limits_.rate);
  while (size > 0) {
    short wanted = 0;
    const ptrdiff_t n = try_send(data, size, wanted);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (wanted == 0 || !wait(wanted, until)) {
      return false;
    }
  }
  return true;
}

bool Connection::peer_gone() const {
  pollfd look{fd_, POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void Connection::finish(bool behind_reply) {
  if (ssl_) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  if (shutdown(fd_, SHUT_WR) != 0 || !behind_reply) return;
  const auto until = steady_clock::now() + linger_time;
  char rest[4096];
  for (size_t read = 0; read < max_linger_bytes &&
                        wait(POLLIN, until);) {  // reads the raw socket, because remaining TLS data is discarded too
    const ssize_t n = recv(fd_, rest, sizeof rest, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    read += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
}

}  // namespace pm::server
