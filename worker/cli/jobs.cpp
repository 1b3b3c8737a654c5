// See jobs.h.
#include "worker/cli/jobs.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <future>
#include <limits>
#include <mutex>

#include "worker/base/error.h"

namespace pm::cli {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::Request, "InvalidRequest", message); }

}  // namespace

namespace {

/// Whether prompts go to an encoder.
bool reads_source(const policy::Model& model) { return models::Model::generator(model).layers[0].cross.has_value(); }

/// What an answer begins with: the prompt itself, or the start token of an encoder-decoder.
std::vector<int32_t> answer_start(const policy::Model& model, const std::vector<int32_t>& prompt) {
  if (!reads_source(model)) return prompt;
  if (model.decoder_start < 0) refuse("config.json has no decoder_start_token_id, with which the answer would begin");
  return {static_cast<int32_t>(model.decoder_start)};
}

int64_t new_tokens(const std::vector<int32_t>& prompt, const Generation& generation) {
  if (generation.max_length <= 0) return generation.max_new_tokens;
  const int64_t left = generation.max_length - static_cast<int64_t>(prompt.size());
  if (left < 1) refuse("the prompt has " + std::to_string(prompt.size()) + " tokens, max_length is " + std::to_string(generation.max_length));
  return left;
}

/// Sequences that run side by side for each prompt.
int64_t width_of(const Generation& generation) { return std::max(generation.search.num_beams, generation.search.num_return_sequences); }

}  // namespace

int64_t generation_blocks(const policy::Model& model, const std::vector<std::vector<int32_t>>& prompts, const Generation& generation) {
  int64_t blocks = 0;
  for (const auto& prompt : prompts) {
    const std::vector<int32_t> start = answer_start(model, prompt);
    const auto source = reads_source(model) ? static_cast<int64_t>(prompt.size()) : 0;
    blocks += engine::most_blocks(static_cast<int64_t>(start.size()), new_tokens(start, generation), source, width_of(generation));
  }
  return blocks;
}

engine::Limits limits_of(const policy::Model& model, const Plan& plan, int64_t sequence_length, int64_t kv_blocks, int64_t concurrency, int64_t queue) {
  const policy::Stack& stack = models::Model::generator(model);
  engine::Limits limits{stack.vocab, stack.positions, kv_blocks, concurrency, queue};
  if (sequence_length > 0 && (limits.positions == 0 || sequence_length < limits.positions)) limits.positions = sequence_length;
  if (limits.positions == 0) limits.positions = kv_blocks * ops::block_tokens;   // relative positions have no end
  limits.forced_bos = static_cast<int32_t>(model.forced_bos);
  limits.forced_eos = static_cast<int32_t>(model.forced_eos);
  limits.groups = plan.pipeline;
  limits.micro_batches = plan.micro_batches;
  limits.split_passes = model.task != "similarity";
  if (reads_source(model)) limits.decoder_start = static_cast<int32_t>(model.decoder_start);
  return limits;
}

Arrays run_forward(engine::Group& group, const policy::Model& model, const Plan& plan, engine::ForwardRequest request) {
  engine::Limits limits = limits_of(model, plan, 0, 0, 1, 1);
  if (plan.pipeline == 1) limits.step_tokens = std::numeric_limits<int64_t>::max() / 64;   // nothing else waits for a step
  engine::Lanes engine(group, limits);
  std::promise<engine::ForwardResult> done;
  request.id = "forward";
  engine.forward(std::move(request), [&](engine::ForwardResult result) { done.set_value(std::move(result)); });
  engine::ForwardResult result = done.get_future().get();
  if (result.finish != engine::Finish::Stop) throw Error(ErrorKind::RankLost, "RankLost", result.reason);
  return std::move(result.outputs);
}

std::vector<Sequence> run_generation(engine::Group& group, const policy::Model& model, const Plan& plan, int64_t kv_blocks, const std::vector<std::vector<int32_t>>& prompts,
                                     const Generation& generation) {
  if (!group.leader().executor().generates()) refuse(model.architecture + " has no language-model head, so that it cannot generate");
  std::mutex mutex;
  std::condition_variable done;
  const auto each = static_cast<size_t>(std::max<int64_t>(1, generation.search.num_return_sequences));
  size_t open = prompts.size() * each;
  std::string failure;
  std::vector<Sequence> sequences;
  for (const auto& prompt : prompts) sequences.insert(sequences.end(), each, {answer_start(model, prompt)});
  const auto asked = static_cast<int64_t>(prompts.size());
  const engine::Limits limits = limits_of(model, plan, 0, kv_blocks, asked * width_of(generation), asked);
  engine::Lanes engine(group, limits);
  for (size_t row = 0; row < prompts.size(); ++row) {
    engine::Request request{.id = std::to_string(row), .prompt = prompts[row], .max_new_tokens = new_tokens(answer_start(model, prompts[row]), generation),
                            .sampling = generation.sampling, .eos = model.eos, .ignore_eos = generation.ignore_eos, .search = generation.search};
    request.max_time = generation.max_time;
    request.sampling.min_new_tokens = std::max(request.sampling.min_new_tokens, generation.min_length - static_cast<int64_t>(answer_start(model, prompts[row]).size()));
    engine.submit(std::move(request), [&, row](const engine::Event& event) {
      std::lock_guard lock(mutex);
      Sequence& sequence = sequences[row * each + static_cast<size_t>(event.sequence)];
      for (const engine::Token& token : event.tokens) sequence.tokens.push_back(token.id);
      sequence.score = event.score;
      if (event.finish == engine::Finish::Failed) failure = event.reason;
      if (event.finish != engine::Finish::None && --open == 0) done.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return open == 0; });
  if (!failure.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure);
  return sequences;
}

}  // namespace pm::cli
