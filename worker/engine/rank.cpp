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
    if (entry.sampling) slot.sampling = *entry.sampling, slot.prompt = entry.prompt, slot.tokens.clear();
    if (slot.sampling.edits()) slot.tokens.insert(slot.tokens.end(), entry.tokens.begin(), entry.tokens.end());   // a carried token is there already
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

/// The id that has to come after the entry's tokens; -1: the scores decide.
int32_t Rank::forced(const StepEntry& entry) const {
  const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
  const int64_t length = entry.context + static_cast<int64_t>(std::max<size_t>(1, entry.tokens.size()));
  return slot.sampling.forced(length, length - slot.prompt);
}

/// Ids for the entries that want one: forced ones as they are, plain greedy rows by merged maxima, all others from gathered scores, both told
/// to every rank.
std::vector<int32_t> Rank::sample(const StepMessage& message, const at::Tensor& hidden) {
  std::vector<int64_t> greedy_rows, other_rows;
  std::vector<const StepEntry*> others;
  const auto plain = [&](const StepEntry& entry) {
    const Sampling& sampling = slots_[static_cast<size_t>(entry.slot)].sampling;
    return !sampling.do_sample && !sampling.edits();
  };
  int64_t row = 0;
  for (const StepEntry& entry : message.entries) {
    row += static_cast<int64_t>(entry.tokens.empty() ? 1 : entry.tokens.size());
    if (!entry.sample || forced(entry) >= 0) continue;
    (plain(entry) ? greedy_rows : other_rows).push_back(row - 1);
    if (!plain(entry)) others.push_back(&entry);
  }
  comm::Communicator& comm = executor_->communicator();
  at::Tensor greedy, chosen = at::empty({static_cast<int64_t>(other_rows.size())}, at::kLong);
  if (!greedy_rows.empty()) greedy = executor_->greedy(at::index_select(hidden, 0, tensor_of(greedy_rows)));
  if (!other_rows.empty()) {
    const at::Tensor scores = executor_->logits(at::index_select(hidden, 0, tensor_of(other_rows)));
    if (comm.rank() == 0) choose_rows(scores.contiguous(), others, chosen);
  }
  if (!greedy.defined()) greedy = at::empty({static_cast<int64_t>(greedy_rows.size())}, at::kLong);
  at::Tensor ids = at::cat({greedy, chosen});
  if (comm.size() > 1 && ids.numel() > 0) comm.broadcast(ids, 0);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  std::vector<int32_t> result;
  size_t next_greedy = 0, next_other = greedy_rows.size();
  for (const StepEntry& entry : message.entries) {
    if (!entry.sample) continue;
    Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    const int32_t known = forced(entry);
    slot.carry = known >= 0 ? known : static_cast<int32_t>(id[plain(entry) ? next_greedy++ : next_other++]);
    if (slot.sampling.edits()) slot.tokens.push_back(slot.carry);
    result.push_back(slot.carry);
  }
  return result;
}

/// `chosen[i]` from row i of the scores [rows, vocabulary].
void Rank::choose_rows(const at::Tensor& scores, const std::vector<const StepEntry*>& entries, at::Tensor& chosen) const {
  const auto columns = static_cast<size_t>(scores.size(1));
  for (size_t i = 0; i < entries.size(); ++i) {
    const StepEntry& entry = *entries[i];
    const Slot& slot = slots_[static_cast<size_t>(entry.slot)];
    const auto position = static_cast<uint64_t>(entry.context) + std::max<size_t>(1, entry.tokens.size());
    const double u = uniform(slot.sampling.seed, static_cast<uint64_t>(entry.sequence), position);
    chosen[static_cast<int64_t>(i)] = choose({scores.const_data_ptr<float>() + i * columns, columns}, slot.sampling, {slot.tokens, static_cast<size_t>(slot.prompt)}, u);
  }
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
