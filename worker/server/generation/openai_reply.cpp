// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/openai_reply.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/utf8.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns the token's text, or "token_id:7" when the model has no tokenizer.
std::string token_name(const Tokenizer* tokenizer, int32_t id) {
  return tokenizer ? tokenizer->piece(id) : "token_id:" + std::to_string(id);
}

/// JSON has no infinity; -9999 is OpenAI's value for an impossible token.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

json no_logprobs() {
  return {{"tokens", json::array()},
          {"token_logprobs", json::array()},
          {"top_logprobs", json::array()},
          {"text_offset", json::array()}};
}

/// Appends a token with `best` of its alternatives to the "logprobs" of a completion.
void append(json& to, const Tokenizer* tokenizer, const engine::Token& token, size_t best, size_t offset) {
  json alternatives = json::object();
  for (size_t i = 0; i < std::min(best, token.top_logprobs.size()); ++i)
    alternatives.emplace(token_name(tokenizer, token.top_logprobs[i].first),
                         finite(token.top_logprobs[i].second));  // the likeliest of several with the same text stays
  alternatives.emplace(token_name(tokenizer, token.id), finite(token.logprob));
  to["tokens"].push_back(token_name(tokenizer, token.id));
  to["token_logprobs"].push_back(finite(token.logprob));
  to["top_logprobs"].push_back(std::move(alternatives));
  to["text_offset"].push_back(offset);
}

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
  json made = no_logprobs();
  for (size_t i = from; i < choice.tokens().size(); ++i) {
    const auto& [token, offset, text] = choice.tokens()[i];
    append(made, tokenizer, token, token.top_logprobs.size(), before + offset);
  }
  return made;
}

json echoed_logprobs(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const std::vector<engine::PromptToken>& scored, size_t best) {
  json made = no_logprobs();
  std::optional<Detokenizer> text;
  if (tokenizer) text.emplace(*tokenizer, std::span<const int32_t>());
  size_t characters = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (i > 0) {
      append(made, tokenizer, scored.at(i - 1).token, best, characters);
    } else {
      made["tokens"].push_back(token_name(tokenizer, prompt[0]));
      made["token_logprobs"].push_back(nullptr);
      made["top_logprobs"].push_back(nullptr);
      made["text_offset"].push_back(0);
    }
    if (text) characters += base::count_characters(text->push(prompt[i]));
  }
  return made;
}

void append_logprobs(json& to, const json& more) {
  for (const auto& [name, values] : more.items()) to[name].insert(to[name].end(), values.begin(), values.end());
}

json prompt_logprobs(const Tokenizer* tokenizer, const std::vector<engine::PromptToken>& scored, size_t best) {
  json made = json::array({nullptr});
  for (const auto& [token, rank] : scored) {
    json by_id = json::object();
    const auto add = [&](int32_t id, float logprob, int64_t at) {
      by_id.emplace(std::to_string(id),
                    json{{"logprob", finite(logprob)}, {"rank", at}, {"decoded_token", token_name(tokenizer, id)}});
    };
    add(token.id, token.logprob, rank);
    for (size_t i = 0; i < std::min(best, token.top_logprobs.size()); ++i)
      add(token.top_logprobs[i].first, token.top_logprobs[i].second, static_cast<int64_t>(i) + 1);
    made.push_back(std::move(by_id));
  }
  return made;
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
