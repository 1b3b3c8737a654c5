// One stack of layers, whatever its kind: encoder, decoder, text or vision tower.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "worker/layers/attention.h"
#include "worker/layers/input.h"
#include "worker/layers/layers.h"
#include "worker/policy/model.h"

namespace pm::models {

/// One rank's share of a stack, or of those layers of it that a pipeline's stage has.
class Stack {
 public:
  /// The layers [begin, end); the first comes with the stack's input, the last with its output.
  Stack(const policy::Stack&, Range layers, layers::Loader&);
  /// States after the stage's last layer, of the stack's last after the final norm and projection: [tokens, hidden] fp32, the same on every rank. `x`: what the
  /// stage before made of the rows; undefined where the stack begins. `cache`: keys and values are kept; else attention stays inside the
  /// batch. `source`: what cross-attention looks at, needed where layers have it.
  at::Tensor operator()(at::Tensor x, const layers::Batch&, layers::KvCache* cache, const layers::Source* source, comm::Communicator&) const;
  /// Which layers these are, and whether the stack's output is here.
  const Range& range() const { return range_; }
  bool ends() const { return ends_; }
  /// The pooled vectors of pooled states [sequences, hidden], as the stack's pooler makes them.
  at::Tensor pooled(const at::Tensor& states) const;

 private:
  struct Cross {
    layers::Attention attention;
    std::optional<layers::Norm> norm;
  };
  struct Layer {
    policy::Order order;
    bool residual_normed;
    std::optional<layers::Norm> attention_norm, mlp_norm, attention_post_norm, mlp_post_norm;
    layers::Attention attention;
    std::optional<Cross> cross;
    layers::Mlp mlp;
    Layer(const policy::Layer&, layers::Loader&);
    void operator()(layers::Residual& state, const layers::Batch&, layers::LayerCache, const layers::Source*, comm::Communicator&) const;
    void parallel(layers::Residual& state, const layers::Batch&, layers::LayerCache, comm::Communicator&) const;
  };
  Range range_;
  bool ends_;
  std::optional<layers::Input> input_;
  std::vector<Layer> layers_;
  std::optional<layers::Norm> norm_, pooler_norm_;
  bool raw_states_;
  std::optional<layers::Linear> projection_, pooler_dense_;
  std::string pooler_activation_;
};

}  // namespace pm::models
