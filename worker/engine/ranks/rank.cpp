// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/rank.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/engine/ranks/device.h"
#include "worker/models/joined.h"
#include "worker/ops/staging.h"

namespace pm::engine {

namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

/// Returns the cache slot of token number `at` of a block table.
int64_t cache_slot(const std::vector<int32_t>& blocks, int64_t at) {
  return blocks.at(static_cast<size_t>(at / block_tokens)) * block_tokens + at % block_tokens;
}

/// Returns the positions along axes [tokens, 3] of all tokens; undefined where each token has one position.
at::Tensor axes_of(const StepMessage& message, const at::Tensor& positions) {
  const auto has = [](const StepEntry& entry) { return !entry.axes.empty(); };
  if (std::none_of(message.entries.begin(), message.entries.end(), has)) return {};
  at::Tensor all = positions.unsqueeze(1).repeat({1, axes_of_token});
  for (int64_t first = 0; const StepEntry& entry : message.entries) {
    const auto count = static_cast<int64_t>(entry.tokens.size());
    if (has(entry)) all.narrow(0, first, count).copy_(at::tensor(entry.axes, at::kInt).view({count, axes_of_token}));
    first += count;
  }
  return all;
}

/// Returns the rows of images among the tokens of the entries.
layers::PlacedRows image_rows(const StepMessage& message) {
  std::vector<int64_t> places;
  std::vector<float> values;
  for (int64_t first = 0; const StepEntry& entry : message.entries) {
    for (const int32_t place : entry.image_places) places.push_back(first + place);
    values.insert(values.end(), entry.image_rows.begin(), entry.image_rows.end());
    first += static_cast<int64_t>(entry.tokens.size());
  }
  if (places.empty()) return {};
  return {tensor_of(places), at::tensor(values).view({static_cast<int64_t>(places.size()), -1})};
}

constexpr size_t scored_rows_at_once = 32;  ///< rows of prompts whose logits are in memory at once

parallel::StepRequirements step_requirements(const StepMessage& message) {
  parallel::StepRequirements step_requirements;
  step_requirements.tokens = !message.entries.empty();
  step_requirements.bucket = message.bucket;
  bool logits = false, sampled = false;
  size_t scored = 0;
  for (const StepEntry& entry : message.entries) {
    step_requirements.source = step_requirements.source || entry.encodes();
    step_requirements.best = step_requirements.best || entry.output_kind == OutputKind::Argmax;
    logits = logits || entry.output_kind == OutputKind::Logits;
    sampled = sampled || entry.output_kind == OutputKind::Sampled;
    scored += entry.scored.size();
  }
  step_requirements.scores =
      logits + sampled + static_cast<int64_t>((scored + scored_rows_at_once - 1) / scored_rows_at_once);
  if (message.forward) {
    step_requirements.inputs = message.forward->inputs;
    step_requirements.wanted = {message.forward->hidden_states, message.forward->attentions, message.forward->outputs};
  }
  return step_requirements;
}

}  // namespace

int32_t graph_bucket(const StepMessage& message, parallel::Executor& executor) {
  const parallel::GenerationExecutor* generation = executor.generation();
  const bool single = std::all_of(message.entries.begin(), message.entries.end(), [](const StepEntry& entry) {
    return entry.tokens.size() == 1 && !entry.encodes() && !entry.long_rope && entry.scored.empty() &&
           entry.adapter == 0 && entry.image_places.empty() && entry.axes.empty() && !entry.states;
  });
  return generation && single && !message.entries.empty()
             ? static_cast<int32_t>(generation->bucket(static_cast<int64_t>(message.entries.size())))
             : 0;
}

parallel::GenerationExecutor& Rank::generation() {
  if (parallel::GenerationExecutor* generation = executor_->generation()) return *generation;
  throw std::logic_error("a step of generation was sent to a rank whose model does not generate");
}

/// Returns the memory of adapters. Throws std::logic_error where there is none.
layers::AdapterSlots& Rank::adapters() {
  if (layers::AdapterSlots* adapters = executor_->adapters()) return *adapters;
  throw std::logic_error("a step with an adapter was sent to a rank that has no memory for one");
}

/// Says which adapter each row of the entries has.
void Rank::select_adapters(const std::vector<StepEntry>& entries) {
  std::vector<int32_t>& slots = row_adapters_;
  slots.clear();
  for (const StepEntry& entry : entries) slots.insert(slots.end(), entry.tokens.size(), entry.adapter);
  if (executor_->adapters() || std::any_of(slots.begin(), slots.end(), [](int32_t slot) { return slot > 0; }))
    adapters().select(slots);
}

/// Applies the message's changes to the block tables, then concatenates the tokens of the entries.
models::StepRows Rank::build_rows(const StepMessage& message) {
  for (int32_t slot : message.freed_slots) slots_.at(static_cast<size_t>(slot)) = {};
  const bool caches = message.entries.empty() || generation().caches();
  std::vector<int64_t> tokens, positions, cache_slots;
  models::StepRows rows;
  layers::Batch& batch = rows.batch;
  for (const StepEntry& entry : message.entries) {
    if (static_cast<size_t>(entry.slot) >= slots_.size()) slots_.resize(static_cast<size_t>(entry.slot) + 1);
    Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    if (entry.reset_table) slot = {{}, entry.source_blocks, entry.source_tokens};
    slot.blocks.insert(slot.blocks.end(), entry.blocks.begin(), entry.blocks.end());
    const auto first = static_cast<int64_t>(tokens.size()), count = static_cast<int64_t>(entry.tokens.size());
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(entry.tokens[static_cast<size_t>(i)]);
      positions.push_back(entry.context + entry.position_shift + i);
      if (caches) cache_slots.push_back(cache_slot(slot.blocks, entry.context + i));
    }
    batch.sequences.spans.push_back({.first = first,
                                     .tokens = count,
                                     .context = entry.context,
                                     .keys = entry.context + count - (entry.tokens.back() < 0 ? 1 : 0),
                                     .key_row = caches ? 0 : first,
                                     .blocks = {},
                                     .drafts = entry.drafts > 0});
    for (size_t i = 0; i + 1 < entry.bidirectional.size(); i += 2)
      batch.sequences.spans.back().bidirectional.push_back({entry.bidirectional[i], entry.bidirectional[i + 1]});
    if (caches)
      batch.state_slots.push_back(entry.slot);
    else
      batch.prompts.push_back(entry.prompt > 0 ? entry.prompt : count);
  }
  add_encoder_rows(message, rows);
  for (size_t i = 0; i < message.entries.size(); ++i) {  // after the last resize, so that the spans stay valid
    const Slot& slot = slots_[static_cast<size_t>(message.entries[i].slot)];
    batch.sequences.spans[i].blocks = slot.blocks;
    if (slot.source_tokens == 0) continue;
    const ops::SequenceSpan& own = batch.sequences.spans[i];
    rows.cross.sequences.spans.push_back({.first = own.first,
                                          .tokens = own.tokens,
                                          .context = 0,
                                          .keys = slot.source_tokens,
                                          .key_row = 0,
                                          .blocks = slot.source_blocks,
                                          .drafts = own.drafts});
  }
  batch.tokens = tensor_of(tokens);
  batch.positions = tensor_of(positions);
  batch.axes = axes_of(message, batch.positions);
  const auto is_long = [](const StepEntry& entry) { return entry.long_rope; };
  if (std::any_of(message.entries.begin(), message.entries.end(), is_long)) {
    batch.long_rows = at::zeros_like(batch.positions, at::kBool);
    for (size_t i = 0; i < message.entries.size(); ++i) {
      const ops::SequenceSpan& span = batch.sequences.spans[i];
      batch.long_rows.narrow(0, span.first, span.tokens).fill_(message.entries[i].long_rope);
    }
  }
  if (caches) batch.slots = tensor_of(cache_slots);
  batch.images = image_rows(message);
  return rows;
}

/// Builds the encoder's rows of the requests that begin with this message, and the cache slots of their keys and
/// values.
void Rank::add_encoder_rows(const StepMessage& message, models::StepRows& rows) {
  std::vector<int64_t> tokens, positions, cache_slots;
  std::vector<models::StackInput> inputs;  // of images or audio, which stand in no message beside tokens
  layers::Batch batch;
  for (const StepEntry& entry : message.entries) {
    if (!entry.source_inputs.empty()) {
      inputs.push_back(generation().source_input(entry.source_inputs));
      if (inputs.back().batch_rows() != entry.source_tokens)
        throw std::logic_error("the encoder makes " + std::to_string(inputs.back().batch_rows()) +
                               " states of an input for which the step has " + std::to_string(entry.source_tokens));
      for (int64_t i = 0; i < entry.source_tokens; ++i) cache_slots.push_back(cache_slot(entry.source_blocks, i));
    }
    if (entry.source.empty()) continue;
    const auto first = static_cast<int64_t>(tokens.size()), count = static_cast<int64_t>(entry.source.size());
    batch.sequences.spans.push_back(
        {.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(entry.source[static_cast<size_t>(i)]);
      positions.push_back(i);
      cache_slots.push_back(cache_slot(entry.source_blocks, i));
    }
  }
  if (cache_slots.empty()) return;
  if (inputs.empty()) {
    batch.tokens = tensor_of(tokens);
    batch.positions = tensor_of(positions);
  } else {
    std::vector<const models::StackInput*> all;
    for (const models::StackInput& input : inputs) all.push_back(&input);
    batch = models::joined(all);
  }
  rows.source = std::move(batch);
  rows.cross.slots = tensor_of(cache_slots);
}

namespace {

/// Adds the samples of an entry whose logits are row `row` of the sampled rows.
void add(const DeviceSampling& device_sampling, int64_t row, ops::SampleBatch& batch) {
  for (int64_t i = 0; i < device_sampling.num_samples; ++i) {
    batch.sampling.push_back(device_sampling.params);
    batch.sampling.back().sequence += static_cast<uint64_t>(i);
    batch.rows.push_back(row);
  }
  for (const ops::ScoreEdit& edit : device_sampling.edits) batch.edits.push_back({static_cast<int32_t>(row), edit});
}

/// Returns the samples of a step for a CUDA graph in which every entry wants one token; nullopt for other steps.
std::optional<ops::SampleBatch> decode_samples(const StepMessage& message) {
  if (message.bucket == 0) return std::nullopt;
  ops::SampleBatch samples;
  for (const StepEntry& entry : message.entries) {
    const auto row = static_cast<int64_t>(samples.rows.size());
    const bool sampled = entry.output_kind == OutputKind::Sampled && entry.device_sampling.num_samples == 1;
    if (!sampled && entry.output_kind != OutputKind::Argmax) return std::nullopt;
    add(sampled ? entry.device_sampling : DeviceSampling{}, row, samples);
  }
  return samples;
}

/// Splits the tokens of a step by what its entries want.
void set_tokens(const StepMessage& message, const at::Tensor& tokens, StepOutput& output) {
  std::vector<int64_t> rows[2];  // of the argmax, and sampled
  for (size_t i = 0; i < message.entries.size(); ++i)
    rows[message.entries[i].output_kind == OutputKind::Sampled].push_back(static_cast<int64_t>(i));
  if (!rows[0].empty()) output.argmax = at::index_select(tokens, 0, tensor_of(rows[0]));
  if (!rows[1].empty()) output.sampled = at::index_select(tokens, 0, tensor_of(rows[1]));
}

/// Returns these rows of the hidden states.
at::Tensor rows_of(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
  bool all = static_cast<int64_t>(rows.size()) == hidden.size(0);
  for (size_t i = 0; all && i < rows.size(); ++i) all = rows[i] == static_cast<int64_t>(i);
  return all ? hidden : at::index_select(hidden, 0, ops::to_device(tensor_of(rows), hidden.device()));
}

/// Returns the rows whose hidden states are wanted.
std::vector<int64_t> state_rows(const StepMessage& message) {
  std::vector<int64_t> rows;
  for (int64_t first = 0; const StepEntry& entry : message.entries) {
    const auto count = static_cast<int64_t>(entry.tokens.size());
    for (int64_t i = 0; entry.states && i < count; ++i) rows.push_back(first + i);
    first += count;
  }
  return rows;
}

}  // namespace

/// Returns these rows of the hidden states for the head, and selects their adapters, which may replace it.
at::Tensor Rank::head_rows(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
  if (layers::AdapterSlots* adapters = executor_->adapters(); adapters && adapters->replaces_modules()) {
    std::vector<int32_t> slots;
    for (const int64_t row : rows) slots.push_back(row_adapters_.at(static_cast<size_t>(row)));
    adapters->select(slots);
  }
  return rows_of(hidden, rows);
}

/// Computes argmax ids, sampled ids and gathered logits from the last row of each entry and the rows of its drafts.
void Rank::compute_outputs(const StepMessage& message, parallel::SamplingExecutor& sampling, const at::Tensor& hidden,
                           StepOutput& output) {
  std::vector<int64_t> argmax_rows, sampled_rows, logits_rows;
  ops::SampleBatch batch;
  int64_t row = 0;
  for (const StepEntry& entry : message.entries) {
    row += static_cast<int64_t>(entry.tokens.size());
    if (entry.output_kind == OutputKind::None) continue;
    std::vector<int64_t>& rows = entry.output_kind == OutputKind::Argmax    ? argmax_rows
                                 : entry.output_kind == OutputKind::Sampled ? sampled_rows
                                                                            : logits_rows;
    for (int32_t draft = 0; draft <= entry.drafts; ++draft) {  // the row before the drafts, then theirs
      if (entry.output_kind == OutputKind::Sampled)
        add(draft == 0 ? entry.device_sampling : entry.draft_sampling.at(static_cast<size_t>(draft - 1)),
            static_cast<int64_t>(rows.size()), batch);
      rows.push_back(row - 1 - entry.drafts + draft);
    }
  }
  at::Tensor argmax, sampled;
  if (!argmax_rows.empty()) argmax = sampling.greedy(head_rows(hidden, argmax_rows));
  if (!sampled_rows.empty()) {
    parallel::DeviceSampler* sampler = executor_->device_sampler();
    if (!sampler)
      throw std::logic_error(std::to_string(sampled_rows.size()) +
                             " rows cannot be sampled: the device has no sampler");
    sampled = sampler->sample(head_rows(hidden, sampled_rows), batch);
  }
  const int64_t num_argmax = argmax.defined() ? argmax.size(0) : 0;
  if (argmax.defined() || sampled.defined()) {  // one copy to the host for both
    const at::Tensor ids = (argmax.defined() && sampled.defined() ? at::cat({argmax, sampled})
                            : argmax.defined()                    ? argmax
                                                                  : sampled)
                               .cpu();
    if (argmax.defined()) output.argmax = ids.narrow(0, 0, num_argmax);
    if (sampled.defined()) output.sampled = ids.narrow(0, num_argmax, ids.size(0) - num_argmax);
  }
  if (!logits_rows.empty()) output.logits = sampling.logits(head_rows(hidden, logits_rows));
  if (output.logits.defined()) output.logits = output.logits.contiguous();
}

/// Scores the tokens of prompts. Logits are gathered for a few rows at a time, for they may be as many as the tokens of
/// a step, and each as long as the vocabulary.
void Rank::score_prompts(const StepMessage& message, parallel::SamplingExecutor& sampling, const at::Tensor& hidden,
                         StepOutput& output) {
  struct Scored {
    int64_t row = 0;
    int32_t id = 0;
    int64_t best = 0;
  };
  std::vector<Scored> all;
  for (int64_t first = 0; const StepEntry& entry : message.entries) {
    for (size_t i = 0; i < entry.scored.size(); ++i)
      all.push_back({first + static_cast<int64_t>(i), entry.scored[i], entry.scored_best});
    first += static_cast<int64_t>(entry.tokens.size());
  }
  for (size_t begin = 0; begin < all.size(); begin += scored_rows_at_once) {
    const size_t end = std::min(all.size(), begin + scored_rows_at_once);
    std::vector<int64_t> rows;
    for (size_t i = begin; i < end; ++i) rows.push_back(all[i].row);
    const at::Tensor gathered = sampling.logits(head_rows(hidden, rows));
    if (!gathered.defined()) continue;
    const at::Tensor logits = gathered.contiguous();
    output.prompt_tokens.resize(end);
    at::parallel_for(0, static_cast<int64_t>(rows.size()), 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const Scored& one = all[begin + static_cast<size_t>(i)];
        const std::span<const float> row(logits.const_data_ptr<float>() + i * logits.size(1),
                                         static_cast<size_t>(logits.size(1)));
        output.prompt_tokens[begin + static_cast<size_t>(i)] = scored_token(row, one.id, one.best);
      }
    });
  }
}

StepOutput Rank::run(const StepMessage& message, const at::Tensor& states) {
  return with_memory_errors(executor_->device(), "in step " + std::to_string(message.step), &*executor_,
                            [&] { return execute(message, states); });
}

StepOutput Rank::execute(const StepMessage& message, const at::Tensor& states) {
  const c10::InferenceMode inference_mode;
  const c10::DeviceGuard here(executor_->device());
  if (threads_ > 0 && at::get_num_threads() != threads_) at::set_num_threads(threads_);
  StepOutput output;
  {
    const parallel::StepScope step = executor_->begin(step_requirements(message));
    if (!message.block_copies.empty()) generation().copy_blocks(message.block_copies);
    if (!message.state_copies.empty()) generation().copy_states(message.state_copies);
    for (const AdapterLoad& load : message.adapter_loads) adapters().load(load.slot, load.factors);
    models::StepRows rows = build_rows(message);
    rows.batch.states = states;
    if (!message.entries.empty()) {
      select_adapters(message.entries);
      if (const std::optional<ops::SampleBatch> samples = decode_samples(message)) {
        if (const at::Tensor tokens = generation().decode(rows, *samples); tokens.defined())
          set_tokens(message, tokens, output);
      } else {
        const at::Tensor hidden = generation().step(rows);
        if (parallel::SamplingExecutor* sampling = executor_->sampling()) {
          compute_outputs(message, *sampling, hidden, output);
          score_prompts(message, *sampling, hidden, output);
          if (const std::vector<int64_t> wanted = state_rows(message); !wanted.empty())
            output.states = rows_of(hidden, wanted);
        }
      }
    }
    if (message.forward) {
      if (executor_->adapters() || message.forward->adapter > 0) adapters().select_all(message.forward->adapter);
      output.outputs =
          executor_->forward(message.forward->inputs,
                             {message.forward->hidden_states, message.forward->attentions, message.forward->outputs});
    }
  }
  executor_->communicator().check();
  return output;
}

void Rank::follow(comm::Channel& channel, comm::Channel* results, const std::function<void(int64_t)>& after_step) {
  for (;;) {
    const auto bytes = channel.receive(std::chrono::seconds(3600));
    if (!bytes) continue;
    const StepMessage message = decode(*bytes);
    if (message.stop) return;
    const StepOutput output = run(message);
    if (results) results->send(encode(output));
    if (after_step) after_step(message.step);
  }
}

}  // namespace pm::engine
