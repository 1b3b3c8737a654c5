// What goes into the first layer: tokens, positions and further tables, or the patches of images.
#pragma once
#include "worker/layers/layers.h"

namespace pm::layers {

/// Rows of a table that ranks share out by ranges; a rank looks up its own rows, and the sum over ranks is the table (Megatron's
/// VocabParallelEmbedding).
class Table {
 public:
  Table(const policy::Param&, Loader&);
  /// [tokens] int64 -> [tokens, width] fp32, zero where another rank has the row.
  at::Tensor partial(const at::Tensor& rows) const;

 private:
  Weight table_;
  Range rows_;
  bool whole_;
};

/// A further table of the input.
struct Types { std::string key; Table table; bool given; };

/// Dense vectors as rows of a stack: projection + position + types.
class Features {
 public:
  /// `tokens`: the table of the tokens' positions.
  Features(const policy::Features&, const policy::Param& tokens, Loader&);
  /// Of a rank: rows of tables of positions, zero where another rank has them [vectors, width] fp32. Those of tokens are counted from row `offset` on.
  at::Tensor partial(const FeatureRows&, int64_t offset) const;
  /// All but the positions [vectors, width].
  at::Tensor projected(const FeatureRows&) const;

 private:
  Linear projection_;
  int64_t width_;
  std::optional<Table> positions_;
  Table tokens_;
  std::vector<Types> types_;
};

/// norm(scale * token + position + types), projected where the embedding is factorised; or without the position, which is added last.
class Input {
 public:
  Input(const policy::Stack&, Loader&);
  /// One row per token: [tokens, hidden] fp32; for images their class and distillation tokens and their patches, row by row;
  /// dense vectors in rows of their own.
  at::Tensor operator()(const Batch&, comm::Communicator&) const;

 private:
  at::Tensor patches(const at::Tensor& pixels) const;
  at::Tensor looked_up(const at::Tensor& positions) const;
  at::Tensor sinusoids(const at::Tensor& positions) const;
  double scale_;
  int64_t position_offset_, patch_ = 0;
  bool position_last_;
  at::Tensor frequencies_;   ///< of sinusoids, [width / 2] in the type in which angles are computed; undefined: none
  std::optional<Table> token_, position_;
  std::vector<Types> types_;
  std::optional<Features> features_;
  std::optional<Linear> projection_, patch_projection_;
  at::Tensor extra_tokens_;   ///< [1, class and distillation token, hidden]; undefined: none
  std::optional<Norm> norm_;
};

}  // namespace pm::layers
