// SPDX-License-Identifier: Apache-2.0
// Computes the input of the first layer: token, position and further embeddings, the patches of images, or the frames
// of audio.
#pragma once
#include <array>
#include <string>

#include "worker/layers/convolution/convolution.h"
#include "worker/layers/convolution/pixel_input.h"
#include "worker/layers/layers.h"
#include "worker/layers/lookup.h"
#include "worker/layers/state_join.h"
#include "worker/layers/vector_input.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// A vocabulary in clusters: the embeddings of each have a width of their own, and are projected.
class ClusteredTable {
 public:
  ClusteredTable(const policy::Input&, Loader&);
  /// Returns this rank's summand of the projected embeddings [tokens, hidden] F32 of ids [tokens] int64.
  at::Tensor partial(const at::Tensor& ids) const;

 private:
  struct Cluster {
    int64_t first, ids;
    Table table;
    at::Tensor projection;  ///< [hidden, width] F32
  };
  std::vector<Cluster> clusters_;
};

/// A further embedding table of the input.
struct Types {
  std::string key;
  Table table;
  bool given;
};

/// Embeds dense vectors as rows of a stack: projection + position + types.
class Features {
 public:
  /// `tokens` is the position embedding of the tokens.
  Features(const policy::Features&, const policy::Param& tokens, Loader&);
  /// Returns this rank's summand of the position embeddings [vectors, width] F32, zero where another rank has the
  /// row. Positions of tokens are counted from row `offset` on.
  at::Tensor partial(const FeatureRows&, int64_t offset) const;
  /// Returns the embeddings without positions [vectors, width].
  at::Tensor projected(const FeatureRows&) const;

 private:
  Linear projection_;
  int64_t width_;
  std::optional<Table> positions_;
  Table tokens_;
  std::vector<Types> types_;
};

/// Embeds entities as rows of a stack.
class Entities {
 public:
  Entities(const policy::Entities&, Loader&);
  /// Returns this rank's summand of projected ids and mean positions [entities, hidden] F32, zero where other ranks
  /// have the rows.
  at::Tensor partial(const EntityRows&) const;
  /// Returns norm(x + types) of the sum over ranks [entities, hidden].
  at::Tensor normed(const at::Tensor& x, const EntityRows&) const;

 private:
  Table table_;
  std::optional<Linear> projection_;
  Table positions_;
  std::vector<Types> types_;
  std::optional<Norm> norm_;
};

/// Computes norm(scale * token + position + types), projected where the embedding is factorized. Positions after the
/// norm are added last. The norm may come after the projection. The projection may be that of the tokens alone, of
/// trigrams too.
class Input {
 public:
  Input(const policy::Stack&, Loader&);
  /// Returns one row per token: [tokens, hidden] F32. Images give their class and distillation tokens and their
  /// patches; dense vectors have rows of their own. Audio gives the frames of its rows. The rows of streams follow
  /// those of all tokens.
  at::Tensor operator()(const Batch&, comm::Communicator&) const;
  /// Returns the positions that layers add to what queries and keys read [tokens, hidden] F32: of cells or of learned
  /// queries. Undefined where there are none.
  at::Tensor added_positions(const Batch&, comm::Communicator&) const;

 private:
  at::Tensor cells(const Batch&) const;
  at::Tensor patches(const at::Tensor& pixels, const at::Tensor& masked) const;
  at::Tensor resampled_positions(const PatchRows&) const;
  at::Tensor frames(const Batch&) const;
  at::Tensor with_positional_convolution(const at::Tensor& x, const Batch&) const;
  at::Tensor looked_up(const at::Tensor& positions) const;
  at::Tensor with_streams(const at::Tensor& x, int64_t streams) const;
  at::Tensor sinusoids(const at::Tensor& positions) const;
  double scale_;
  std::string token_types_;  ///< key of the batch's types whose token embeddings are added
  int64_t position_offset_, sinusoid_width_ = 0;
  std::array<int64_t, 2> patch_{};  ///< height and width in pixels
  bool position_last_, norm_last_, project_tokens_, trigram_;
  at::Tensor frequencies_;  ///< of sinusoids, [sines] in the type in which angles are computed; undefined: none
  std::optional<Table> token_, position_, patch_position_, axial_rows_, axial_columns_;
  std::optional<ClusteredTable> clusters_;  ///< instead of token_
  int64_t axial_width_ = 0;                 ///< columns of the grid of axial positions
  std::vector<Types> types_;
  std::optional<Features> features_;
  std::optional<Entities> entities_;
  std::optional<Linear> projection_, patch_projection_;
  at::Tensor streams_;       ///< [streams, hidden] F32: what each begins with; undefined: none
  at::Tensor target_;        ///< [hidden] F32: what rows of targets begin with; undefined: there are none
  at::Tensor extra_tokens_;  ///< [1, class and distillation token, hidden]; undefined: none
  at::Tensor mask_token_;    ///< [1, 1, hidden]; undefined: none
  std::optional<VectorInput> vectors_;
  std::optional<Convolutions> convolutions_;
  std::optional<PositionalConvolution> positional_convolution_;
  int64_t hidden_;
  bool sines_of_cells_ = false;
  std::optional<Backbone> backbone_;
  std::optional<PixelInput> pixels_;
  std::optional<Table> grid_rows_, grid_columns_, queries_;
  std::optional<Norm> norm_;
  std::optional<StateJoin> state_join_;
};

}  // namespace pm::layers
