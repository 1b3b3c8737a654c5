// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/completions.h"

#include <nlohmann/json.hpp>

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
  bool with_ids = false, with_usage = false;
  int64_t logprobs = -1;
  std::vector<std::string> echoes;  ///< one per prompt; empty: the request does not ask for them
  std::shared_ptr<OutputProcessor> output;

  json envelope() const {
    return {{"id", "cmpl-" + id},
            {"object", "text_completion"},
            {"created", created},
            {"model", context.names.first()},
            {"choices", json::array()}};
  }

  std::string echo(const Choice& choice) const { return echoes.empty() ? "" : echoes[choice.request()]; }

  /// Returns one element of "choices". Log-probabilities and ids cover the tokens from index `from` on.
  json choice_json(size_t index, const std::string& text, size_t from) const {
    const Choice& choice = output->choices()[index];
    json made = {{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (!choice.finish().empty()) made["finish_reason"] = choice.finish();
    if (logprobs >= 0) made["logprobs"] = completion_logprobs(context.tokenizer, choice, from, 0);
    if (with_ids) made["token_ids"] = choice.ids(from);
    if (const auto& passages = output->passages(choice); passages && !choice.finish().empty())
      made["passages"] = passages_json(*passages);
    return made;
  }
};

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
  if (!run_to_completion(output, call, [&](size_t choice, const std::string& text) { texts[choice] += text; }))
    return client_gone_response();
  json body = completion.envelope();
  for (size_t i = 0; i < texts.size(); ++i) body["choices"].push_back(completion.choice_json(i, texts[i], 0));
  body["usage"] = usage_json(output);
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
  if (!completion.echoes.empty()) {
    format.on_start = [completion, emit](const StreamFormat::Send& send) {
      for (size_t i = 0; i < completion.output->choices().size(); ++i)
        if (!emit(send, completion.choice_json(i, completion.echo(completion.output->choices()[i]), 0))) return false;
      return true;
    };
  }
  format.on_text = [completion, emit,
                    sent = std::make_shared<std::vector<size_t>>(completion.output->choices().size())](
                       const StreamFormat::Send& send, size_t i, const std::string& text) {
    const Choice& choice = completion.output->choices()[i];
    if (text.empty() && choice.finish().empty() && !completion.with_ids && completion.logprobs < 0) return true;
    const size_t from = std::exchange((*sent)[i], choice.tokens().size());
    return emit(send, completion.choice_json(i, text, from));
  };
  if (completion.with_usage) {
    format.on_end = [completion](const StreamFormat::Send& send) {
      json body = completion.envelope();
      body["usage"] = usage_json(*completion.output);
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
  const engine::SearchParams search{.num_return_sequences = request.n};
  auto requests = make_engine_requests(context, call.request.id, encode_prompts(context, request.prompts, "prompt"),
                                       "prompt", request.params, sampling, search, length, request.logprobs);
  CompletionReply completion{.context = context,
                             .id = call.request.id,
                             .created = context.unix_time(),
                             .with_ids = request.return_token_ids || !context.tokenizer,
                             .with_usage = request.include_usage,
                             .logprobs = request.logprobs,
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
