// See rank.h.
#include "worker/engine/rank.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "worker/engine/philox.h"
#include "worker/engine/sampler.h"

namespace pm::engine {

namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

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
    slot.blocks.insert(slot.blocks.end(), entry.blocks.begin(), entry.blocks.end());
    const auto count = static_cast<int64_t>(entry.tokens.empty() ? 1 : entry.tokens.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = entry.context + i;
      tokens.push_back(entry.tokens.empty() ? slot.carry : entry.tokens[static_cast<size_t>(i)]);
      positions.push_back(entry.positions.empty() ? at : entry.positions[static_cast<size_t>(i)]);
      places.push_back(slot.blocks.at(static_cast<size_t>(at / ops::block_tokens)) * ops::block_tokens + at % ops::block_tokens);
    }
    const auto first = static_cast<int64_t>(tokens.size()) - count;
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

/// The encoder's rows of the sequences that begin with this message, and where their keys and values go.
void Rank::begin_sources(const StepMessage& message, models::StepRows& rows) {
  std::vector<int64_t> tokens, positions, places;
  layers::Batch batch;
  for (const StepEntry& entry : message.entries) {
    if (entry.source.empty()) continue;
    Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    slot.source_blocks = entry.source_blocks;
    slot.source_tokens = static_cast<int64_t>(entry.source.size());
    const auto first = static_cast<int64_t>(tokens.size());
    batch.sequences.push_back({.first = first, .tokens = slot.source_tokens, .context = 0, .keys = slot.source_tokens, .key_row = first, .blocks = {}});
    for (int64_t i = 0; i < slot.source_tokens; ++i) {
      tokens.push_back(entry.source[static_cast<size_t>(i)]);
      positions.push_back(i);
      places.push_back(slot.source_blocks.at(static_cast<size_t>(i / ops::block_tokens)) * ops::block_tokens + i % ops::block_tokens);
    }
  }
  if (tokens.empty()) return;
  batch.tokens = tensor_of(tokens);
  batch.positions = tensor_of(positions);
  rows.source = std::move(batch);
  rows.cross.slots = tensor_of(places);
}

/// Ids for the entries that want one: greedy rows by merged maxima, drawn rows from gathered scores, both told to every rank.
std::vector<int32_t> Rank::sample(const StepMessage& message, const at::Tensor& hidden) {
  std::vector<int64_t> greedy_rows, drawn_rows;
  std::vector<const StepEntry*> drawn_entries, greedy_entries;
  int64_t row = 0;
  for (const StepEntry& entry : message.entries) {
    row += static_cast<int64_t>(entry.tokens.empty() ? 1 : entry.tokens.size());
    if (!entry.sample) continue;
    (entry.sampling.do_sample ? drawn_rows : greedy_rows).push_back(row - 1);
    (entry.sampling.do_sample ? drawn_entries : greedy_entries).push_back(&entry);
  }
  comm::Communicator& comm = executor_->communicator();
  at::Tensor greedy, drawn = at::empty({static_cast<int64_t>(drawn_rows.size())}, at::kLong);
  if (!greedy_rows.empty()) greedy = executor_->greedy(at::index_select(hidden, 0, tensor_of(greedy_rows)));
  if (!drawn_rows.empty()) {
    at::Tensor scores = executor_->logits(at::index_select(hidden, 0, tensor_of(drawn_rows)));
    if (comm.rank() == 0) {
      scores = scores.contiguous();
      const auto columns = static_cast<size_t>(scores.size(1));
      for (size_t i = 0; i < drawn_entries.size(); ++i) {
        const StepEntry& entry = *drawn_entries[i];
        const auto position = static_cast<uint64_t>(entry.context) + std::max<size_t>(1, entry.tokens.size());
        const double u = uniform(entry.sampling.seed, static_cast<uint64_t>(entry.sequence), position);
        drawn[static_cast<int64_t>(i)] = draw({scores.const_data_ptr<float>() + i * columns, columns}, entry.sampling, u);
      }
    }
  }
  if (!greedy.defined()) greedy = at::empty({static_cast<int64_t>(greedy_rows.size())}, at::kLong);
  at::Tensor ids = at::cat({greedy, drawn});
  if (comm.size() > 1 && ids.numel() > 0) comm.broadcast(ids, 0);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  std::vector<int32_t> result;
  size_t next_greedy = 0, next_drawn = greedy_rows.size();
  for (const StepEntry& entry : message.entries) {
    if (!entry.sample) continue;
    const auto token = static_cast<int32_t>(id[entry.sampling.do_sample ? next_drawn++ : next_greedy++]);
    slots_[static_cast<size_t>(entry.slot)].carry = token;
    result.push_back(token);
  }
  return result;
}

/// Rank 0 has the inputs' values; the others get them here.
Arrays Rank::forward(const ForwardJob& job) {
  comm::Communicator& comm = executor_->communicator();
  for (const auto& [name, array] : job.inputs) {
    at::Tensor values = models::tensor_of(array);
    if (comm.size() > 1 && values.numel() > 0) comm.broadcast(values, 0);
  }
  return executor_->forward(job.inputs, {job.hidden_states, job.attentions, job.outputs});
}

StepResult Rank::run(const StepMessage& message) {
  StepResult result;
  models::StepRows rows = assemble(message);
  if (!message.entries.empty()) result.ids = sample(message, executor_->step(rows));
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
