// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/support/task_test_server.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"

namespace pm::test {

Tokenizer word_tokenizer() {
  const std::vector<std::string> words{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the",
                                       "cat",   "sat",   "dog",   "ran",   "Anna",   "Smith"};
  json vocab = json::object(), added = json::array();
  for (size_t i = 0; i < words.size(); ++i) {
    vocab[words[i]] = i;
    if (i <= mask_id)
      added.push_back({{"id", i},
                       {"content", words[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  }
  const auto special = [](const char* id, int type) { return json{{"SpecialToken", {{"id", id}, {"type_id", type}}}}; };
  const auto text = [](const char* id, int type) { return json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  const json single = {special("[CLS]", 0), text("A", 0), special("[SEP]", 0)};
  const json pair = {special("[CLS]", 0), text("A", 0), special("[SEP]", 0), text("B", 1), special("[SEP]", 1)};
  const json specials = {{"[CLS]", {{"id", "[CLS]"}, {"ids", {class_id}}, {"tokens", {"[CLS]"}}}},
                         {"[SEP]", {{"id", "[SEP]"}, {"ids", {separator_id}}, {"tokens", {"[SEP]"}}}}};
  TempFolder folder;
  write_tokenizer(
      folder.path(),
      json{{"version", "1.0"},
           {"truncation", nullptr},
           {"padding", nullptr},
           {"added_tokens", added},
           {"normalizer", nullptr},
           {"pre_tokenizer", {{"type", "Whitespace"}}},
           {"post_processor",
            {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}}},
           {"decoder", nullptr},
           {"model", {{"type", "WordLevel"}, {"vocab", vocab}, {"unk_token", "[UNK]"}}}}
          .dump());
  return Tokenizer::open(folder.path());
}

TaskTestServer::TaskTestServer(server::Capabilities capabilities, bool with_tokenizer,
                               const std::function<void(server::ApiOptions&)>& adjust)
    : tokenizer(word_tokenizer()), status_table(ready_board()) {
  server::ApiOptions options;
  options.http.host = "127.0.0.1";
  options.http.port = 0;
  options.names = {"org/tiny"};
  options.chat_template = small_template();
  options.status_table = status_table;
  options.accept_while_draining = std::chrono::milliseconds(50);
  if (capabilities.positions == 0) capabilities.positions = 16;
  options.capabilities = std::move(capabilities);
  if (adjust) adjust(options);
  api = std::make_unique<server::ApiServer>(std::move(options), engine, with_tokenizer ? &tokenizer : nullptr,
                                            two_rank_plan());
  api->start();
}

httplib::Client TaskTestServer::client() const {
  httplib::Client client("127.0.0.1", api->bound_port());
  client.set_read_timeout(std::chrono::seconds(10));
  client.set_tcp_nodelay(true);
  return client;
}

httplib::Result TaskTestServer::post(const std::string& path, const json& body) const {
  return client().Post(path, body.dump(), "application/json");
}

json TaskTestServer::ask(const std::string& path, const json& body) const {
  const auto result = post(path, body);
  EXPECT_TRUE(result) << httplib::to_string(result.error());
  if (!result) return {};
  EXPECT_EQ(result->status, 200) << result->body;
  EXPECT_FALSE(result->get_header_value("x-request-id").empty());
  return json::parse(result->body, nullptr, false);
}

server::Capabilities capabilities_of(const std::string& task) {
  server::Capabilities can;
  can.architecture = "TinyFor" + task;
  can.task = policy::parse<policy::Task>(task).value();
  can.kind = policy::ModelKind::Encoder;
  can.token_types = true;
  can.scores = can.hidden_states = can.attentions = 4;
  return can;
}

server::Capabilities embedding_capabilities() {
  auto can = capabilities_of("embed");
  can.text = {"last_hidden_state", {server::Pooling::Mean}};
  can.states = "last_hidden_state";
  can.pooler = "pooler_output";
  return can;
}

Array floats(std::vector<int64_t> shape, std::vector<float> values) { return {std::move(shape), std::move(values)}; }

const std::vector<int64_t>& ids_of(const engine::ForwardRequest& request) {
  return std::get<std::vector<int64_t>>(request.inputs.at("input_ids").values);
}

Array per_token(const engine::ForwardRequest& request, int64_t width,
                const std::function<float(int64_t id, int64_t i)>& value) {
  auto shape = request.inputs.at("input_ids").shape;
  shape.push_back(width);
  std::vector<float> values;
  for (int64_t id : ids_of(request))
    for (int64_t i = 0; i < width; ++i) values.push_back(value(id, i));
  return {std::move(shape), std::move(values)};
}

}  // namespace pm::test
