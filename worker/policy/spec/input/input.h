// SPDX-License-Identifier: Apache-2.0
// The input of a stack: embeddings of tokens or patches, frames of audio, positions, further tables, dense vectors.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/activation_ranges.h"
#include "worker/policy/spec/convolution.h"
#include "worker/policy/spec/cross_block.h"
#include "worker/policy/spec/input/clusters.h"
#include "worker/policy/spec/input/dense_vectors.h"
#include "worker/policy/spec/input/entities.h"
#include "worker/policy/spec/input/image_tokens.h"
#include "worker/policy/spec/input/images.h"
#include "worker/policy/spec/input/index_table.h"
#include "worker/policy/spec/input/joined_states.h"
#include "worker/policy/spec/input/layer_inputs.h"
#include "worker/policy/spec/input/patch_grid.h"
#include "worker/policy/spec/input/pixels.h"
#include "worker/policy/spec/input/targets.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The kind of position embedding. Sinusoids are computed: sines of all frequencies, then cosines. Paper (Vaswani et
/// al. 2017): frequency i of n is 10000^(-i / n). Tensor2Tensor: 10000^(-i / (n - 1)), in F32 as fairseq computes it.
/// Axial: of AxialPositions.
enum class PositionKind : uint8_t { None, Learned, Axial, Paper, Tensor2Tensor };

/// Dense vectors of a request that are appended to the tokens of their row (VisualBERT's regions of an image). They
/// are projected, and position and type embeddings are added as for tokens.
struct Features {
  Linear projection;               ///< [embedding, width of a vector]
  std::string input, mask;         ///< names in the request: vectors [rows, vectors, width], mask [rows, vectors]
  std::optional<Param> positions;  ///< its first row is added to each vector
  std::string align;  ///< what the request calls positions of tokens [rows, vectors, positions], -1: none, whose rows'
                      ///< mean is added; empty: there are none
  std::vector<IndexTable> tables;  ///< indices [rows, vectors]
};

/// Positions in rows of a grid: position p has row p / columns of one table and row p % columns of another beside it
/// (Kitaev et al., "Reformer", 2020).
struct AxialPositions {
  Param rows;     ///< [rows of the grid, width of the first part]
  Param columns;  ///< [columns of the grid, the other part]
};

struct Input {
  std::optional<Param> token;
  std::vector<TokenCluster> clusters;  ///< of the vocabulary; empty: `token` has all of it
  std::string prefix;  ///< of the request's tensors input_ids and attention_mask ("context_"); empty: none
  double scale = 1;
  std::string token_types;  ///< the request's tensor of ids [rows, length] whose token embeddings are added to those of
                            ///< the tokens (GPT-2's token_type_ids); empty: none
  PositionKind position = PositionKind::None;
  std::optional<Param> positions;
  std::optional<AxialPositions> axial;
  int64_t position_offset = 0;  ///< rows of the table that lie before position 0
  bool position_skips_padding =
      false;  ///< positions count the tokens that are not padding (RoBERTa, MPNet); else columns of the batch
  bool position_reset_per_cell = false;  ///< positions restart in each cell of a table; columns 1 and 2 of
                                         ///< token_type_ids give its column and row (TAPAS)
  bool position_ids_are_rows =
      false;  ///< position_ids of a request are rows of the table and include the offset (RoBERTa, MPNet)
  bool position_after_norm =
      false;  ///< added after the norm and the projection (BlenderbotSmall's decoder, OPT-350m), else before
  std::vector<IndexTable> tables;
  std::optional<Features> features;
  std::optional<Entities> entities;
  std::optional<Linear> projection;  ///< factorized embedding (ALBERT), patches (ViT, CLIP: [hidden, channels, height,
                                     ///< width]; with a patch_grid: [hidden, channels, frames, height, width])
  std::optional<PatchGrid> patch_grid;  ///< the stack reads images of any size
  std::array<int64_t, 2> image{};       ///< height and width in pixels of the images that the stack reads; 0: none
  std::optional<Param> class_token, distillation_token;  ///< in this order before the patches
  std::optional<Param> mask_token;  ///< stands in place of the patches that a request masks, for heads of pixels
  bool project_tokens = false;      ///< the projection is of the token embeddings alone, before positions and tables
  bool trigram = false;  ///< what is projected are the embeddings of the next token, the token and the previous one,
                         ///< beside each other; zero beyond the ends of a row
  /// [streams, hidden]: the rows of streams beside the main one, which predict following tokens (ProphetNet). Stream i
  /// begins with the position of the next token and row i - 1; stream 0 with the last row.
  std::optional<Param> streams;
  std::optional<Targets> targets;  ///< rows behind the tokens for those that are to be predicted
  std::optional<Norm> norm;
  bool norm_projected = false;               ///< the norm comes after the projection (DeBERTa), else before
  std::optional<Vectors> vectors;            ///< the stack reads dense vectors, and nothing else
  std::optional<Convolutions> convolutions;  ///< the stack reads audio: frames are what tokens are elsewhere
  std::optional<PositionalConvolution> positional_convolution;  ///< after the norm and the projection
  std::optional<Backbone> backbone;  ///< the stack reads images of any size: cells are what tokens are elsewhere
  std::optional<GridPosition> grid;  ///< positions of cells, as of `queries`: layers add them to what queries and keys
                                     ///< read, and not to the states
  std::optional<Param> queries;      ///< [count, hidden]: the positions of learned queries, whose states begin as zeros
  std::optional<Pixels> pixels;      ///< the stack reads images, and nothing else
  std::optional<LayerInputs> layer_inputs;    ///< what layers read of the tokens beside their states
  std::optional<QuantizedInput> quantized;    ///< rows and their sums are integers, and so are all layers of the stack
  std::optional<Latents> latents;             ///< what reads the rows and has the stack's layers in their place
  std::optional<JoinedStates> joined_states;  ///< stand beside the embeddings of tokens
  std::optional<ImageTokens> images;          ///< tokens in whose place rows of another stack stand
  /// Returns true for a stack whose layers add positions to what queries and keys read.
  bool adds_positions() const { return grid || queries; }
  /// Returns true for a stack of images or audio.
  bool reads_media() const { return !token && !queries && !vectors; }
  /// Returns true for a stack of images that have one size, as patches.
  bool reads_images() const { return !patch_grid && reads_patches(); }
  /// Returns true for a stack of patches of images.
  bool reads_patches() const { return projection && projection->weight.shape.size() >= 4; }
  /// Returns the number of streams beside the main one.
  int64_t stream_count() const { return streams && !streams->shape.empty() ? streams->shape[0] : 0; }
  /// Returns the number of vectors before the patches of an image.
  int64_t extra_tokens() const { return (class_token ? 1 : 0) + (distillation_token ? 1 : 0); }

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
