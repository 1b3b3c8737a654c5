// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/offline_inference.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <future>
#include <limits>
#include <mutex>
#include <optional>

#include "worker/base/error.h"
#include "worker/cli/adapter_options.h"
#include "worker/engine/protocol/batch_rows.h"
#include "worker/engine/scheduling/batcher.h"
#include "worker/models/inputs.h"
#include "worker/server/serving/adapter_pool.h"

namespace pm::cli {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::InvalidRequest, message); }

}  // namespace

namespace {

/// Returns the first tokens of the output sequence: the prompt itself, or the start token of an encoder-decoder, which
/// a prompt follows if the encoder does not read it.
std::vector<int32_t> answer_start(const policy::Model& model, const Prompt& prompt) {
  const policy::Stack* source = models::Model::source_stack(model);
  if (!source) return prompt.tokens;
  if (model.decoder_start < 0)
    refuse("config.json has no decoder_start_token_id; generating with an encoder-decoder needs one");
  std::vector<int32_t> start{static_cast<int32_t>(model.decoder_start)};
  if (source->input.reads_media()) start.insert(start.end(), prompt.tokens.begin(), prompt.tokens.end());
  return start;
}

/// Returns the number of states that an encoder makes of a prompt.
int64_t source_states(const policy::Model& model, const Prompt& prompt) {
  const policy::Stack* source = models::Model::source_stack(model);
  if (!source) return 0;
  if (model.retrieval) return model.retrieval->max_length;
  return source->input.reads_media() ? models::make_source_input(model, prompt.source).batch_rows()
                                     : static_cast<int64_t>(prompt.tokens.size());
}

int64_t new_tokens(const std::vector<int32_t>& prompt, const engine::GenerationConfig& generation) {
  if (generation.max_new_tokens || !generation.max_length)
    return generation.max_new_tokens.value_or(engine::default_new_tokens);
  const int64_t left = *generation.max_length - static_cast<int64_t>(prompt.size());
  if (left < 1)
    refuse("the prompt has " + std::to_string(prompt.size()) + " tokens, max_length is " +
           std::to_string(*generation.max_length));
  return left;
}

/// Returns the number of inputs of the generator that are made of a prompt.
int64_t sources_of(const policy::Model& model) { return model.retrieval ? model.retrieval->docs : 1; }

/// Returns the number of sequences that run concurrently for each input of the generator.
int64_t width_of(const engine::GenerationConfig& generation) {
  return std::max(generation.search.num_beams, generation.search.num_return_sequences);
}

}  // namespace

std::vector<Prompt> prompts_of(const Arrays& inputs) {
  if (inputs.empty()) refuse("there are no inputs to generate from");
  const int64_t rows = engine::num_rows(inputs);
  std::vector<Prompt> prompts;
  for (int64_t row = 0; row < rows; ++row) prompts.push_back({{}, engine::slice_rows(inputs, row, 1)});
  return prompts;
}

int64_t generation_blocks(const policy::Model& model, const std::vector<Prompt>& prompts,
                          const engine::GenerationConfig& generation) {
  int64_t blocks = 0;
  if (!models::Model::caches(model)) return blocks;
  for (const Prompt& prompt : prompts) {
    const std::vector<int32_t> start = answer_start(model, prompt);
    blocks += sources_of(model) * engine::max_blocks(static_cast<int64_t>(start.size()), new_tokens(start, generation),
                                                     source_states(model, prompt), width_of(generation));
  }
  return blocks;
}

engine::Limits engine_limits(const policy::Model& model, const Plan& plan, int64_t sequence_length, int64_t kv_blocks,
                             int64_t concurrency, int64_t queue) {
  const policy::Stack& stack = models::Model::generating_stack(model);
  engine::Limits limits{stack.vocab, stack.positions, kv_blocks, concurrency, queue};
  if (sequence_length > 0 && (limits.positions == 0 || sequence_length < limits.positions))
    limits.positions = sequence_length;
  if (limits.positions == 0)  // relative positions have no end
    limits.positions = model.recompute ? plan.sequence_length : kv_blocks * block_tokens;
  limits.recomputes = model.recompute.has_value();
  if (model.recompute && stack.memory) limits.memory = stack.memory->length;
  if (model.recompute && (model.recompute->target || model.recompute->append >= 0))
    limits.appended = static_cast<int32_t>(model.recompute->append);
  limits.overlap = model.recompute && model.recompute->overlap;
  limits.forced_bos = static_cast<int32_t>(model.forced_bos);
  limits.forced_eos = static_cast<int32_t>(model.forced_eos);
  limits.step_tokens = plan.step_tokens;
  limits.pipeline_batches = plan.pipeline;
  limits.micro_batches = plan.micro_batches;
  limits.split_forward = model.task != policy::Task::Similarity;
  limits.recurrent = policy::is_recurrent(stack);
  if (const auto& images = stack.input.images) {
    limits.image_width = stack.hidden * (1 + images->deepstack);
    limits.bidirectional_images = images->bidirectional;
    limits.image_tokens = model.stack(images->stack)->positions;
  }
  limits.short_rope_tokens = policy::short_rope_tokens(stack);
  limits.shows_attentions = models::Model::shows_attentions(model);
  for (const policy::Stack& one : model.stacks)
    limits.least_states = std::max(limits.least_states, policy::least_states(one));
  if (const policy::Stack* source = models::Model::source_stack(model)) {
    limits.decoder_start = static_cast<int32_t>(model.decoder_start);
    limits.source_inputs = source->input.reads_media();
    limits.source_vocabulary = source->vocab;
    limits.source_positions = source->positions;
    if (sequence_length > 0 && sequence_length < source->positions && !limits.source_inputs)
      limits.source_positions = sequence_length;
  }
  return limits;
}

server::RetrievalEngine::Check request_check(const engine::Limits& limits) {
  return [batcher = std::make_shared<const engine::Batcher>(limits)](const engine::Request& request) {
    batcher->make(request, {}, {});
  };
}

Arrays run_forward(engine::RankGroup& group, const policy::Model& model, const Plan& plan,
                   engine::ForwardRequest request, const layers::AdapterCapacity& adapters,
                   const std::string& adapter) {
  engine::Limits limits = engine_limits(model, plan, 0, 0, 1, 1);
  if (plan.pipeline == 1)
    limits.step_tokens = std::numeric_limits<int64_t>::max() / 64;  // nothing else waits for a step
  engine::DataParallelEngine engine(group, limits);
  server::AdapterPool pool(engine, model, memory_of(adapters));
  if (!adapter.empty()) request.adapter = pool.load(adapter, adapter, adapter);
  std::promise<engine::ForwardResult> done;
  request.id = "forward";
  engine.forward(std::move(request), [&](engine::ForwardResult result) { done.set_value(std::move(result)); });
  engine::ForwardResult result = done.get_future().get();
  if (result.finish != engine::Finish::Stop) throw Error(Reason::RankLost, result.reason);
  return std::move(result.outputs);
}

std::vector<GeneratedSequence> run_generation(engine::RankGroup& group, const policy::Model& model, const Plan& plan,
                                              int64_t kv_blocks, const std::vector<Prompt>& prompts,
                                              const engine::GenerationConfig& generation,
                                              const server::Retriever* retriever,
                                              const layers::AdapterCapacity& adapters) {
  if (!group.leader().executor().generation())
    refuse(model.architecture + " cannot generate: it has no language-model head, or its policy does not let it");
  std::mutex mutex;
  std::condition_variable done;
  const auto each = static_cast<size_t>(std::max<int64_t>(1, generation.search.num_return_sequences));
  size_t open = prompts.size() * each;
  std::string failure;
  std::vector<GeneratedSequence> sequences;
  for (const Prompt& prompt : prompts) {
    const std::vector<int32_t> start = answer_start(model, prompt);
    sequences.insert(sequences.end(), each, {.tokens = start, .start = start.size()});
  }
  const int64_t inputs = static_cast<int64_t>(prompts.size()) * sources_of(model);
  const engine::Limits limits = engine_limits(model, plan, 0, kv_blocks, inputs * width_of(generation), inputs);
  engine::DataParallelEngine generator(group, limits);
  server::AdapterPool pool(generator, model, memory_of(adapters));
  for (const Prompt& prompt : prompts)
    if (const std::string& folder = prompt.adapter; !folder.empty() && !pool.find(folder))
      pool.load(folder, folder, folder);
  std::optional<server::RetrievalEngine> retrieving;
  if (model.retrieval && !retriever) throw std::logic_error(model.architecture + " generates without a retriever");
  if (model.retrieval) retrieving.emplace(generator, model, *retriever, request_check(limits));
  engine::Engine& engine = retrieving ? static_cast<engine::Engine&>(*retrieving) : generator;
  for (size_t row = 0; row < prompts.size(); ++row) {
    engine::Request request{.id = std::to_string(row),
                            .prompt = prompts[row].tokens,
                            .max_new_tokens = new_tokens(answer_start(model, prompts[row]), generation),
                            .sampling = generation.sampling,
                            .eos = generation.eos.value_or(model.eos),
                            .ignore_eos = generation.ignore_eos,
                            .search = generation.search};
    request.max_time = generation.max_time.value_or(0);
    request.source = prompts[row].source;
    request.adapter = pool.find(prompts[row].adapter);
    request.sampling.min_new_tokens =
        std::max(request.sampling.min_new_tokens,
                 generation.min_length.value_or(0) - static_cast<int64_t>(answer_start(model, prompts[row]).size()));
    engine.submit(std::move(request), [&, row](const engine::Event& event) {
      std::lock_guard lock(mutex);
      GeneratedSequence& sequence = sequences[row * each + static_cast<size_t>(event.sequence)];
      for (const engine::Token& token : event.tokens) sequence.tokens.push_back(token.id);
      sequence.score = event.score;
      for (size_t i = 0; event.passages && i < each; ++i) sequences[row * each + i].passages = event.passages;
      if (event.finish == engine::Finish::Failed) failure = event.reason;
      if (event.finish != engine::Finish::None && --open == 0) done.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return open == 0; });
  if (!failure.empty()) throw Error(Reason::RankLost, failure);
  return sequences;
}

}  // namespace pm::cli
