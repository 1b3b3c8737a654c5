// SPDX-License-Identifier: Apache-2.0
#include "planner/draft_plan.h"

#include <stdexcept>

namespace pm {

namespace {

constexpr int64_t unlimited = int64_t{1} << 50;

}  // namespace

Plan draft_plan(const ModelMetadata& metadata, int64_t sequence_length) {
  // Of a CPU, whose kernels hold scores that those of a GPU do not.
  Decision decision = decide(metadata, {.devices = 1, .device_memory = unlimited},
                             {.strategy = Strategy::Tensor,
                              .max_sequence_length = sequence_length,
                              .max_concurrency = max_drafting_sequences});
  if (!decision.plan) throw std::invalid_argument(decision.refusal->message);
  return *std::move(decision.plan);
}

DraftNeeds draft_needs(const ModelMetadata& metadata) {
  const Plan plan = draft_plan(metadata);
  const Memory& memory = plan.ranks.front().predicted;
  const int64_t tokens = plan.kv_blocks * block_tokens;
  return {memory.weights, memory.activations, tokens > 0 ? memory.kv / tokens : 0};
}

PlannedDraft planned_draft(const DraftNeeds& needs, int64_t sequence_length, int64_t concurrency) {
  const int64_t blocks = blocks_for(sequence_length) * std::min(concurrency, max_drafting_sequences);
  return {needs.weights + needs.activations + blocks * block_tokens * needs.kv_per_token, blocks};
}

}  // namespace pm
