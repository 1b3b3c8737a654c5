// An API server for a model of some task over the fake engine and a tokenizer of a few words, and a client of it.
#pragma once
#include "tests/unit/worker/server/served.h"

namespace pm::test {

/// Ids of the word tokenizer: "[CLS] the cat sat [SEP]" is 2 5 6 7 3; a pair is [CLS] a [SEP] b [SEP] with types 0 and 1.
enum Word : int32_t { kPad, kUnknown, kClass, kSeparator, kMask, kThe, kCat, kSat, kDog, kRan, kAnna, kSmith };

struct Tasked {
  /// `abilities` of the model; the window is 64 tokens, positions 16 unless the abilities say otherwise.
  explicit Tasked(server::Abilities abilities, bool with_tokenizer = true, const std::function<void(server::ApiOptions&)>& adjust = {});
  httplib::Client client() const;
  httplib::Result post(const std::string& path, const json& body) const;
  /// The reply's JSON; fails unless it is a 200.
  json ask(const std::string& path, const json& body) const;

  Tokenizer tokenizer;
  FakeEngine engine;
  std::shared_ptr<comm::StatusBoard> board;
  std::unique_ptr<server::ApiServer> api;
};

/// An encoder of this task, and nothing else set.
server::Abilities abilities_of(const std::string& task);
/// An encoder that embeds by the mean.
server::Abilities embedding_abilities();

/// An output of floats.
Array floats(std::vector<int64_t> shape, std::vector<float> values);
/// input_ids of a pass.
const std::vector<int64_t>& ids_of(const engine::ForwardRequest& request);
/// For each place of input_ids `width` values: value(id, i).
Array per_token(const engine::ForwardRequest& request, int64_t width, const std::function<float(int64_t id, int64_t i)>& value);

}  // namespace pm::test
