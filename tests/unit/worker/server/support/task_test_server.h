// SPDX-License-Identifier: Apache-2.0
// Runs an API server for a model of a given task over the fake engine with a tokenizer of a few words.
#pragma once
#include "tests/unit/worker/server/support/api_test_server.h"

namespace pm::test {

/// Ids of the word tokenizer: "[CLS] the cat sat [SEP]" is 2 5 6 7 3; a pair is [CLS] a [SEP] b [SEP] with types 0
/// and 1.
enum Word : int32_t {  // NOLINTBEGIN(readability-identifier-naming): they are read as constants
  pad_id,
  unknown_id,
  class_id,
  separator_id,
  mask_id,
  the_id,
  cat_id,
  sat_id,
  dog_id,
  ran_id,
  anna_id,
  smith_id
};  // NOLINTEND(readability-identifier-naming)

struct TaskTestServer {
  /// Serves a model with these capabilities. The context window is 64 tokens; positions is 16 unless it is set.
  explicit TaskTestServer(server::Capabilities capabilities, bool with_tokenizer = true,
                          const std::function<void(server::ApiOptions&)>& adjust = {});
  httplib::Client client() const;
  httplib::Result post(const std::string& path, const json& body) const;
  /// Returns the JSON of the reply; the test fails unless its status is 200.
  json ask(const std::string& path, const json& body) const;

  Tokenizer tokenizer;
  FakeEngine engine;
  std::shared_ptr<comm::StatusTable> status_table;
  std::unique_ptr<server::ApiServer> api;
};

/// Returns the tokenizer of such a server.
Tokenizer word_tokenizer();
/// Returns the capabilities of an encoder of this task, with defaults for all else.
server::Capabilities capabilities_of(const std::string& task);
/// Returns the capabilities of an encoder that embeds by mean pooling.
server::Capabilities embedding_capabilities();

/// Returns an output of floats.
Array floats(std::vector<int64_t> shape, std::vector<float> values);
/// Returns input_ids of a forward request.
const std::vector<int64_t>& ids_of(const engine::ForwardRequest& request);
/// Returns `width` values for each position of input_ids: value(id, i).
Array per_token(const engine::ForwardRequest& request, int64_t width,
                const std::function<float(int64_t id, int64_t i)>& value);

}  // namespace pm::test
