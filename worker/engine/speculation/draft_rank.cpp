// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/draft_rank.h"

#include <algorithm>
#include <utility>

namespace pm::engine {

bool is_end(const SamplingParams& sampling, int32_t id) {
  return std::find(sampling.eos.begin(), sampling.eos.end(), id) != sampling.eos.end();
}

void DraftRank::open(Table& table) {
  if (free_slots_.empty()) free_slots_.push_back(slots_++);
  table.slot = free_slots_.back();
  free_slots_.pop_back();
}

void DraftRank::close(Table& table) {
  if (table.sent_blocks > 0) freed_slots_.push_back(table.slot);  // else the rank does not know of it
  clear(table);
  free_slots_.push_back(table.slot);
  table.slot = -1;
}

void DraftRank::clear(Table& table) {
  pool_.release(table.blocks);
  table = {.slot = table.slot, .blocks = {}};
}

void DraftRank::begin(Table& table, std::span<const int32_t> tokens) {
  clear(table);
  BlockPool::Prefix prefix = pool_.find_prefix(tokens);
  table.cached_blocks = prefix.blocks.size();
  table.blocks = std::move(prefix.blocks);
  table.prefix_node = prefix.end;
}

void DraftRank::cache_blocks(Table& table, std::span<const int32_t> tokens, size_t computed) {
  for (; (table.cached_blocks + 1) * block_tokens <= computed; ++table.cached_blocks)
    table.prefix_node = pool_.cache_block(table.blocks[table.cached_blocks], table.prefix_node,
                                          tokens.subspan(table.cached_blocks * block_tokens, block_tokens));
}

bool DraftRank::grow(Table& table, int64_t tokens) {
  while (static_cast<int64_t>(table.blocks.size()) < blocks_for(tokens)) {
    const std::optional<int32_t> block = pool_.allocate();
    if (!block) return false;
    table.blocks.push_back(*block);
  }
  return true;
}

bool DraftRank::fork(const Table& parent, Table& child, size_t computed) {
  const size_t whole = computed / block_tokens;
  child.blocks.assign(parent.blocks.begin(), parent.blocks.begin() + static_cast<std::ptrdiff_t>(whole));
  for (const int32_t block : child.blocks) pool_.retain(block);
  child.cached_blocks = parent.cached_blocks;
  child.prefix_node = parent.prefix_node;
  if (whole * block_tokens == computed) return true;
  if (!grow(child, static_cast<int64_t>(computed))) return false;
  block_copies_.insert(block_copies_.end(), {parent.blocks[whole], child.blocks[whole]});
  return true;
}

void DraftRank::add_entry(Table& table, size_t context, std::span<const int32_t> tokens, StepMessage& message) const {
  StepEntry entry{.slot = table.slot, .reset_table = table.sent_blocks == 0};
  entry.context = static_cast<int64_t>(context);
  entry.tokens.assign(tokens.begin(), tokens.end());
  entry.blocks.assign(table.blocks.begin() + static_cast<std::ptrdiff_t>(table.sent_blocks), table.blocks.end());
  table.sent_blocks = table.blocks.size();
  message.entries.push_back(std::move(entry));
}

void DraftRank::want_token(const DraftRequest& request, std::span<const int32_t> text, StepMessage& message,
                           std::vector<SamplingInput>& inputs) const {
  const SamplingParams& sampling = *request.sampling;
  const History history{text, request.prompt};
  StepEntry& entry = message.entries.back();
  if (!sampling.do_sample && !sampling.edits_scores()) {
    entry.output_kind = OutputKind::Argmax;
  } else if (rank_->executor().device_sampler() && supports_device_sampling(sampling, vocabulary_)) {
    entry.output_kind = OutputKind::Sampled;
    entry.device_sampling = device_sampling(sampling, history, request.sequence, 1, static_cast<size_t>(vocabulary_));
  } else {
    entry.output_kind = OutputKind::Logits;
    inputs.push_back({.sampling = &sampling, .history = history, .sequence = request.sequence});
  }
}

StepOutput DraftRank::run(StepMessage& message, const at::Tensor& states) {
  message.step = ++steps_;
  message.freed_slots = std::exchange(freed_slots_, {});
  message.block_copies = std::exchange(block_copies_, {});
  message.bucket = graph_bucket(message, rank_->executor());
  return rank_->run(message, states);
}

}  // namespace pm::engine
