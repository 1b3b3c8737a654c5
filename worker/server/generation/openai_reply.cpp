// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/openai_reply.h"

#include <cmath>

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns the token's text, or "token_id:7" when the model has no tokenizer.
std::string token_name(const Tokenizer* tokenizer, int32_t id) {
  return tokenizer ? tokenizer->piece(id) : "token_id:" + std::to_string(id);
}

/// JSON has no infinity; -9999 is OpenAI's value for an impossible token.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

json chat_token(const Tokenizer* tokenizer, int32_t id, float logprob) {
  const std::string text = token_name(tokenizer, id);
  json bytes;
  if (text.find("\uFFFD") == text.npos) {
    bytes = json::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"token", text}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

}  // namespace

json usage_json(const OutputProcessor& output) {
  return {{"prompt_tokens", output.prompt_tokens()},
          {"completion_tokens", output.completion_tokens()},
          {"total_tokens", output.prompt_tokens() + output.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", output.cached_tokens()}}}};
}

json completion_logprobs(const Tokenizer* tokenizer, const Choice& choice, size_t from, size_t before) {
  json tokens = json::array(), logprobs = json::array(), top = json::array(), offsets = json::array();
  for (size_t i = from; i < choice.tokens().size(); ++i) {
    const auto& [token, offset, text] = choice.tokens()[i];
    json best = json::object();
    for (const auto& [id, logprob] : token.top_logprobs)
      best.emplace(token_name(tokenizer, id),
                   finite(logprob));  // the likeliest of several tokens with the same text stays
    best.emplace(token_name(tokenizer, token.id), finite(token.logprob));
    tokens.push_back(token_name(tokenizer, token.id));
    logprobs.push_back(finite(token.logprob));
    top.push_back(std::move(best));
    offsets.push_back(before + offset);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

json passages_json(const std::vector<engine::RetrievedPassage>& passages) {
  json all = json::array();
  for (const engine::RetrievedPassage& one : passages)
    all.push_back({{"number", one.number}, {"score", one.score}, {"title", one.title}, {"text", one.text}});
  return all;
}

json chat_logprobs(const Tokenizer* tokenizer, const Choice& choice, size_t from) {
  json content = json::array();
  for (size_t i = from; i < choice.tokens().size(); ++i) {
    const engine::Token& token = choice.tokens()[i].token;
    json one = chat_token(tokenizer, token.id, token.logprob);
    one["top_logprobs"] = json::array();
    for (const auto& [id, logprob] : token.top_logprobs)
      one["top_logprobs"].push_back(chat_token(tokenizer, id, logprob));
    content.push_back(std::move(one));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

}  // namespace pm::server
