// See openai.h.
#include "worker/server/openai.h"

#include <cmath>

namespace pm::server {
namespace {

using nlohmann::json;

/// How a token is named: its text, or "token_id:7" where the model has no tokenizer that is served.
std::string name_of(const Tokenizer* tokenizer, int32_t id) { return tokenizer ? tokenizer->piece(id) : "token_id:" + std::to_string(id); }

/// JSON has no infinity; OpenAI's figure for a token that cannot be.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

json chat_token(const Tokenizer* tokenizer, int32_t id, float logprob) {
  const std::string text = name_of(tokenizer, id);
  json bytes;
  if (text.find("\uFFFD") == text.npos) {
    bytes = json::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"token", text}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

}  // namespace

json usage_json(const Answer& answer) {
  return {{"prompt_tokens", answer.prompt_tokens()}, {"completion_tokens", answer.completion_tokens()},
          {"total_tokens", answer.prompt_tokens() + answer.completion_tokens()}, {"prompt_tokens_details", {{"cached_tokens", answer.cached_tokens()}}}};
}

json completion_logprobs(const Tokenizer* tokenizer, const Choice& choice, size_t from, size_t before) {
  json tokens = json::array(), logprobs = json::array(), top = json::array(), offsets = json::array();
  for (size_t i = from; i < choice.said().size(); ++i) {
    const auto& [token, offset, text] = choice.said()[i];
    json best = json::object();
    for (const auto& [id, logprob] : token.best) best.emplace(name_of(tokenizer, id), finite(logprob));   // of equal texts the likelier stays
    best.emplace(name_of(tokenizer, token.id), finite(token.logprob));
    tokens.push_back(name_of(tokenizer, token.id));
    logprobs.push_back(finite(token.logprob));
    top.push_back(std::move(best));
    offsets.push_back(before + offset);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

json chat_logprobs(const Tokenizer* tokenizer, const Choice& choice, size_t from) {
  json content = json::array();
  for (size_t i = from; i < choice.said().size(); ++i) {
    const engine::Token& token = choice.said()[i].token;
    json one = chat_token(tokenizer, token.id, token.logprob);
    one["top_logprobs"] = json::array();
    for (const auto& [id, logprob] : token.best) one["top_logprobs"].push_back(chat_token(tokenizer, id, logprob));
    content.push_back(std::move(one));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

}  // namespace pm::server
