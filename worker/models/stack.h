// SPDX-License-Identifier: Apache-2.0
// Runs one stack of layers: an encoder, a decoder, a text or a vision tower.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "worker/layers/attention.h"
#include "worker/layers/bottleneck.h"
#include "worker/layers/convolution/convolution.h"
#include "worker/layers/feed_forward/image_projector.h"
#include "worker/layers/feed_forward/mlp.h"
#include "worker/layers/input.h"
#include "worker/layers/layers.h"
#include "worker/layers/patterns/cross_block.h"
#include "worker/layers/patterns/latent_attention.h"
#include "worker/layers/per_layer_inputs.h"
#include "worker/layers/quantized/quantized_layer.h"
#include "worker/layers/recurrent/recurrent_block.h"
#include "worker/layers/rotary.h"
#include "worker/layers/rows/memory_rows.h"
#include "worker/layers/rows/pooling.h"
#include "worker/models/reversible_layer.h"
#include "worker/models/two_stream_layer.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// One rank's shard of a stack, or of the layers that a pipeline stage has.
class Stack {
 public:
  /// Loads the layers [begin, end). The first layer comes with the stack's input, the last with its output.
  Stack(const policy::Stack&, Range layers, layers::Loader&);
  /// Returns the states after the stage's last layer, or after the final norm and projection where the stack ends:
  /// [tokens, hidden] in F32, the same on every rank; the rows of the batch's streams follow. `x` has the states of the
  /// stage before; undefined where the stack begins, but for one that joins two others: then it has their states, one
  /// behind the other. Two residual streams stand beside each other. With `cache`, keys and values are appended to it;
  /// without, attention stays inside the batch. Layers that pool or upsample change the batch's rows; states that a
  /// later one adds are left in `skipped` of the batch, where the stage before has to have left them; so are rows of
  /// the input that read the latents. `source` is what cross-attention reads. Makes the attention metadata of both.
  /// Between the layers activations have the types of layers::ActivationTypes; states are cast where they come in and
  /// where they leave.
  at::Tensor operator()(at::Tensor x, layers::Batch&, layers::KvCache* cache, layers::Source* source,
                        comm::Communicator&) const;
  /// The layers of this shard, and whether the stack's output is among them.
  const Range& range() const { return range_; }
  bool ends() const { return ends_; }
  /// Returns what the cross-attention of other stacks reads of the stack's states [tokens, hidden].
  at::Tensor source(const at::Tensor& states) const;
  /// Returns what images are among the tokens of another stack: [rows, hidden of that one x (1 + deep projectors)] F32
  /// of the states of the batch's images, the rows of an image one after another.
  at::Tensor image_rows(const at::Tensor& states, const layers::Batch&) const;
  /// Applies the stack's pooler to pooled states [sequences, hidden].
  at::Tensor pooled(const at::Tensor& states) const;

 private:
  at::Tensor with_latents(at::Tensor x, layers::Batch&, at::Device, comm::Communicator&) const;
  at::Tensor queried(const at::Tensor& states, const std::vector<ops::SequenceSpan>& input, layers::Batch&,
                     comm::Communicator&) const;
  at::Tensor run_reversible(const at::Tensor& x, const layers::Batch&, layers::KvCache*, comm::Communicator&) const;
  struct Cross {
    layers::Attention attention;
    std::optional<layers::Norm> norm;
  };
  /// A feed-forward block between attention and the layer's last one.
  struct Feed {
    layers::Mlp mlp;
    std::optional<layers::Norm> norm;
  };
  /// A feed-forward block that reads the same residual as the layer's last one.
  struct Beside {
    std::optional<layers::Norm> first_norm, norm;
    layers::Mlp mlp;
    std::optional<layers::Norm> post_norm;
    Beside(const policy::BesideMlp&, layers::Loader&);
  };
  static std::vector<Feed> feeds_of(const std::vector<policy::Mlp>&, layers::Loader&);
  /// The parts stand in the order in which a forward pass uses their weights.
  struct Layer {
    layers::ActivationTypes types;
    policy::Order order;
    bool residual_normed;
    double residual_multiplier;
    std::optional<layers::Norm> attention_norm, mlp_norm, attention_post_norm, mlp_post_norm;
    std::optional<layers::InputBottleneck> input_bottleneck;
    std::optional<size_t> rotary;  ///< index in the stack's table
    std::optional<layers::Attention> attention;
    std::unique_ptr<const layers::RecurrentBlock> recurrent;  ///< in place of attention
    std::optional<layers::LatentAttention> latent_attention;  ///< likewise
    std::optional<Cross> cross;
    std::vector<Feed> stacked;
    std::optional<layers::Mlp> mlp;
    std::optional<Beside> beside;
    std::optional<layers::LayerInput> input;
    at::Tensor factor;  ///< of the states that leave the layer, one number in F32; undefined: none
    int64_t number;     ///< in the stack
    std::optional<layers::OutputBottleneck> output_bottleneck;
    std::optional<layers::ConvolutionBranch> branch;
    Layer(const policy::Layer&, int64_t number, layers::ActivationTypes, layers::Loader&, layers::RotaryTable&);
    void operator()(layers::Residual& state, const layers::Batch&, const ops::Rotation&, layers::LayerCache,
                    const layers::Source*, comm::Communicator&) const;
    const layers::RowLinear& out() const {
      return recurrent ? recurrent->out() : latent_attention ? latent_attention->out() : attention->out();
    }
    at::Tensor mixed(const at::Tensor& x, const at::Tensor& values, const layers::Batch&, const ops::Rotation&,
                     layers::LayerCache, comm::Communicator&) const;
    at::Tensor fed_forward(const at::Tensor& normed, layers::Residual& state, comm::Communicator&) const;
    void parallel(layers::Residual& state, const layers::Batch&, const ops::Rotation&, layers::LayerCache,
                  comm::Communicator&) const;
    /// Returns what keys and values read of a memory and the state that comes to the layer.
    at::Tensor keyed(const layers::MemoryRows&, const at::Tensor& memories, layers::Residual& state) const;
  };
  /// The rows of the batch as layers pool and upsample them; empty where none does.
  struct Rows {
    layers::PooledRows tokens, here;
  };
  Rows rows_at_begin(const layers::Batch&) const;
  bool is_read_later(int64_t layer) const;
  void add_deep_images(int64_t layer, const layers::PlacedRows&, layers::Residual& state) const;
  void take_shared_keys(const layers::Batch&, layers::KvCache*) const;
  void resize(size_t layer, Rows&, layers::Residual& state, layers::Batch&, comm::Communicator&) const;
  void set_rows(const layers::PooledRows& queries, const layers::PooledRows& keys, layers::Batch&, at::Device,
                comm::Communicator&) const;
  const policy::Stack& policy_;
  Range range_;
  bool ends_, resizes_;
  layers::ActivationTypes types_;
  std::optional<layers::Input> input_;
  std::optional<layers::QuantizedInput> quantized_input_;  ///< instead of input_
  std::optional<layers::LayerInputs> layer_inputs_;
  std::optional<layers::Latents> latents_;
  layers::RotaryTable rotaries_;
  std::optional<layers::RelativeTable> relative_;  ///< of all layers
  std::optional<ops::BucketShape> buckets_;        ///< likewise
  std::vector<Layer> layers_;
  std::vector<TwoStreamLayer> two_streams_;        ///< instead of layers_, of a stack that joins two
  std::vector<ReversibleLayer> reversible_;        ///< instead of layers_, of two residual streams
  std::vector<layers::QuantizedLayer> quantized_;  ///< instead of layers_, of a stack that computes in integers
  std::optional<layers::OutputQueries> queries_;
  std::optional<layers::Norm> norm_, pooler_norm_;
  bool raw_states_;
  std::optional<layers::Linear> projection_, cross_projection_, pooler_dense_;
  std::optional<policy::Activation> pooler_activation_;
  std::optional<layers::ImageProjector> image_projector_;
  std::vector<layers::ImageProjector> deep_projectors_;
};

}  // namespace pm::models
