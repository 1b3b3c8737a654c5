// See engine_requests.h.
#include "worker/server/engine_requests.h"

#include <algorithm>

#include "worker/server/api_error.h"

namespace pm::server {
namespace {

std::string place_of(const std::string& field, size_t i, size_t count) { return count == 1 ? field : field + "[" + std::to_string(i) + "]"; }

/// max_new_tokens of a prompt of `tokens` tokens.
int64_t room(const Serving& serving, const Length& length, int64_t tokens, const std::string& field) {
  const std::string window = std::to_string(serving.window), has = field + " has " + std::to_string(tokens) + " tokens";
  const bool source = reads_source(serving);
  const int64_t begun = source ? 1 : tokens;   // an encoder-decoder's answer begins with its start token
  const auto refuse = [&](const std::string& message, const std::string& param) { throw ApiError(400, "context_length_exceeded", message, param); };
  if (source && tokens > serving.window) refuse(has + "; the longest that is read is " + window, field);
  if (begun >= serving.window) refuse(has + "; the window of " + window + " needs room for at least one more", field);
  const int64_t left = serving.window - begun;
  const auto after = [&](int64_t in_all) {
    if (in_all <= begun)
      refuse((source ? "an answer begins with its start token" : has) + " and " + length.field + " is " + std::to_string(in_all) + "; it counts " + (source ? "that" : "the prompt") +
                 " too and has to be at least " + std::to_string(begun + 1), length.field);
    return in_all - begun;
  };
  const auto asked = length.in_all ? std::optional(after(*length.in_all)) : length.new_tokens;
  if (asked && *asked > left)
    refuse(has + " and " + length.field + " is " + std::to_string(length.in_all.value_or(*asked)) + ", but the window is " + window + "; at most " + std::to_string(left) +
               " tokens can be generated", length.field);
  if (asked) return *asked;
  return std::min(left, length.otherwise_in_all ? after(*length.otherwise_in_all) : length.otherwise.value_or(left));
}

}  // namespace

bool reads_source(const Serving& serving) { return serving.abilities.topology == "encoder-decoder"; }

std::vector<std::vector<int32_t>> tokens_of(const Serving& serving, const std::vector<Prompt>& prompts, const std::string& field) {
  std::vector<std::vector<int32_t>> all;
  for (const Prompt& prompt : prompts) {
    const std::string place = place_of(field, all.size(), prompts.size());
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      all.push_back(*ids);
      continue;
    }
    if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", place + " is text, but this model's folder has no tokenizer that is served; send token ids", place);
    all.push_back(serving.tokenizer->encode(std::get<std::string>(prompt)));
    if (all.back().empty()) throw bad_field(place, "a text of no tokens", "at least one token");
  }
  return all;
}

std::vector<engine::Request> engine_requests(const Serving& serving, const std::string& id, std::vector<std::vector<int32_t>> prompts, const std::string& field, const Asked& asked,
                                             const engine::Sampling& sampling, const engine::Search& search, const Length& length, int64_t logprobs) {
  std::vector<engine::Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto tokens = static_cast<int64_t>(prompts[i].size());
    engine::Request request;
    request.id = id + "-" + std::to_string(i);
    request.max_new_tokens = room(serving, length, tokens, place_of(field, i, prompts.size()));
    request.sampling = sampling;
    request.sampling.seed += i;   // prompts of one request draw different numbers
    if (length.least_in_all) request.sampling.min_new_tokens = std::max(sampling.min_new_tokens, *length.least_in_all - (reads_source(serving) ? 1 : tokens));
    request.eos = asked.eos.value_or(serving.eos);
    request.ignore_eos = asked.ignore_eos;
    request.search = search;
    request.logprobs = logprobs;
    request.max_time = asked.max_time.value_or(serving.defaults.max_time.value_or(0));
    request.prompt = std::move(prompts[i]);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace pm::server
