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
layers::Batch Rank::assemble(const StepMessage& message) {
  for (int32_t slot : message.freed) slots_.at(static_cast<size_t>(slot)) = {};
  std::vector<int64_t> tokens, positions, places;
  layers::Batch batch;
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
    batch.sequences.push_back({static_cast<int64_t>(tokens.size()) - count, count, entry.context, {}});
  }
  for (size_t i = 0; i < message.entries.size(); ++i) {   // after the last resize: the spans stay valid
    batch.sequences[i].blocks = slots_[static_cast<size_t>(message.entries[i].slot)].blocks;
  }
  batch.tokens = tensor_of(tokens);
  batch.positions = tensor_of(positions);
  batch.slots = tensor_of(places);
  return batch;
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

StepResult Rank::run(const StepMessage& message) {
  StepResult result;
  layers::Batch batch = assemble(message);
  if (message.entries.empty()) return result;
  result.capture.hidden_states = message.hidden_states;
  result.capture.attentions = message.attentions;
  if (message.hidden_states || message.attentions) batch.capture = &result.capture;
  const at::Tensor hidden = executor_->forward(batch);
  if (message.hidden_states || message.attentions || message.all_logits) result.hidden = hidden;
  if (message.all_logits) result.logits = executor_->logits(hidden);
  result.ids = sample(message, hidden);
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
