// SPDX-License-Identifier: Apache-2.0
// Tests the plain GET against misbehaving servers on the loopback interface.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "controller/client/http_get.h"

namespace pm::k8s {
namespace {

using testing::HasSubstr;

/// Accepts one connection, sends its response, and closes it or stays silent until the peer closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::string text, bool silent_then = false) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_, 1);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::jthread([this, text = std::move(text), silent_then] {
      const int peer = accept(listener_, nullptr, nullptr);
      char request[4096];
      const ssize_t got = recv(peer, request, sizeof request, 0);
      seen.assign(request, got > 0 ? static_cast<size_t>(got) : 0);
      for (size_t sent = 0; sent < text.size();) {
        const ssize_t n = send(peer, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
      if (silent_then) (void)recv(peer, request, sizeof request, 0);  // until the peer closes
      close(peer);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }
  int port = 0;
  std::string seen;

 private:
  int listener_;
  std::jthread thread_;
};

auto ask(int port) { return http_get("127.0.0.1", port, "/status", std::chrono::milliseconds(300), 1000); }
std::string failure(int port) {
  const auto answer = ask(port);
  return std::holds_alternative<std::string>(answer) ? std::get<std::string>(answer) : "";
}

TEST(HttpGet, ReadsAnAnswerWithAndWithoutLength) {
  for (const char* text : {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", "HTTP/1.0 200 OK\r\nX: y\r\n\r\n{}"}) {
    OneAnswer server(text);
    const auto answer = ask(server.port);
    ASSERT_TRUE(std::holds_alternative<PlainReply>(answer)) << std::get<std::string>(answer);
    EXPECT_EQ(std::get<PlainReply>(answer).status, 200);
    EXPECT_EQ(std::get<PlainReply>(answer).body, "{}");
  }
  OneAnswer server("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", true);
  EXPECT_EQ(std::get<PlainReply>(ask(server.port)).status, 503);
}

TEST(HttpGet, BoundsTimeAndBytes) {
  OneAnswer silent("HTTP/1.1 200 OK\r\n", true), endless("HTTP/1.1 200 OK\r\n\r\n" + std::string(100000, 'x'));
  EXPECT_THAT(failure(silent.port), HasSubstr("timed out"));
  EXPECT_THAT(failure(endless.port), HasSubstr("longer than 1000 bytes"));
}

TEST(HttpGet, RefusesWhatIsNoPlainAnswer) {
  OneAnswer garbage("SSH-2.0\r\n\r\n"), chunked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
      cut("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"), lies("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}"),
      nothing("");
  EXPECT_THAT(failure(garbage.port), HasSubstr("not HTTP"));
  EXPECT_THAT(failure(chunked.port), HasSubstr("chunked"));
  EXPECT_THAT(failure(cut.port), HasSubstr("cut"));
  EXPECT_THAT(failure(lies.port), HasSubstr("not HTTP"));
  EXPECT_THAT(failure(nothing.port), HasSubstr("cut"));
  EXPECT_THAT(failure(1), HasSubstr("refused"));
  EXPECT_THAT(std::get<std::string>(http_get("example.invalid", 80, "/", std::chrono::seconds(1), 100)),
              HasSubstr("not an IP address"));
}

}  // namespace
}  // namespace pm::k8s
