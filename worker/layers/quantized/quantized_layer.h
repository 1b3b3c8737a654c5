// SPDX-License-Identifier: Apache-2.0
// The input, the attention and the feed-forward block of a stack in integer-only inference, each with its residual sum
// and its norm. Steps are those of transformers' models/ibert/modeling_ibert.py.
#pragma once
#include "worker/layers/batch.h"
#include "worker/layers/quantized/quantized_linear.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// LayerNorm whose result has integers of 8 bits.
class QuantizedNorm {
 public:
  /// Without a shift it computes in floating point.
  QuantizedNorm(const policy::Norm&, const std::optional<policy::Param>& shift, const policy::ActivationRange& output,
                Loader&);
  ops::ScaledIntegers operator()(const ops::ScaledIntegers& sum) const;

 private:
  double eps_;
  at::Tensor weight_, bias_, shift_, output_scale_;
};

/// Computes norm(token + type + position).
class QuantizedInput {
 public:
  QuantizedInput(const policy::Input&, Loader&);
  /// Returns one row per token: [tokens, hidden] F32.
  at::Tensor operator()(const Batch&, comm::Communicator&) const;

 private:
  int64_t position_offset_;
  std::string types_key_;
  QuantizedTable token_, position_, types_;
  at::Tensor sum_scale_;
  QuantizedNorm norm_;
};

/// norm(x + out(softmax(q k / sqrt(head_dim)) v)).
class QuantizedAttention {
 public:
  QuantizedAttention(const policy::Attention&, Loader&);
  /// `states` [tokens, hidden] are taken by the scale of the stack's input.
  ops::ScaledIntegers operator()(const at::Tensor& states, const Batch&, comm::Communicator&) const;

 private:
  at::Tensor shares(const at::Tensor& scores, const at::Tensor& score_scale) const;
  ops::ScaledIntegers attended(const ops::ScaledIntegers& q, const ops::ScaledIntegers& k, const ops::ScaledIntegers& v,
                               const Batch&, comm::Communicator&) const;
  int64_t heads_, head_dim_;
  std::vector<int64_t> heads_of_rank_;  ///< for gathering attentions
  at::Tensor input_scale_, query_scale_, key_scale_, value_scale_, heads_scale_, sum_scale_;
  at::Tensor exponent_scale_;  ///< undefined: the softmax computes in floating point
  QuantizedColumns in_;        ///< stacked q, k, v
  QuantizedRows out_;
  QuantizedNorm norm_;
};

/// norm(x + down(gelu(up(x)))).
class QuantizedMlp {
 public:
  QuantizedMlp(const policy::Mlp&, Loader&);
  ops::ScaledIntegers operator()(const ops::ScaledIntegers& x, comm::Communicator&) const;

 private:
  bool float_activation_;
  at::Tensor input_scale_, activation_scale_, down_scale_, sum_scale_;
  QuantizedColumns up_;
  QuantizedRows down_;
  QuantizedNorm norm_;
};

/// A layer of both blocks.
class QuantizedLayer {
 public:
  QuantizedLayer(const policy::Layer&, Loader&);
  /// [tokens, hidden] F32 -> same.
  at::Tensor operator()(const at::Tensor& states, const Batch&, comm::Communicator&) const;

 private:
  QuantizedAttention attention_;
  QuantizedMlp mlp_;
};

}  // namespace pm::layers
