// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/speech_writer.h"

#include <algorithm>

#include "worker/server/generation/engine_requests.h"
#include "worker/server/generation/event_stream.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/output_processor.h"

namespace pm::server {
namespace {

using engine::GenerationConfig;
using engine::SamplingParams;

constexpr size_t windows_at_once = 16;  ///< so that a long file does not fill the queue

GenerationParams params_of(const ServerContext& context, const WritingOptions& options) {
  GenerationParams params;
  const bool samples = options.temperature > 0,
             // as for transformers, a model with task tokens samples only with a temperature
      by_default = context.defaults.config.sampling.do_sample && !context.capabilities.speech;
  params.values.set(&SamplingParams::do_sample, samples || by_default);
  if (samples) params.values.set(&SamplingParams::temperature, options.temperature);
  if (!context.defaults.has_top_k) params.values.set(&SamplingParams::top_k, engine::default_top_k);
  return params;
}

LengthLimits length_of(const ServerContext& context, const WritingOptions& options) {
  const GenerationConfig& defaults = context.defaults.config;
  LengthLimits length{.field = "max_new_tokens", .max_new_tokens = options.max_new_tokens};
  if (options.plain) return length;
  length.default_max_new_tokens = defaults.max_new_tokens;
  // transformers does not count task tokens and the prompt before them as max_length
  if (!defaults.max_new_tokens)
    (context.capabilities.speech ? length.default_max_new_tokens : length.default_max_length) = defaults.max_length;
  length.min_length = defaults.min_length;
  return length;
}

}  // namespace

std::optional<std::vector<WrittenSpeech>> write_speech(const ServerContext& context, const RoutedRequest& call,
                                                       std::vector<SpeechWindow> windows, const WritingOptions& options,
                                                       const std::string& field,
                                                       const std::shared_ptr<void>& admitted) {
  const GenerationParams params = options.plain ? GenerationParams{} : params_of(context, options);
  const SamplingParams sampling =
      options.plain ? SamplingParams{}
                    : make_sampling(params, context.defaults.config.sampling, context.random(), context.tokenizer);
  engine::SearchParams search = context.defaults.config.search;
  search.num_return_sequences = 1;
  if (options.plain || std::any_of(windows.begin(), windows.end(), [](const auto& one) { return one.constraint; }))
    search = {};
  std::vector<WrittenSpeech> written;
  for (size_t first = 0; first < windows.size(); first += windows_at_once) {
    const size_t end = std::min(windows.size(), first + windows_at_once);
    std::vector<EncodedPrompt> prompts;
    for (size_t i = first; i < end; ++i) {
      const bool has_start = !windows[i].start.empty();
      prompts.push_back({std::move(windows[i].start), std::move(windows[i].source), has_start});
    }
    auto requests = make_engine_requests(context, call.request.id + "-" + std::to_string(first), std::move(prompts),
                                         field, params, sampling, search, length_of(context, options), -1);
    for (size_t i = first; i < end; ++i) {
      requests[i - first].constraint = windows[i].constraint;
      if (windows[i].constraint) requests[i - first].logprobs = 0;
    }
    OutputProcessor output(context, std::move(requests), {}, call.access, admitted, std::chrono::steady_clock::now());
    if (!run_to_completion(output, call, [](size_t, const std::string&) {})) return std::nullopt;
    for (const Choice& choice : output.choices()) {
      WrittenSpeech& made = written.emplace_back(WrittenSpeech{.ids = choice.ids()});
      for (const Choice::EmittedToken& one : choice.tokens())
        made.mean_logprob += one.token.logprob / static_cast<double>(choice.tokens().size());
    }
  }
  return written;
}

}  // namespace pm::server
