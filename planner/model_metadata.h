// SPDX-License-Identifier: Apache-2.0
// Model metadata: everything that the planner needs to know about a checkpoint. `inspect` writes it and the controller
// stores it.
#pragma once
#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/dtype.h"

namespace pm {

/// The units by which a parameter is partitioned over tensor-parallel ranks. None: every rank holds the whole
/// parameter. Kv: the kv heads that a rank attends to and whose keys and values it caches; each rank that shares a head
/// has it. KvRows: rows of the key and value projections, kv heads x head_dim; ranks that share a head split its rows.
/// Passages: rows of an index, which is searched where it lies. Latent: projections to latents of attention, which
/// every tensor-parallel rank holds whole; strategies that gather weights shard them.
enum class Axis : uint8_t { None, Heads, Kv, KvRows, Ffn, Vocab, Positions, Groups, Passages, Latent };

/// Returns "heads", "kv", ... as metadata and plans write it.
std::string_view name_of(Axis);
std::optional<Axis> axis_of(std::string_view);

/// Positions of parameters outside the layers of a stack: embeddings, norm and projection before the first layer; final
/// norm and pooler after the last.
constexpr int stack_input = -1, stack_output = -2;

/// Another position that reads the storage of a part: a tied head, a decoder's token embedding, layers that share
/// weights (ALBERT).
struct Use {
  std::string stack;        ///< "" for heads of the model
  int first = stack_input;  ///< layers first, first + every, ... (count of them), or stack_input, stack_output;
                            ///< stack_input for heads
  int count = 1, every = 1;
  auto operator<=>(const Use&) const = default;
};

/// Counts the elements of a part that I8, I4 and I8A8 hold as codes with scales: the matrices of products. A scale
/// belongs to one output and `code_group` inputs. Where inputs are partitioned by heads whose size is not a multiple of
/// `code_group`, a group is one head. I4 holds such a matrix, and those of Axis::Vocab, as I8 does. With I8A8 a scale
/// belongs to one output and all inputs of the rank, except for those of Axis::Vocab.
struct Quantised {
  int64_t elements = 0;      ///< per unit
  int64_t scales = 0;        ///< per unit
  int64_t block_scales = 0;  ///< per code_group units: where units are inputs (FFN columns of what goes down again)
  int64_t wide_elements = 0, wide_scales = 0;  ///< per unit, of those above: where a group is one head
  int64_t rows = 0;                            ///< of I8A8: scales per unit
  int64_t shared_rows = 0;                     ///< of I8A8: scales for all units of a rank, where units are inputs
  bool operator==(const Quantised&) const = default;
};
constexpr int64_t code_group = 32, scale_bytes = 2;

/// The share of a layer's experts that one token reads.
struct RoutedShare {
  int64_t experts = 0;  ///< 0: these are no experts, every token reads all
  int64_t per_token = 0;
  auto operator<=>(const RoutedShare&) const = default;
};
constexpr int64_t max_experts = 4096;

/// A group of parameters of one stack that are partitioned alike. held_bytes() gives the bytes of a rank.
struct Part {
  std::string stack;  ///< "decoder", "encoder", "vision", ... ; "" for what belongs to none (heads of the model)
  int first =
      0;  ///< first layer this row stands for; stack_input or stack_output outside the layers; stack_input for heads
  int count = 1;  ///< how many layers have exactly this row
  Axis axis = Axis::None;
  int64_t units = 1;  ///< heads, kv heads, rows of kv heads, FFN columns, vocabulary rows, rows of a position table,
                      ///< groups; 1 for Axis::None and Axis::Latent
  int64_t elements_per_unit = 0;  ///< per layer
  DType dtype = DType::F32;       ///< as stored, or the one that the loader keeps (T5 wo in fp16 checkpoints)
  bool keep = false;              ///< precision of the plan does not change dtype
  std::vector<Use> also = {};  ///< the places beside this one that read the same storage; a part that has some stands
                               ///< for one place (count 1)
  Quantised quantised = {};    ///< nothing where keep
  RoutedShare routed = {};
  int layout = 0;  ///< whose heads, kv heads or rows of kv heads the units are: 0 for the stack's own, else 1 + the
                   ///< index in StackMetadata::layouts
  bool operator==(const Part&) const = default;
};

constexpr int64_t max_layouts = 16;  ///< of heads in a stack, beside its own

/// The layers first, first + every, ... of a stack (`count` of them).
struct LayerRun {
  int first = 0, count = 1, every = 1;
  bool operator==(const LayerRun&) const = default;
};

/// The heads of some layers of a stack, where they are not those of its first layer (Gemma 4, whose layers of full
/// attention have wider heads).
struct HeadLayout {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<LayerRun> layers = {};  ///< that cache keys and values
  bool operator==(const HeadLayout&) const = default;
};

/// Layers that attend to the keys and values of an earlier layer.
struct KeyReuse {
  int source = 0;  ///< the layer that caches them
  int layout = 0;  ///< of their heads: Part::layout
  std::vector<LayerRun> layers = {};
  bool operator==(const KeyReuse&) const = default;
};

/// The layers of a stack that keep a state of each sequence in place of keys and values. All are alike. Layers of the
/// stack that neither do so nor attend keep nothing.
struct Recurrence {
  int64_t units = 0;                     ///< heads by which a layer is partitioned; 0: all layers of the stack attend
  int64_t state = 0;                     ///< F32 numbers that a sequence keeps in a layer, per unit
  int64_t channels = 0;                  ///< columns of the layer's projections, per unit
  int64_t shared_state = 0;              ///< likewise, for all units together: every rank has them
  int64_t shared_channels = 0;           ///< likewise
  std::vector<LayerRun> layers = {};     ///< that keep states
  std::vector<LayerRun> attending = {};  ///< that have keys and values
  bool operator==(const Recurrence&) const = default;
};

/// Sizes of a stack that determine KV cache and activation memory.
struct StackMetadata {
  std::string name;
  int layers = 0;
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool causal = false;        ///< holds a KV cache of its own tokens
  int64_t query_block = 0;    ///< sparse attention: the queries whose scores are held at once; 0: all of a sequence
  int64_t relative_rows = 0;  ///< relative positions by content: rows of their table; 0: there are none
  int64_t memory = 0;         ///< rows of earlier tokens that each sequence reads in every layer; 0: there are none
  bool cross = false;         ///< also holds cross-attention keys and values of the encoder
  int64_t exchanges = 0;  ///< of tensor-parallel ranks in a layer, beside those of attention, cross-attention and MLP
  bool integers = false;  ///< computes in integers that F32 holds: no other precision serves it
  bool media = false;     ///< reads images or audio, no tokens; positions, if any, are those of every input
  int64_t rows_per_token = 1;            ///< the most rows that a token of a sequence has in a step of generation
  std::vector<HeadLayout> layouts = {};  ///< of layers whose heads are not those above
  std::vector<KeyReuse> reuses = {};     ///< layers that cache nothing, for they attend to what an earlier one caches
  Recurrence recurrence = {};
  int64_t latent = 0;        ///< multi-head latent attention: numbers that a layer caches of a token, whole on every
                             ///< tensor-parallel rank, in place of keys and values; 0: it caches those
  int64_t layer_inputs = 0;  ///< width of what each layer reads of the tokens beside its states; 0: they read none
  bool operator==(const StackMetadata&) const = default;
};

/// Bytes that a draft model takes (planner/draft_plan.h): whole, of its weights, of its largest step, and of keys and
/// values for each token.
struct DraftNeeds {
  int64_t weights = 0, activations = 0, kv_per_token = 0;
  bool operator==(const DraftNeeds&) const = default;
};

/// Metadata of a model. Its JSON has at most 4,096 bytes, so that it fits a termination message.
struct ModelMetadata {
  std::string model_type;        ///< config.json's model_type
  std::string architecture;      ///< class name: GPT2LMHeadModel
  std::string task;              ///< generate, embed, classify, fill-mask, ...
  DType dtype = DType::F32;      ///< of most bytes of the checkpoint
  int64_t parameters = 0;        ///< elements, shared storage counted once
  int64_t checkpoint_bytes = 0;  ///< of the tensors that are loaded
  std::vector<StackMetadata> stacks;
  std::vector<Part> parts;
  std::string revision;                  ///< hf:// only
  int64_t adapter_elements = 0;          ///< most numbers that a rank keeps for LoRA adapters, beside the parts
  std::optional<DraftNeeds> draft = {};  ///< of the model that drafts for it; nullopt: none does
  bool operator==(const ModelMetadata&) const = default;
};

/// Returns how many layers the runs have.
int64_t layers_in(const std::vector<LayerRun>&);
/// Returns the layouts of a stack: its own, whose `layers` stay empty, then the others. A stack without heads has none.
std::vector<HeadLayout> head_layouts(const StackMetadata&);
/// Returns the number of layers that keep states.
int64_t recurrent_layers(const StackMetadata&);
/// Returns the layers that cache keys and values of layout `number` (0: the stack's own).
int64_t cached_layers(const StackMetadata&, int number);

/// Returns the dtype of keys, values and parameters that are not quantised: `precision`, or when
/// that is quantized the checkpoint's dtype where that is F16 or BF16, else F32.
DType compute_type(const ModelMetadata&, DType precision);
/// Returns the bytes of `units` units of the part in one layer: units x elements x size_of(type), or with
/// quantized weights one byte per element (I4: half a byte, in whole groups) and the scales.
int64_t held_bytes(const ModelMetadata&, const Part&, int64_t units, DType precision);

/// Writes the metadata as compact JSON (short keys, <= 4,096 bytes for every supported family).
nlohmann::json to_json(const ModelMetadata&);
/// Parses metadata as untrusted input: every count is bounded, unknown keys are ignored. Throws std::invalid_argument
/// that names the key.
ModelMetadata metadata_from_json(const nlohmann::json&);

}  // namespace pm
