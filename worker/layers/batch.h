// SPDX-License-Identifier: Apache-2.0
// The rows of one step for a stack: the tokens of all sequences one after another, without padding, and what to
// capture.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/ops/bucket_attention.h"
#include "worker/ops/sparse_attention.h"

namespace pm::layers {

/// What a forward pass captures beside its result. Hidden states are [tokens, hidden] in Hugging Face's order: the
/// input of each layer, then the last state. attention[layer][sequence] is [heads, queries, keys], gathered on rank
/// 0; cross likewise. Where the rows are of several streams, hidden states have the rows of all, cross-attention the
/// queries of all, and `streams` has what those beside the main one saw in self-attention [heads, streams, queries,
/// keys + 1]. Sparse attention captures ops::SparseProbabilities: what each query sees under `attention`, and
/// with a sliding window what global tokens see under `global`.
struct Capture {
  bool hidden_states = false, attentions = false, features = false;
  std::vector<at::Tensor> hidden;
  std::vector<std::vector<at::Tensor>> attention, cross, global, streams;
  at::Tensor audio_features;  ///< [frames, channels]: the normalized frames of audio before their projection
  bool feature_maps = false;
  std::vector<std::vector<at::Tensor>> maps;  ///< maps[level][request], [images, channels, rows, columns]: of each
                                              ///< stage of a backbone but the last, then the projected cells
};

/// Dense vectors among the rows of a stack; they follow the tokens of their sequence.
struct FeatureRows {
  at::Tensor values;  ///< [vectors, width] fp32; undefined: there are none
  at::Tensor rows;    ///< [vectors] int64: which of the batch's rows each is
  std::map<std::string, at::Tensor>
      types;  ///< [vectors] int64 for each of the features' tables by its key; -1: adds nothing
  at::Tensor aligned, positions, shares;  ///< [pairs]: number of a vector, position of a token, by what that one's row
                                          ///< is multiplied; undefined: none
};

/// Entities among the rows of a stack; they follow the tokens of their sequence.
struct EntityRows {
  at::Tensor ids;                           ///< [entities] int64; undefined: there are none
  at::Tensor rows;                          ///< [entities] int64: which of the batch's rows each is
  std::map<std::string, at::Tensor> types;  ///< [entities] int64 for each of the entities' tables by its key
  at::Tensor mentioned, positions, shares;  ///< [pairs]: number of an entity, a position, by what its row is multiplied
};

/// The audio of one request: samples [rows, samples] or filter banks [rows, frames, bins], fp32, with their padding.
struct Audio {
  at::Tensor values;
  int64_t frames = 0;  ///< that the convolutions make of a row
};

/// The images of one request, all padded to one size.
struct Pictures {
  at::Tensor pixels;  ///< [images, channels, height, width] fp32
  at::Tensor cells;   ///< [images, rows, columns] bool: which cells are no padding; these are rows of the batch
};

/// The rows of a table of relative positions that a batch reads: `count` from row `first` of the table on.
struct RelativeRows {
  at::Tensor states;  ///< [rows, hidden] F32; undefined: layers have vectors in their place
  int64_t first = 0, count = 0;
  ops::RelativeIndex index;
};

/// Rows that stand in place of the embeddings of tokens: those of images among them.
struct PlacedRows {
  at::Tensor places;  ///< [rows] int64, rows of the batch; undefined: there are none
  at::Tensor values;  ///< [rows, hidden] F32
};

/// Patches of images of any size, and what the grids of these say of them (policy::PatchGrid). Those of a window stand
/// beside each other.
struct PatchRows {
  at::Tensor values;              ///< [patches, numbers of a patch] fp32; undefined: the stack reads none
  at::Tensor table_rows, shares;  ///< [patches, 4]: rows of the table of positions, and by what each is multiplied
  at::Tensor squares;             ///< [squares] int64: the number that each square has in the request
};

/// Keys and values [tokens, kv heads, head_dim] of a step that later layers read, by the number of their layer.
using SharedKeys = std::map<int64_t, std::pair<at::Tensor, at::Tensor>>;

/// The rows of a stack. A sequence of audio has its first frames; the first `keys` of them are no padding.
struct Batch {
  at::Tensor tokens;     ///< [tokens] int64, -1 for a target (policy::Targets); undefined for a stack of images
  at::Tensor positions;  ///< [tokens] int64, before the table's offset
  at::Tensor axes;       ///< [tokens, axes] int64: positions along policy::RotaryAxes; undefined: those of a token are
                         ///< all its position
  at::Tensor long_rows;  ///< [tokens] bool: rotated as tokens of a long sequence wherever they stand
                         ///< (policy::LongRope); undefined: those at positions beyond the original length are
  std::map<std::string, at::Tensor>
      types;  ///< [tokens] int64 for each further table of the input by its key (token_type_ids); -1: adds nothing
  FeatureRows features;       ///< in whose rows tokens, positions and types mean nothing
  EntityRows entities;        ///< likewise
  PlacedRows images;          ///< where the stack's input begins (policy::ImageTokens)
  at::Tensor states;          ///< [tokens, hidden] F32: those that the input joins (policy::JoinedStates)
  PatchRows patches;          ///< of images of any size; every image is one sequence
  at::Tensor pixels;          ///< [images, channels, height, width] fp32; every image is one sequence
  at::Tensor masked_patches;  ///< [images, patches] bool: policy::Input::mask_token; undefined: the class masks none
  std::vector<Audio> audio;   ///< of each request; every row is one sequence
  std::vector<Pictures> pictures;   ///< of each request, for a stack with a backbone; every image is one sequence
  std::vector<at::Tensor> vectors;  ///< [rows, width] fp32 of each part of dense vectors that stand in place of tokens
  at::Tensor added_positions;  ///< [tokens, hidden] F32, made by the stack: layers add them to what queries and keys
                               ///< read; undefined: none
  at::Tensor
      slots;  ///< [tokens] int64: block * 16 + offset of the KV cache; undefined: attention inside the rows, no cache
  ops::StepSequences sequences;
  ops::StepSequences patch_windows;           ///< of patches, for layers within windows (policy::PatchGrid::window)
  std::vector<int64_t> state_slots;           ///< of each sequence in the recurrent states; empty: none is kept
  std::vector<ops::SequenceColumns> columns;  ///< for sparse attention, relative positions by content, buckets of
                                              ///< distances and convolutions; empty: no sequence is padded or has
                                              ///< global tokens
  std::vector<int64_t> prompts;    ///< of each sequence: how many of its tokens came at once, before those that came
                                   ///< one after another, for attention in chunks; empty: all came at once
  std::vector<at::Tensor> hidden;  ///< of each sequence: ops::RelativeSequence::hidden; empty: all are seen
  int64_t streams = 0;  ///< that predict following tokens; the states of each have a row per token, behind all rows of
                        ///< the main stream
  RelativeRows relative;                      ///< made by the stack on its device
  std::vector<ops::SequenceBuckets> buckets;  ///< likewise
  std::vector<Batch> joined;       ///< of a stack that joins two: the sequences of each, which see themselves;
                                   ///< those of the batch see their counterparts
  std::vector<at::Tensor> memory;  ///< of each layer [sequences x length, hidden] F32: policy::Memory; empty: zeros
  at::Tensor keyed;    ///< [rows, hidden]: what keys and values read where it is not what queries read: in a layer that
                       ///< pools queries only, and behind a memory; else undefined
  at::Tensor skipped;  ///< [tokens, hidden] F32: states that came to an earlier layer, for one that upsamples
  at::Tensor layer_inputs;  ///< [tokens, layers, width] F32: policy::LayerInputs, made by the stage that has the
                            ///< stack's input; undefined: there are none
  SharedKeys* shared_keys = nullptr;  ///< of layers that later ones read, where these do not read a cache; null: all do
  std::map<int64_t, at::Tensor> deep;  ///< [patches, hidden] F32: states behind layers that deep projectors read
  Capture* capture = nullptr;

  /// Moves the tensors to another device.
  Batch on(at::Device) &&;
};

/// What cross-attention reads. Without a cache: `states` with one span per sequence of the batch. With a cache: the
/// spans' blocks, after keys and values of `states`, if any, were written to `slots`.
struct Source {
  at::Tensor states;           ///< [source tokens, hidden]
  at::Tensor added_positions;  ///< [source tokens, hidden]: added to what keys read; undefined: none
  at::Tensor slots;            ///< [source tokens] int64
  ops::StepSequences sequences;

  Source on(at::Device) &&;
};

}  // namespace pm::layers
