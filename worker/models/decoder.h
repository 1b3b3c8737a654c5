// The decoder topology: token and position embeddings, layers of self-attention and MLP, final norm, language-model head.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "worker/layers/layers.h"
#include "worker/policy/model.h"

namespace pm::models {

/// One rank's share of a decoder-only model.
class Decoder {
 public:
  /// Loads the rank's parameters. Throws Error{Model, "UnknownArchitecture"} for a topology or block option that this version does not run.
  Decoder(const policy::Model&, layers::Loader&);
  /// Runs all tokens of the batch; returns the hidden states after the final norm [tokens, hidden], fp32, the same on every rank.
  at::Tensor forward(const layers::Batch&, layers::KvCache&, comm::Communicator&) const;
  /// Absent for the bare model (GPT2Model).
  const layers::LogitsHead* logits() const { return logits_ ? &*logits_ : nullptr; }

  /// Throws as the constructor when `model` cannot run; reads nothing.
  static void check(const policy::Model& model);

 private:
  struct Layer {
    policy::Order order;
    std::optional<layers::Norm> attention_norm, mlp_norm;
    layers::SelfAttention attention;
    layers::Mlp mlp;
    Layer(const policy::Layer&, layers::Loader&);
    at::Tensor operator()(const at::Tensor& x, const layers::Batch&, at::Tensor& keys, at::Tensor& values, comm::Communicator&) const;
  };
  at::Tensor embed(const layers::Batch&, comm::Communicator&) const;

  double scale_;
  layers::TokenEmbedding token_;
  at::Tensor positions_;
  int64_t position_offset_;
  std::optional<layers::Norm> input_norm_, output_norm_;
  std::vector<Layer> layers_;
  std::optional<layers::LogitsHead> logits_;
};

}  // namespace pm::models
