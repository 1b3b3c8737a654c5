// See rank.h.
#include "worker/engine/rank.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <stdexcept>

#include "worker/engine/philox.h"

namespace pm::engine {

namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

/// Where token number `at` of a table is kept.
int64_t place_of(const std::vector<int32_t>& blocks, int64_t at) {
  return blocks.at(static_cast<size_t>(at / ops::block_tokens)) * ops::block_tokens + at % ops::block_tokens;
}

Chosen chosen_from(std::span<const float> scores, const Choosing& how) {
  Chosen chosen;
  if (how.beams) {
    chosen.candidates = continuations(scores, *how.sampling, how.history, *how.beams);
    return chosen;
  }
  for (int64_t draw = 0; draw < how.draws; ++draw) {
    const double u = uniform(how.sampling->seed, static_cast<uint64_t>(how.sequence + draw), how.history.tokens.size());
    const auto id = static_cast<int32_t>(choose(scores, *how.sampling, how.history, u));
    chosen.tokens.push_back(how.logprobs >= 0 ? described(scores, id, how.logprobs) : Token{id, 0, {}});
  }
  return chosen;
}

}  // namespace

/// Applies the message's table changes, then lays the entries' tokens after each other.
models::StepRows Rank::assemble(const StepMessage& message) {
  for (int32_t slot : message.freed) slots_.at(static_cast<size_t>(slot)) = {};
  std::vector<int64_t> tokens, positions, places;
  models::StepRows rows;
  layers::Batch& batch = rows.batch;
  for (const StepEntry& entry : message.entries) {
    if (static_cast<size_t>(entry.slot) >= slots_.size()) slots_.resize(static_cast<size_t>(entry.slot) + 1);
    Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    if (entry.anew) slot = {{}, entry.source_blocks, entry.source_tokens};
    slot.blocks.insert(slot.blocks.end(), entry.blocks.begin(), entry.blocks.end());
    const auto first = static_cast<int64_t>(tokens.size()), count = static_cast<int64_t>(entry.tokens.size());
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(entry.tokens[static_cast<size_t>(i)]);
      positions.push_back(entry.context + i);
      places.push_back(place_of(slot.blocks, entry.context + i));
    }
    batch.sequences.push_back({.first = first, .tokens = count, .context = entry.context, .keys = entry.context + count, .key_row = 0, .blocks = {}});
  }
  begin_sources(message, rows);
  for (size_t i = 0; i < message.entries.size(); ++i) {   // after the last resize: the spans stay valid
    const Slot& slot = slots_[static_cast<size_t>(message.entries[i].slot)];
    batch.sequences[i].blocks = slot.blocks;
    if (slot.source_tokens == 0) continue;
    const ops::SequenceSpan& own = batch.sequences[i];
    rows.cross.sequences.push_back({.first = own.first, .tokens = own.tokens, .context = 0, .keys = slot.source_tokens, .key_row = 0, .blocks = slot.source_blocks});
  }
  batch.tokens = tensor_of(tokens);
  batch.positions = tensor_of(positions);
  batch.slots = tensor_of(places);
  return rows;
}

/// The encoder's rows of the requests that begin with this message, and where their keys and values go.
void Rank::begin_sources(const StepMessage& message, models::StepRows& rows) {
  std::vector<int64_t> tokens, positions, places;
  layers::Batch batch;
  for (const StepEntry& entry : message.entries) {
    if (entry.source.empty()) continue;
    const auto first = static_cast<int64_t>(tokens.size()), count = static_cast<int64_t>(entry.source.size());
    batch.sequences.push_back({.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(entry.source[static_cast<size_t>(i)]);
      positions.push_back(i);
      places.push_back(place_of(entry.source_blocks, i));
    }
  }
  if (tokens.empty()) return;
  batch.tokens = tensor_of(tokens);
  batch.positions = tensor_of(positions);
  rows.source = std::move(batch);
  rows.cross.slots = tensor_of(places);
}

/// The best ids by merged maxima, all else from gathered scores; nobody but rank 0 learns of it before the next message.
std::vector<Chosen> Rank::choose(const StepMessage& message, std::span<const Choosing> choosing, const at::Tensor& hidden) {
  std::vector<int64_t> best_rows, score_rows;
  int64_t row = 0;
  for (const StepEntry& entry : message.entries) {
    row += static_cast<int64_t>(entry.tokens.size());
    if (entry.want != Want::Nothing) (entry.want == Want::Best ? best_rows : score_rows).push_back(row - 1);
  }
  at::Tensor best, scores;
  if (!best_rows.empty()) best = executor_->greedy(at::index_select(hidden, 0, tensor_of(best_rows)));
  if (!score_rows.empty()) scores = executor_->logits(at::index_select(hidden, 0, tensor_of(score_rows)));
  std::vector<Chosen> result;
  if (executor_->communicator().rank() != 0) return result;
  if (choosing.size() != score_rows.size()) throw std::logic_error(std::to_string(score_rows.size()) + " entries want scores, " + std::to_string(choosing.size()) + " ways to choose are given");
  if (scores.defined()) scores = scores.contiguous();
  const int64_t* id = best.defined() ? best.const_data_ptr<int64_t>() : nullptr;
  size_t next = 0;
  for (const StepEntry& entry : message.entries) {
    if (entry.want == Want::Best) result.push_back({{Token{static_cast<int32_t>(*id++), 0, {}}}, {}});
    if (entry.want != Want::Scores) continue;
    const auto columns = static_cast<size_t>(scores.size(1));
    result.push_back(chosen_from({scores.const_data_ptr<float>() + next * columns, columns}, choosing[next]));
    ++next;
  }
  return result;
}

/// Rank 0 has the inputs' values; the others get them here.
std::vector<Arrays> Rank::forward(const ForwardJob& job) {
  comm::Communicator& comm = executor_->communicator();
  for (const Arrays& inputs : job.inputs) {
    for (const auto& [name, array] : inputs) {
      at::Tensor values = models::tensor_of(array);
      if (comm.size() > 1 && values.numel() > 0) comm.broadcast(values, 0);
    }
  }
  return executor_->forward(job.inputs, {job.hidden_states, job.attentions, job.outputs});
}

StepResult Rank::run(const StepMessage& message, std::span<const Choosing> choosing) {
  const c10::InferenceMode nothing_is_learned;
  if (threads_ > 0 && at::get_num_threads() != threads_) at::set_num_threads(threads_);
  StepResult result;
  if (!message.copies.empty()) executor_->copy_blocks(message.copies);
  models::StepRows rows = assemble(message);
  if (!message.entries.empty()) result.chosen = choose(message, choosing, executor_->step(rows));
  if (message.forward) result.outputs = forward(*message.forward);
  return result;
}

void Rank::follow(comm::Channel& channel, const std::function<void(int64_t)>& after_step) {
  for (;;) {
    const auto bytes = channel.receive(std::chrono::seconds(3600));
    if (!bytes) continue;
    const StepMessage message = decode(*bytes);
    if (message.stop) return;
    run(message);
    if (after_step) after_step(message.step);
  }
}

}  // namespace pm::engine
