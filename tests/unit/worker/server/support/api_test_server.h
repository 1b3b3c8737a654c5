// An API server over the fake engine and a byte-level tokenizer, and a client of it.
#pragma once
#include <httplib.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/worker/server/fake_engine.h"
#include "worker/comm/status.h"
#include "worker/server/api_server.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::test {

using nlohmann::json;

constexpr int32_t kEnd = 256;   // the tokenizer's end token

Tokenizer byte_tokenizer();
/// "<user>text</>" for each message, then "<assistant>"; refuses a conversation that begins with the assistant.
ChatTemplate small_template();
/// Two ranks, a window of 64 tokens, round figures of memory.
Plan two_rank_plan();
/// Both ranks ready.
std::shared_ptr<comm::StatusBoard> ready_board();

/// Polls until `condition` holds; false after `limit`.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(5));

struct Served {
  explicit Served(FakeEngine::Token token = {}, const std::function<void(server::ApiOptions&)>& adjust = {}, bool with_tokenizer = true);
  httplib::Client client(std::chrono::milliseconds read_timeout = std::chrono::seconds(10)) const;
  httplib::Result post(const json& body) const;
  httplib::Result get(const std::string& path) const;

  Tokenizer tokenizer;
  FakeEngine engine;
  std::shared_ptr<comm::StatusBoard> board;
  std::unique_ptr<server::ApiServer> api;
};

/// The "error" object of a reply; also checks status and that the reply's id stands in both places.
json error_of(const httplib::Result& result, int status);

/// A socket that sends what it is told, for requests that no client library would send.
class RawSocket {
 public:
  explicit RawSocket(int port);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  void send(const std::string& bytes) const;
  /// All until the peer closes, or what came within the limit.
  std::string read(std::chrono::milliseconds limit = std::chrono::seconds(3)) const;
  /// Like read, but stops as soon as `end` was seen.
  std::string read_until(const std::string& end, std::chrono::milliseconds limit = std::chrono::seconds(3)) const;
  int descriptor() const { return fd_; }

 private:
  int fd_;
};

}  // namespace pm::test
