// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/completions.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "worker/server/generation/completion_request.h"
#include "worker/server/generation/engine_requests.h"
#include "worker/server/generation/event_stream.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/openai_reply.h"
#include "worker/server/generation/output_processor.h"
#include "worker/server/http/json_response.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// OpenAI's default of max_tokens.
constexpr int64_t default_tokens = 16;

/// Builds the reply of one completion in OpenAI's format.
struct CompletionReply {
  const ServerContext& context;
  std::string id;
  int64_t created = 0;
  std::string model;  ///< its name in replies
  bool with_ids = false, with_usage = false;
  bool only_prompt = false;
  int64_t n = 1;
  int64_t logprobs = -1, prompt_logprobs = -1;
  std::vector<std::string> echoes;  ///< one per prompt; empty: the request does not ask for them
  std::shared_ptr<OutputProcessor> output;

  json envelope() const {
    return {{"id", "cmpl-" + id},
            {"object", "text_completion"},
            {"created", created},
            {"model", model},
            {"choices", json::array()}};
  }

  std::string echo(const Choice& choice) const { return echoes.empty() ? "" : echoes[choice.request()]; }

  /// Returns true when the prompt is shown with its log-probabilities, which come with the first token.
  bool echoes_logprobs() const { return !echoes.empty() && logprobs >= 0; }

  /// Returns one element of "choices". Log-probabilities and ids cover the tokens from index `from` on; those of an
  /// echo stand before the first.
  json choice_json(size_t index, const std::string& text, size_t from) const {
    const Choice& choice = output->choices()[index];
    json made = {{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (!choice.finish().empty()) made["finish_reason"] = only_prompt ? "length" : choice.finish();
    if (logprobs >= 0) made["logprobs"] = logprobs_json(choice, from);
    if (with_ids) made["token_ids"] = only_prompt ? std::vector<int32_t>() : choice.ids(from);
    if (const auto& scored = output->scored_prompt(choice); scored && prompt_logprobs >= 0)
      made["prompt_logprobs"] =
          server::prompt_logprobs(context.tokenizer, *scored, static_cast<size_t>(prompt_logprobs));
    if (const auto& passages = output->passages(choice); passages && !choice.finish().empty())
      made["passages"] = passages_json(*passages);
    return made;
  }

  json logprobs_json(const Choice& choice, size_t from) const {
    const std::string shown = echo(choice);
    json answer = completion_logprobs(context.tokenizer, choice, only_prompt ? choice.tokens().size() : from,
                                      base::count_characters(shown));
    const auto& scored = output->scored_prompt(choice);
    if (!echoes_logprobs() || from > 0 || !scored) return answer;
    json made = echoed_logprobs(context.tokenizer, output->prompt(choice), *scored, static_cast<size_t>(logprobs));
    append_logprobs(made, answer);
    return made;
  }

  json usage() const {
    json made = usage_json(*output);
    if (only_prompt) made["completion_tokens"] = 0, made["total_tokens"] = made["prompt_tokens"];
    return made;
  }
};

/// Mean log-probability of a completion's tokens, by which OpenAI ranks the candidates of best_of.
double mean_logprob(const Choice& choice) {
  double sum = 0;
  for (const Choice::EmittedToken& one : choice.tokens()) sum += one.token.logprob;
  return choice.tokens().empty() ? 0 : sum / static_cast<double>(choice.tokens().size());
}

/// Returns the indices of the n likeliest choices of each prompt, in order of the prompts, the likeliest first.
std::vector<size_t> best_choices(const std::vector<Choice>& choices, int64_t n) {
  std::vector<size_t> best;
  for (size_t begin = 0, end = 0; begin < choices.size(); begin = end) {
    std::vector<size_t> of_prompt;
    while (end < choices.size() && choices[end].request() == choices[begin].request()) of_prompt.push_back(end++);
    if (of_prompt.size() > static_cast<size_t>(n)) {
      std::ranges::stable_sort(of_prompt, std::greater(), [&](size_t i) { return mean_logprob(choices[i]); });
      of_prompt.resize(static_cast<size_t>(n));
    }
    best.insert(best.end(), of_prompt.begin(), of_prompt.end());
  }
  return best;
}

std::vector<std::string> echo_texts(const ServerContext& context, const std::vector<Prompt>& prompts) {
  std::vector<std::string> echoes;
  for (const auto& prompt : prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    echoes.push_back(text ? *text
                     : context.prompt_tokenizer
                         ? context.prompt_tokenizer->decode(std::get<std::vector<int32_t>>(prompt))
                         : "");
  }
  return echoes;
}

http::Response full_response(const CompletionReply& completion, const RoutedRequest& call) {
  OutputProcessor& output = *completion.output;
  std::vector<std::string> texts;
  for (const Choice& choice : output.choices()) texts.push_back(completion.echo(choice));
  if (!run_to_completion(output, call, [&](size_t choice, const std::string& text) {
        if (!completion.only_prompt) texts[choice] += text;
      }))
    return client_gone_response();
  json body = completion.envelope();
  for (const size_t i : best_choices(output.choices(), completion.n)) {
    json choice = completion.choice_json(i, texts[i], 0);
    choice["index"] = body["choices"].size();
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = completion.usage();
  return json_response(body);
}

StreamFormat stream_format(CompletionReply completion) {
  StreamFormat format;
  const auto emit = [completion](const StreamFormat::Send& send, const json& choice) {
    json body = completion.envelope();
    body["choices"].push_back(choice);
    if (completion.with_usage) body["usage"] = nullptr;
    return send(body);
  };
  if (!completion.echoes.empty() && !completion.echoes_logprobs()) {
    format.on_start = [completion, emit](const StreamFormat::Send& send) {
      for (size_t i = 0; i < completion.output->choices().size(); ++i)
        if (!emit(send, completion.choice_json(i, completion.echo(completion.output->choices()[i]), 0))) return false;
      return true;
    };
  }
  format.on_text = [completion, emit,
                    sent = std::make_shared<std::vector<size_t>>(completion.output->choices().size())](
                       const StreamFormat::Send& send, size_t i, std::string text) {
    const Choice& choice = completion.output->choices()[i];
    if (completion.only_prompt) text.clear();
    if (completion.echoes_logprobs() && (*sent)[i] == 0) text = completion.echo(choice) + text;
    if (text.empty() && choice.finish().empty() && !completion.with_ids && completion.logprobs < 0) return true;
    const size_t from = std::exchange((*sent)[i], choice.tokens().size());
    return emit(send, completion.choice_json(i, text, from));
  };
  if (completion.with_usage) {
    format.on_end = [completion](const StreamFormat::Send& send) {
      json body = completion.envelope();
      body["usage"] = completion.usage();
      return send(body);
    };
  }
  return format;
}

}  // namespace

http::Response create_completion(const ServerContext& context, const RoutedRequest& call) {
  const auto arrived = steady_clock::now();
  auto admitted = context.admit();
  refuse_unless_served(context, call);
  UnknownFields unknown(context.strict_requests);
  const CompletionRequest request = parse_completion(call.request.body, context.names, unknown);
  const engine::SamplingParams sampling =
      make_sampling(request.params, context.defaults.config.sampling, context.random(), context.tokenizer);
  const LengthLimits length{.field = "max_tokens",
                            .max_new_tokens = request.params.values.get(&engine::GenerationConfig::max_new_tokens),
                            .default_max_new_tokens = default_tokens};
  const engine::SearchParams search{.num_return_sequences = request.best_of};
  const int64_t logprobs = request.best_of > request.n ? std::max<int64_t>(request.logprobs, 0) : request.logprobs;
  auto requests = make_engine_requests(context, call.request.id, encode_prompts(context, request.prompts, "prompt"),
                                       "prompt", request.params, sampling, search, length, logprobs);
  CompletionReply completion{.context = context,
                             .id = call.request.id,
                             .created = context.unix_time(),
                             .model = request.params.adapter ? request.params.adapter->name : context.names.first(),
                             .with_ids = request.return_token_ids || !context.tokenizer,
                             .with_usage = request.include_usage,
                             .only_prompt = request.only_prompt,
                             .n = request.n,
                             .logprobs = request.logprobs,
                             .prompt_logprobs = request.prompt_logprobs,
                             .echoes = {},
                             .output = {}};
  if (request.echo) completion.echoes = echo_texts(context, request.prompts);
  completion.output = std::make_shared<OutputProcessor>(context, std::move(requests), request.params.stop, call.access,
                                                        std::move(admitted), arrived);
  http::Response response = request.stream ? event_stream(context, call, completion.output, stream_format(completion))
                                           : full_response(completion, call);
  unknown.report(call, response);
  return response;
}

}  // namespace pm::server
