// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/support/api_test_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"

namespace pm::test {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Tokenizer byte_tokenizer() {
  TempFolder folder;
  write_tokenizer(folder.path(), byte_level_json());
  return Tokenizer::open(folder.path());
}

ChatTemplate small_template() {
  TempFolder folder;
  std::ofstream(folder.path() / "chat_template.jinja")
      << "{% if messages[0].role == 'assistant' %}{{ raise_exception('Begin with the user') }}{% endif %}"
         "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if tools %}T{{ tools | length }}{% "
         "endif %}{{ mood }}"
         "{% if add_generation_prompt %}<assistant>{% endif %}";
  return *ChatTemplate::find(folder.path());
}

Plan two_rank_plan() {
  Plan plan;
  plan.tensor = 2;
  plan.sequence_length = 64;
  plan.reason = "UserFixed";
  plan.message = "two ranks for the test";
  for (int r = 0; r < 2; ++r) {
    RankPlan rank;
    rank.rank = rank.tensor = r;
    rank.predicted = {(r + 1) << 20, 2048, 4096, 8192, 16384};
    plan.ranks.push_back(rank);
  }
  return plan;
}

std::shared_ptr<comm::StatusTable> ready_board() {
  auto status_table = comm::StatusTable::in_process(2);
  for (int r = 0; r < 2; ++r) {
    auto& rank = status_table->rank(r);
    rank.state = static_cast<uint32_t>(comm::RankState::Ready);
    rank.heartbeat_ns = steady_clock::now().time_since_epoch().count();
    rank.load_bytes = rank.load_total = 1000 + r;
    rank.load_seconds_milli = 1500;
    rank.steps = 7;
    rank.measured.weights = (r + 1) << 20;
    rank.measured.kv = 2048;
  }
  return status_table;
}

bool eventually(const std::function<bool()>& condition, milliseconds limit) {
  for (const auto end = steady_clock::now() + limit; steady_clock::now() < end;
       std::this_thread::sleep_for(milliseconds(1)))
    if (condition()) return true;
  return condition();
}

ApiTestServer::ApiTestServer(FakeEngine::Token token, const std::function<void(server::ApiOptions&)>& adjust,
                             bool with_tokenizer)
    : tokenizer(byte_tokenizer()), engine(std::move(token)), status_table(ready_board()) {
  server::ApiOptions options;
  options.http.host = "127.0.0.1";
  options.http.port = 0;
  options.names = {"org/tiny"};
  options.eos = {end_id};
  options.chat_template = small_template();
  options.status_table = status_table;
  options.accept_while_draining = milliseconds(50);
  options.unix_time = [] { return int64_t{1700000000}; };
  if (adjust) adjust(options);
  api = std::make_unique<server::ApiServer>(std::move(options), engine, with_tokenizer ? &tokenizer : nullptr,
                                            two_rank_plan());
  api->start();
}

httplib::Client ApiTestServer::client(milliseconds read_timeout) const {
  httplib::Client client("127.0.0.1", api->bound_port());
  client.set_read_timeout(read_timeout);
  client.set_tcp_nodelay(true);
  client.set_url_encode(false);
  return client;
}

httplib::Result ApiTestServer::post(const json& body) const {
  return client().Post("/v1/completions", body.dump(), "application/json");
}

httplib::Result ApiTestServer::get(const std::string& path) const { return client().Get(path); }

json error_of(const httplib::Result& result, int status) {
  if (!result) {
    ADD_FAILURE() << "no reply: " << httplib::to_string(result.error());
    return json::object();
  }
  EXPECT_EQ(result->status, status) << result->body;
  const auto body = json::parse(result->body, nullptr, false);
  if (!body.is_object() || !body.contains("error")) {
    ADD_FAILURE() << "no error object: " << result->body;
    return json::object();
  }
  const auto& error = body["error"];
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key)) << key;
  EXPECT_FALSE(result->get_header_value("x-request-id").empty());
  EXPECT_EQ(error.value("request_id", body.value("request_id", "")), result->get_header_value("x-request-id"));
  return error;
}

RawSocket::RawSocket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect failed");
}

RawSocket::~RawSocket() { close(fd_); }

void RawSocket::send(const std::string& bytes) const {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has closed the connection
    sent += static_cast<size_t>(n);
  }
}

std::string RawSocket::read(milliseconds limit) const { return read_until("", limit); }

std::string RawSocket::read_until(const std::string& end, milliseconds limit) const {
  std::string text;
  const auto until = steady_clock::now() + limit;
  for (char buffer[4096]; end.empty() || text.find(end) == text.npos;) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now()).count();
    pollfd waiting{fd_, POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) break;
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace pm::test
