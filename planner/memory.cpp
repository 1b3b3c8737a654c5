// SPDX-License-Identifier: Apache-2.0
#include "planner/memory.h"

#include <algorithm>

#include "contract/latent_tile.h"
#include "contract/widened_tile.h"

namespace pm {

namespace {
constexpr int64_t kibi = 1024, mebi = kibi * kibi;

/// Returns the columns of the widest FFN of the stack that `rank` holds.
int64_t ffn_columns(const Partition& partition, const StackMetadata& stack, int rank) {
  int64_t widest = 0;
  for (const Partition::Row& row : partition.rows()) {
    if (row.axis == Axis::Ffn && row.stack == stack.name)
      widest = std::max(widest, row.ranges[static_cast<size_t>(rank)].size());
  }
  return widest;
}

/// Returns whether layers of the stack have experts: the rows of one, and what it makes of them, stand beside their
/// sum.
bool has_experts(const ModelMetadata& metadata, const StackMetadata& stack) {
  return std::any_of(metadata.parts.begin(), metadata.parts.end(),
                     [&](const Part& part) { return part.stack == stack.name && part.routed.experts > 0; });
}

/// Returns the rows of the longest input of a stack. Where answers are generated, all images have the same number.
int64_t longest_input(const ModelMetadata& metadata, const StackMetadata& stack, int64_t sequence_length) {
  const bool image = metadata.task == "generate" && stack.media && stack.positions > 0;
  return image ? stack.positions : sequence_length * stack.rows_per_token;
}

/// Returns the tokens of one step whose budget is `budget`. An encoder's sequence and the source of a cross-attention
/// are never split, and a forward pass without generation scores all its tokens.
int64_t tokens_of_a_step(const ModelMetadata& metadata, int64_t sequence_length, int64_t budget) {
  int64_t tokens = budget;
  for (const StackMetadata& stack : metadata.stacks) {
    if (metadata.task != "generate" || !stack.causal || stack.cross)
      tokens = std::max(tokens, longest_input(metadata, stack, sequence_length));
  }
  return tokens;
}

/// Returns the bytes of the tile into which a GPU widens quantised weights of `rank`.
int64_t widened_tile(const ModelMetadata& metadata, const Partition& partition, int rank) {
  const int64_t element = size_of(compute_type(metadata, DType::I8));
  int64_t quantised = 0, widest = 0;
  for (const Part& part : metadata.parts) {
    if (!part.keep)
      quantised +=
          partition.range(part.stack, part.axis, part.units, rank, part.layout).size() * part.quantised.elements;
  }
  for (const StackMetadata& stack : metadata.stacks) {
    widest = std::max({widest, stack.hidden, ffn_columns(partition, stack, rank)});
    for (const HeadLayout& layout : head_layouts(stack)) widest = std::max(widest, layout.heads * layout.head_dim);
  }
  return std::min(quantised * element, 2 * widened_tile_bytes + widened_tile_row_multiple * widest * element);
}

/// Returns an upper bound of the numbers that a recurrent layer holds at once, beside those of the residual: eight
/// times its projections (convolved, repeated for all value heads, times their factors), and a state with its
/// successor.
int64_t recurrent_elements(const Partition& partition, const StackMetadata& stack, int rank, int64_t tokens) {
  const Recurrence& recurrence = stack.recurrence;
  if (recurrence.units == 0) return 0;
  const int64_t units = partition.range(stack.name, Axis::Groups, recurrence.units, rank).size();
  return units * (8 * tokens * recurrence.channels + 2 * recurrence.state) + 8 * tokens * recurrence.shared_channels +
         2 * recurrence.shared_state;
}

/// Returns an upper bound of the numbers that latent attention holds beside queries and expanded keys and values: the
/// context's latents twice, what the tokens are projected to, and queries and results as wide as latents of sequences
/// that decode.
int64_t latent_elements(const StackMetadata& stack, int64_t heads, int64_t length, int64_t tokens, int64_t sequences) {
  if (stack.latent == 0) return 0;
  return stack.latent * (2 * length + 2 * tokens + 4 * std::min(sequences, tokens) * heads) + tokens * stack.hidden;
}

}  // namespace

int64_t source_length(const ModelMetadata& metadata, int64_t sequence_length) {
  const auto crosses = [](const StackMetadata& stack) { return stack.cross; };
  if (std::none_of(metadata.stacks.begin(), metadata.stacks.end(), crosses)) return 0;
  for (const StackMetadata& stack : metadata.stacks)
    if (stack.media) return longest_input(metadata, stack, sequence_length);
  return sequence_length;
}

int64_t hop_bytes(const ModelMetadata& metadata, int pipeline, int64_t sequence_length, int64_t tokens) {
  if (pipeline <= 1) return 0;
  int64_t widest = 0, beside = 0;
  bool cross = false;
  for (const StackMetadata& stack : metadata.stacks) {
    widest = std::max(widest, stack.hidden);
    int64_t handed = stack.layer_inputs * stack.layers;
    const std::vector<HeadLayout> layouts = head_layouts(stack);
    for (const KeyReuse& reuse : stack.reuses) {
      const HeadLayout& layout = layouts.at(static_cast<size_t>(reuse.layout));
      handed += 2 * layout.kv_heads * layout.head_dim;
    }
    beside = std::max(beside, handed);
    cross = cross || stack.cross;
  }
  return float_bytes * tokens_of_a_step(metadata, sequence_length, tokens) * (widest * (cross ? 3 : 2) + 2 * beside);
}

int64_t activation_bytes(const ModelMetadata& metadata, const Partition& partition, int rank, int64_t sequence_length,
                         int64_t max_concurrency, const StepSize& step) {
  int64_t stacks = 0, vocabulary = 0;
  const bool generates = metadata.task == "generate", gpu = step.kind == DeviceKind::GPU;
  const int64_t most = tokens_of_a_step(metadata, sequence_length, step.tokens);
  const int64_t sampling = generates ? std::min(max_concurrency, step.tokens) : most;
  for (const StackMetadata& stack : metadata.stacks) {
    // a decoder reads prompts in chunks, also the rows that a tower makes of a whole image
    const int64_t tokens = generates && stack.causal && !stack.cross ? step.tokens : most;
    const int64_t input = longest_input(metadata, stack, sequence_length), whole = std::min(tokens, input);
    const int64_t length = input + stack.memory;  // of the keys
    const int64_t queries = stack.query_block > 0 ? std::min(stack.query_block, whole) : whole;
    // rows of relative positions that a sequence reads; their products with queries and keys stand beside the scores
    const int64_t relative = std::min(stack.relative_rows, 2 * length);
    const bool holds_scores =
        !gpu || stack.query_block > 0 || relative > 0 || stack.integers;  // kernels of a GPU do not
    int64_t attention = 0;
    int number = 0;
    for (const HeadLayout& layout : head_layouts(stack)) {  // one layer after the other
      const int64_t heads = partition.range(stack.name, Axis::Heads, layout.heads, rank, number).size(),
                    kv = partition.range(stack.name, Axis::Kv, layout.kv_heads, rank, number).size(),
                    size = layout.head_dim;
      const bool latent = stack.latent > 0;
      const int64_t at_once = latent ? heads_of_latent_tile(heads, size, length) : heads;
      const int64_t scored = 4 * (latent ? at_once : kv) * size * length +
                             (holds_scores ? 2 * at_once * queries * length + queries * length : 0) +
                             latent_elements(stack, heads, length, tokens, sampling) + 2 * heads * queries * relative +
                             relative * (stack.hidden + 3 * heads * size) +
                             (gpu || stack.query_block > 0 ? tokens * size * heads : 0);
      const int64_t exchanged =
          layout.kv_heads < partition.ranks() ? tokens * size * (2 * layout.kv_heads + 6 * kv) : 0;
      // what keys and values read beside the states, and both of them
      const int64_t remembered = stack.memory > 0 ? (tokens + stack.memory) * (2 * stack.hidden + 2 * kv * size) : 0;
      attention = std::max(attention, tokens * size * (2 * heads + 2 * kv) + remembered + std::max(scored, exchanged));
      ++number;
    }
    const int64_t mlp = 3 * tokens * ffn_columns(partition, stack, rank) +
                        (has_experts(metadata, stack) ? 2 * tokens * stack.hidden : 0);
    const int64_t recurrent = recurrent_elements(partition, stack, rank, tokens);
    // the inputs of all layers, and while they are made their table's rows and the projected states
    const int64_t inputs = 3 * tokens * stack.layer_inputs * stack.layers;
    // what stands beside each other while activations are rounded, half of it in double
    const int64_t rounded = stack.integers ? 4 : 1, blocks = std::max({attention, mlp, recurrent});
    stacks = std::max(stacks, rounded * (5 * tokens * stack.hidden + inputs + blocks));
    vocabulary = std::max(vocabulary, stack.vocab);
  }
  const bool scores = generates || metadata.task == "fill-mask";
  return float_bytes * (stacks + (scores ? 2 * sampling * vocabulary : 0)) +
         (gpu && is_quantized(step.precision) ? widened_tile(metadata, partition, rank) : 0);
}

int64_t runtime_bytes(DeviceKind kind) { return kind == DeviceKind::CPU ? 256 * mebi : 1024 * mebi; }

int64_t segment_bytes(int ranks) {
  const auto n = static_cast<int64_t>(ranks);
  const int64_t bytes = n * 4 * mebi + 2 * (n - 1) * mebi + n * n * 128 * kibi + mebi;
  return (bytes + mebi - 1) / mebi * mebi;
}

int64_t state_bytes_per_sequence(const ModelMetadata& metadata, const Partition& partition, int rank) {
  int64_t bytes = 0;
  if (metadata.task != "generate") return 0;
  for (const StackMetadata& stack : metadata.stacks) {
    const Recurrence& recurrence = stack.recurrence;
    if (recurrence.units > 0)
      bytes += float_bytes * recurrent_layers(stack) *
               (recurrence.shared_state +
                recurrence.state * partition.range(stack.name, Axis::Groups, recurrence.units, rank).size());
  }
  return bytes;
}

int64_t kv_bytes_per_token(const ModelMetadata& metadata, const Partition& partition, int rank, DType precision,
                           std::optional<DType> kv_precision) {
  int64_t bytes = 0;
  if (metadata.task != "generate") return 0;  // a forward pass without decoding caches nothing
  for (const StackMetadata& stack : metadata.stacks) {
    if (!stack.causal || stack.heads <= 0) continue;
    if (stack.latent > 0) {  // every tensor-parallel rank reads whole rows
      bytes += cached_layers(stack, 0) * stack.latent * size_of(compute_type(metadata, precision));
      continue;
    }
    int number = 0;
    for (const HeadLayout& layout : head_layouts(stack)) {
      const int64_t vector = kv_precision ? layout.head_dim * size_of(*kv_precision) + kv_scale_bytes
                                          : layout.head_dim * size_of(compute_type(metadata, precision));
      bytes += 2 * cached_layers(stack, number) *
               partition.range(stack.name, Axis::Kv, layout.kv_heads, rank, number).size() * vector;
      ++number;
    }
  }
  return bytes;
}

int64_t tensor_memory(const Plan& plan, int rank) {
  const Memory& predicted = plan.ranks.at(static_cast<size_t>(rank)).predicted;
  const int64_t beside = plan.adapter_bytes + (plan.draft && rank == 0 ? plan.draft->bytes : 0);
  return plan.device_memory + beside - predicted.runtime - predicted.communicator;
}

}  // namespace pm
