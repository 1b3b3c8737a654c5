// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/engine_requests.h"

#include <algorithm>
#include <array>
#include <span>

#include "worker/server/generation/generation_defaults.h"
#include "worker/server/http/api_error.h"

namespace pm::server {

bool is_encoder_decoder(const ServerContext& context) {
  return context.capabilities.kind == policy::ModelKind::EncoderDecoder;
}

namespace {

std::string field_name(const std::string& field, size_t i, size_t count) {
  return count == 1 ? field : field + "[" + std::to_string(i) + "]";
}

/// Returns max_new_tokens for a prompt.
int64_t resolve_max_new_tokens(const ServerContext& context, const LengthLimits& length, const EncodedPrompt& prompt,
                               const std::string& field) {
  const auto tokens = static_cast<int64_t>(prompt.ids.size());
  const std::string window = std::to_string(context.max_model_len),
                    has = field + " has " + std::to_string(tokens) + " tokens";
  const bool encoder_decoder = is_encoder_decoder(context);
  // an encoder-decoder's answer begins with its start token, unless the prompt is that of the decoder
  const int64_t start_tokens = encoder_decoder && !prompt.has_start ? 1 : tokens;
  const auto refuse = [&](const std::string& message, const std::string& param) {
    throw ApiError(400, "context_length_exceeded", message, param);
  };
  if (encoder_decoder && tokens > context.max_model_len) refuse(has + "; the encoder reads at most " + window, field);
  if (start_tokens >= context.max_model_len)
    refuse(has + "; the context window of " + window + " tokens must hold at least one more", field);
  const int64_t left = context.max_model_len - start_tokens;
  const auto tokens_after_start = [&](int64_t max_length) {
    if (max_length <= start_tokens)
      refuse((encoder_decoder ? "the answer begins with its start token" : has) + " and " + length.field + " is " +
                 std::to_string(max_length) + "; it includes " + (encoder_decoder ? "that token" : "the prompt") +
                 " and must be at least " + std::to_string(start_tokens + 1),
             length.field);
    return max_length - start_tokens;
  };
  const auto requested =
      length.max_length ? std::optional(tokens_after_start(*length.max_length)) : length.max_new_tokens;
  if (requested && *requested > left)
    refuse(has + " and " + length.field + " is " + std::to_string(length.max_length.value_or(*requested)) +
               ", but the context window is " + window + " tokens; at most " + std::to_string(left) +
               " tokens can be generated",
           length.field);
  if (requested) return *requested;
  return std::min(left, length.default_max_length ? tokens_after_start(*length.default_max_length)
                                                  : length.default_max_new_tokens.value_or(left));
}

/// Compiles the constraint of the answers to several prompts, once for those that begin at nothing and once for those
/// that continue a text.
class Constraints {
 public:
  Constraints(const ServerContext& context, const std::optional<ConstraintSpec>& spec)
      : context_(context), spec_(spec) {
    if (spec && context.capabilities.retrieves)
      throw ApiError(400, "invalid_constraint",
                     spec->field + " cannot be held: this model makes an answer of several passages", spec->field);
  }
  std::shared_ptr<const engine::TokenConstraint> after(std::span<const int32_t> prompt) {
    if (!spec_) return nullptr;
    if (is_encoder_decoder(context_)) prompt = {};
    const bool at_start = context_.tokenizer && Detokenizer(*context_.tokenizer, prompt).at_start();
    auto& made = made_[at_start ? 1 : 0];
    if (!made) made = make_constraint(context_.tokenizer, *spec_, at_start);
    return made;
  }

 private:
  const ServerContext& context_;
  const std::optional<ConstraintSpec>& spec_;
  std::array<std::shared_ptr<const engine::TokenConstraint>, 2> made_;
};

}  // namespace

std::vector<EncodedPrompt> encode_prompts(const ServerContext& context, std::vector<Prompt> prompts,
                                          const std::string& field) {
  std::vector<EncodedPrompt> all;
  for (Prompt& prompt : prompts) {
    const std::string place = field_name(field, all.size(), prompts.size());
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      all.push_back({*ids, {}});
      continue;
    }
    if (auto* source = std::get_if<Arrays>(&prompt)) {
      all.push_back({{}, std::move(*source)});
      continue;
    }
    if (!context.prompt_tokenizer)
      throw ApiError(400, "no_tokenizer",
                     place + " is text, but this model's folder has no tokenizer that is served; send token ids",
                     place);
    all.push_back({context.prompt_tokenizer->encode(std::get<std::string>(prompt)), {}});
    if (all.back().ids.empty())
      throw ApiError(400, "invalid_value", place + " has 0 tokens; at least one token is required", place);
  }
  return all;
}

std::vector<engine::Request> make_engine_requests(const ServerContext& context, const std::string& id,
                                                  std::vector<EncodedPrompt> prompts, const std::string& field,
                                                  const GenerationParams& params,
                                                  const engine::SamplingParams& sampling,
                                                  const engine::SearchParams& search, const LengthLimits& length,
                                                  int64_t logprobs) {
  std::vector<engine::Request> requests;
  Constraints constraints(context, params.constraint);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto tokens = static_cast<int64_t>(prompts[i].ids.size());
    engine::Request request;
    request.id = id + "-" + std::to_string(i);
    request.max_new_tokens = resolve_max_new_tokens(context, length, prompts[i], field_name(field, i, prompts.size()));
    request.sampling = sampling;
    request.sampling.seed += i;  // each prompt of a request samples with its own seed
    if (length.min_length)
      request.sampling.min_new_tokens =
          std::max(sampling.min_new_tokens, *length.min_length - (is_encoder_decoder(context) ? 1 : tokens));
    request.adapter = params.adapter;
    request.eos = params.eos.value_or(context.eos);
    request.ignore_eos = params.values.get(&engine::GenerationConfig::ignore_eos).value_or(false);
    request.search = search;
    request.logprobs = logprobs;
    request.prompt_logprobs = params.prompt_logprobs;
    request.constraint = constraints.after(prompts[i].ids);
    request.max_time =
        params.values.get(&engine::GenerationConfig::max_time).value_or(context.defaults.config.max_time.value_or(0));
    request.prompt = std::move(prompts[i].ids);
    request.source = std::move(prompts[i].source);
    request.has_start = prompts[i].has_start;
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace pm::server
