// SPDX-License-Identifier: Apache-2.0
// The step message: everything that a rank needs to run one step. Rank 0 builds it, the channel carries it, every rank
// runs it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/ops/sample_batch.h"

namespace pm::engine {

/// Time, row and column: the axes along which tokens have positions where images among them have any size.
inline constexpr int64_t axes_of_token = 3;

/// The output that a step computes from the last token of an entry, and from the rows of drafts.
enum class OutputKind : uint8_t {
  None,
  Argmax,   ///< id with the highest logit; logits are not gathered
  Sampled,  ///< ids sampled on the device as `device_sampling` says; logits are not gathered
  Logits,   ///< all logits, gathered on rank 0, which samples from them
};

/// Parameters of sampling on the device: one id for each of the sequences params.sequence, params.sequence + 1, ...,
/// which share all tokens so far.
struct DeviceSampling {
  ops::RowSampling params;
  int64_t num_samples = 1;
  std::vector<ops::ScoreEdit> edits;
  bool operator==(const DeviceSampling&) const = default;
};

/// One sequence's part of a step.
struct StepEntry {
  int32_t slot = 0;
  bool reset_table = false;     ///< replaces the slot's block tables by the ones given here
  int64_t context = 0;          ///< tokens whose keys and values are in the cache
  std::vector<int32_t> tokens;  ///< ids of the tokens at positions context, context + 1, ...; a last -1 is a target
  bool long_rope = false;       ///< tokens within LongRoPE's original length, of a sequence beyond it
  int64_t prompt = 0;           ///< of a whole sequence, without a KV cache: its prompt's tokens; 0: all
  std::vector<int32_t> blocks;  ///< KV blocks appended to the slot's table before the step
  std::vector<int32_t> source;  ///< encoder-decoder, once per request: input tokens of the encoder
  std::vector<int32_t> source_blocks;  ///< with `reset_table`: KV blocks of the cross-attention
  int64_t source_tokens = 0;           ///< with `reset_table`: number of the encoder's states in them
  OutputKind output_kind = OutputKind::None;
  DeviceSampling device_sampling = {};  ///< for OutputKind::Sampled
  /// Speculative decoding: so many tokens at the end are drafts. The output is computed from the row of the last token
  /// before them and from their own rows.
  int32_t drafts = 0;
  std::vector<DeviceSampling> draft_sampling = {};  ///< for OutputKind::Sampled: of the row of each draft
  /// Tokens of the prompt that follow the first rows of this entry, whose log-probabilities are wanted; empty: none.
  std::vector<int32_t> scored = {};
  int64_t scored_best = 0;    ///< number of the most likely tokens that are wanted in place of each of them
  Arrays source_inputs = {};  ///< in place of `source`, of an encoder of images or audio: its inputs, one row
  int32_t adapter = 0;        ///< slot of the adapter of its rows; 0: the base model
  std::vector<int32_t> image_places = {};  ///< ascending: which of `tokens` are of images
  std::vector<float> image_rows = {};      ///< [image_places, hidden]: the rows in their place
  int32_t position_shift = 0;  ///< of the positions of all tokens; not 0 behind images with rows and columns
  /// [tokens, 3]: positions along time, rows and columns, where they are not context + position_shift + 0, 1, ...
  std::vector<int32_t> axes = {};
  /// First positions and ends, in turn, of tokens that attend to each other in both directions: those of an image.
  std::vector<int32_t> bidirectional = {};
  bool states = false;  ///< the hidden states of its rows are wanted too: StepOutput::states
  bool operator==(const StepEntry&) const = default;

  /// Returns true if the encoder runs for this entry.
  bool encodes() const { return !source.empty() || !source_inputs.empty(); }
};

/// A forward pass over the named inputs of one or more requests.
struct ForwardJob {
  std::vector<Arrays> inputs;  ///< one per request
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;
  int32_t adapter = 0;  ///< slot of the adapter of all requests; 0: the base model
  bool operator==(const ForwardJob&) const = default;
};

/// Factors that replace the adapter of a slot before the step, by the names of layers::AdapterSlots::load.
struct AdapterLoad {
  int32_t slot = 0;
  Arrays factors;
  bool operator==(const AdapterLoad&) const = default;
};

/// Everything that the ranks of a data-parallel rank need to run one step.
struct StepMessage {
  int64_t step = 0;
  bool stop = false;                 ///< the rank ends after this message
  std::vector<int32_t> freed_slots;  ///< slots whose tables are dropped before the step
  /// Pairs of blocks: the keys and values of the first are copied to the second before the step.
  std::vector<int32_t> block_copies;
  /// Pairs of slots: what recurrent layers keep of the first is copied to the second before the step.
  std::vector<int32_t> state_copies;
  std::vector<AdapterLoad> adapter_loads;
  std::vector<StepEntry> entries;
  /// Batch size of the CUDA graph that runs the entries, captured at first use; 0: without a graph.
  int32_t bucket = 0;
  std::optional<ForwardJob> forward;  ///< runs after the entries
  bool operator==(const StepMessage&) const = default;
};

std::vector<uint8_t> encode(const StepMessage&);
/// Decodes a message. Throws std::invalid_argument for bytes that encode() cannot have written.
StepMessage decode(std::span<const uint8_t>);

}  // namespace pm::engine
