// SPDX-License-Identifier: Apache-2.0
// Runs an API server over the fake engine with a byte-level tokenizer, and provides clients of it.
#pragma once
#include <httplib.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/worker/server/support/fake_engine.h"
#include "worker/comm/membership/status_table.h"
#include "worker/server/api_server.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::test {

using nlohmann::json;

constexpr int32_t end_id = 256;  // the tokenizer's end token

Tokenizer byte_tokenizer();
/// Renders "<user>text</>" for each message, then "<assistant>". Raises an exception for a conversation that begins
/// with the assistant.
ChatTemplate small_template();
/// A plan of two ranks, a context window of 64 tokens and round memory sizes.
Plan two_rank_plan();
/// A status table in which both ranks are ready.
std::shared_ptr<comm::StatusTable> ready_board();

/// Polls until `condition` holds. Returns false after `limit`.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(5));

struct ApiTestServer {
  explicit ApiTestServer(FakeEngine::Token token = {}, const std::function<void(server::ApiOptions&)>& adjust = {},
                         bool with_tokenizer = true);
  httplib::Client client(std::chrono::milliseconds read_timeout = std::chrono::seconds(10)) const;
  httplib::Result post(const json& body) const;
  httplib::Result get(const std::string& path) const;

  Tokenizer tokenizer;
  FakeEngine engine;
  std::shared_ptr<comm::StatusTable> status_table;
  std::unique_ptr<server::ApiServer> api;
};

/// Returns the "error" object of a reply. Checks the status, and that header and body carry the same request id.
json error_of(const httplib::Result& result, int status);

/// A raw socket, for requests that no client library would send.
class RawSocket {
 public:
  explicit RawSocket(int port);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  void send(const std::string& bytes) const;
  /// Returns everything until the peer closes the connection or the limit passes.
  std::string read(std::chrono::milliseconds limit = std::chrono::seconds(3)) const;
  /// Reads like read(), but stops once `end` was received.
  std::string read_until(const std::string& end, std::chrono::milliseconds limit = std::chrono::seconds(3)) const;
  int descriptor() const { return fd_; }

 private:
  int fd_;
};

}  // namespace pm::test
