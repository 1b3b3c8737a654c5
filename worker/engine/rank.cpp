// See rank.h.
#include "worker/engine/rank.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "worker/engine/device.h"

namespace pm::engine {

namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

/// Where token number `at` of a table is kept.
int64_t place_of(const std::vector<int32_t>& blocks, int64_t at) {
  return blocks.at(static_cast<size_t>(at / ops::block_tokens)) * ops::block_tokens + at % ops::block_tokens;
}

parallel::Coming coming(const StepMessage& message) {
  parallel::Coming coming;
  coming.tokens = !message.entries.empty();
  coming.bucket = message.bucket;
  for (const StepEntry& entry : message.entries) {
    coming.source = coming.source || !entry.source.empty();
    coming.best = coming.best || entry.want == Want::Best;
    coming.scores = coming.scores || entry.want == Want::Scores || entry.want == Want::Drawn;
  }
  if (message.forward) {
    coming.inputs = message.forward->inputs;
    coming.wanted = {message.forward->hidden_states, message.forward->attentions, message.forward->outputs};
  }
  return coming;
}

}  // namespace

int32_t bucket_of(const StepMessage& message, const parallel::Executor& executor) {
  const bool single = std::all_of(message.entries.begin(), message.entries.end(), [](const StepEntry& entry) { return entry.tokens.size() == 1 && entry.source.empty(); });
  return single && !message.entries.empty() ? static_cast<int32_t>(executor.bucket(static_cast<int64_t>(message.entries.size()))) : 0;
}

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

namespace {

/// The choices of an entry whose scores are row `row` of those that are drawn from.
void add(const Drawing& drawing, int64_t row, ops::Draws& draws) {
  for (int64_t i = 0; i < drawing.count; ++i) {
    draws.how.push_back(drawing.how);
    draws.how.back().sequence += static_cast<uint64_t>(i);
    draws.rows.push_back(row);
  }
  draws.edits.insert(draws.edits.end(), drawing.edits.begin(), drawing.edits.end());
  draws.edit_rows.resize(draws.edits.size(), row);
}

}  // namespace

/// The best ids by merged maxima, all else by gathered scores, of the entries' last rows.
void Rank::score(const StepMessage& message, const at::Tensor& hidden, StepOutput& output) {
  std::vector<int64_t> best_rows, draw_rows, score_rows;
  ops::Draws draws;
  int64_t row = 0;
  for (const StepEntry& entry : message.entries) {
    row += static_cast<int64_t>(entry.tokens.size());
    if (entry.want == Want::Drawn) add(entry.drawing, static_cast<int64_t>(draw_rows.size()), draws);
    if (entry.want != Want::Nothing) (entry.want == Want::Best ? best_rows : entry.want == Want::Drawn ? draw_rows : score_rows).push_back(row - 1);
  }
  at::Tensor best, drawn;
  if (!best_rows.empty()) best = executor_->greedy(at::index_select(hidden, 0, tensor_of(best_rows).to(hidden.device())));
  if (!draw_rows.empty()) drawn = executor_->draw(at::index_select(hidden, 0, tensor_of(draw_rows).to(hidden.device())), draws);
  const int64_t bests = best.defined() ? best.size(0) : 0;
  if (best.defined() || drawn.defined()) {   // one copy brings all
    const at::Tensor ids = (best.defined() && drawn.defined() ? at::cat({best, drawn}) : best.defined() ? best : drawn).cpu();
    if (best.defined()) output.best = ids.narrow(0, 0, bests);
    if (drawn.defined()) output.drawn = ids.narrow(0, bests, ids.size(0) - bests);
  }
  if (!score_rows.empty()) output.scores = executor_->logits(at::index_select(hidden, 0, tensor_of(score_rows).to(hidden.device())));
  if (output.scores.defined()) output.scores = output.scores.contiguous();
}

StepOutput Rank::run(const StepMessage& message) {
  return with_memory_errors(executor_->device(), "in step " + std::to_string(message.step), &*executor_, [&] { return carry_out(message); });
}

StepOutput Rank::carry_out(const StepMessage& message) {
  const c10::InferenceMode nothing_is_learned;
  const c10::DeviceGuard here(executor_->device());
  if (threads_ > 0 && at::get_num_threads() != threads_) at::set_num_threads(threads_);
  StepOutput output;
  executor_->begin(coming(message));
  if (!message.copies.empty()) executor_->copy_blocks(message.copies);
  models::StepRows rows = assemble(message);
  if (!message.entries.empty()) {
    const at::Tensor hidden = executor_->step(rows);
    if (executor_->last()) score(message, hidden, output);
  }
  if (message.forward) output.outputs = executor_->forward(message.forward->inputs, {message.forward->hidden_states, message.forward->attentions, message.forward->outputs});
  executor_->finish();
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
