// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/quantized/quantized_layer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "worker/base/error.h"

namespace pm::layers {

namespace {

constexpr int bits = 8, embedding_bits = 16, exponent_bits = 16, sum_bits = 22;

/// Refuses a range of exponents in which keys that a mask hides, at 2^-30 of the largest exponent, would not be zero:
/// they are no rows of a batch here. That of a calibrated model is about the largest exponent.
void expect_calibrated(const policy::ActivationRange& range, const at::Tensor& exponent_scale,
                       const at::Tensor& score_scale) {
  const double least = 2.8 / std::pow(score_scale.item<double>(), 2);  // the integer of 2^-30
  if (exponent_scale.item<double>() > 4 * least) return;
  throw Error(Reason::ModelUnreadable,
              "the range of exponents in " + range.high.tensor->name + " is too small for the ranges of queries and " +
                  "keys, as before calibration; run the model in training mode with quant_mode first, which measures " +
                  "the ranges");
}

}  // namespace

QuantizedNorm::QuantizedNorm(const policy::Norm& norm, const std::optional<policy::Param>& shift,
                             const policy::ActivationRange& output, Loader& loader)
    : eps_(norm.eps),
      weight_(loader.load(norm.weight.value())),
      bias_(loader.load(norm.bias.value())),
      shift_(shift ? loader.load(*shift) : at::Tensor()),
      output_scale_(activation_scale(output, bits, loader)) {}

ops::ScaledIntegers QuantizedNorm::operator()(const ops::ScaledIntegers& sum) const {
  if (!shift_.defined()) {  // operation by operation as in transformers, for what is rounded after it
    const at::Tensor centered = sum.values - sum.values.mean(-1, /*keepdim=*/true);
    const at::Tensor variance = at::pow(centered, 2).mean(-1, /*keepdim=*/true);
    return ops::rounded(centered / at::sqrt(variance + eps_) * weight_ + bias_, bits, output_scale_);
  }
  return ops::rescaled(ops::integer_layer_norm(sum, weight_, bias_, shift_), bits, output_scale_);
}

QuantizedInput::QuantizedInput(const policy::Input& input, Loader& loader)
    : position_offset_(input.position_offset),
      types_key_(input.tables.at(0).key()),
      token_(input.token.value(), loader),
      position_(input.positions.value(), loader),
      types_(input.tables.at(0).table, loader),
      sum_scale_(activation_scale(input.quantized->sum, embedding_bits, loader)),
      norm_(input.norm.value(), input.quantized->shift, input.quantized->output, loader) {}

at::Tensor QuantizedInput::operator()(const Batch& batch, comm::Communicator& comm) const {
  const at::Tensor token = token_.partial(batch.tokens),
                   position = position_.partial(batch.positions + position_offset_);
  at::Tensor both = at::cat({token, position}, 1);  // one reduction for both tables
  if (comm.size() > 1) comm.all_reduce(both);
  const std::vector<at::Tensor> rows = both.chunk(2, 1);
  const ops::ScaledIntegers types{types_.partial(batch.types.at(types_key_)), types_.scale()};
  const ops::ScaledIntegers sum = ops::rescaled_sum({rows[0], token_.scale()}, types, embedding_bits, sum_scale_);
  return norm_(ops::rescaled_sum(sum, {rows[1], position_.scale()}, embedding_bits, sum_scale_)).values;
}

QuantizedAttention::QuantizedAttention(const policy::Attention& attention, Loader& loader)
    : heads_(loader.range(attention.query.weight).size()),
      head_dim_(attention.head_dim),
      input_scale_(activation_scale(attention.quantized->input, bits, loader)),
      query_scale_(activation_scale(attention.quantized->query, bits, loader)),
      key_scale_(activation_scale(attention.quantized->key, bits, loader)),
      value_scale_(activation_scale(attention.quantized->value, bits, loader)),
      heads_scale_(activation_scale(attention.quantized->heads, bits, loader)),
      sum_scale_(activation_scale(attention.quantized->sum, sum_bits, loader)),
      in_({&attention.query, &attention.key, &attention.value}, loader),
      out_(attention.out, loader),
      norm_(attention.norm.value(), attention.quantized->shift, attention.quantized->output, loader) {
  for (int rank = 0; rank < loader.partition().ranks(); ++rank)
    heads_of_rank_.push_back(policy::rank_range(attention.query.weight, loader.partition(), rank).size());
  const auto& exponents = attention.quantized->exponents;
  if (!exponents) return;
  exponent_scale_ = activation_scale(*exponents, exponent_bits, loader);
  expect_calibrated(*exponents, exponent_scale_, query_scale_ * key_scale_ / std::sqrt(static_cast<double>(head_dim_)));
}

at::Tensor QuantizedAttention::shares(const at::Tensor& scores, const at::Tensor& score_scale) const {
  return exponent_scale_.defined() ? ops::integer_softmax({scores, score_scale}, exponent_scale_)
                                   : at::softmax(scores, -1);
}

/// Returns what this rank's heads see [tokens, heads x head_dim], each sequence of its own keys.
ops::ScaledIntegers QuantizedAttention::attended(const ops::ScaledIntegers& q, const ops::ScaledIntegers& k,
                                                 const ops::ScaledIntegers& v, const Batch& batch,
                                                 comm::Communicator& comm) const {
  const double root = std::sqrt(static_cast<double>(head_dim_));
  const at::Tensor score_scale = q.scale * k.scale / root;
  std::vector<at::Tensor> results, captured;
  for (const ops::SequenceSpan& span : batch.sequences.spans) {
    const auto own = [&](const at::Tensor& rows) {
      return rows.narrow(0, span.first, span.tokens).reshape({span.tokens, heads_, head_dim_}).transpose(0, 1);
    };
    const at::Tensor scores = at::matmul(own(q.values), own(k.values).transpose(1, 2)) / root;
    const at::Tensor seen = shares(scores, score_scale);
    results.push_back(at::matmul(seen, own(v.values)).transpose(0, 1).reshape({span.tokens, heads_ * head_dim_}));
    if (batch.capture && batch.capture->attentions)
      captured.push_back(comm.gatherv(seen.contiguous(), heads_of_rank_, 0));
  }
  if (!captured.empty()) batch.capture->attention.push_back(std::move(captured));
  const at::Tensor result = at::cat(results);
  if (!exponent_scale_.defined()) return ops::rounded(result, bits, heads_scale_);
  return ops::rescaled({result, v.scale / ops::softmax_steps}, bits, heads_scale_);
}

ops::ScaledIntegers QuantizedAttention::operator()(const at::Tensor& states, const Batch& batch,
                                                   comm::Communicator& comm) const {
  const ops::ScaledIntegers x{states, input_scale_};
  const ops::ScaledIntegers all = in_(x);
  const int64_t width = heads_ * head_dim_;
  const auto part = [&](int64_t number, const at::Tensor& scale) {
    return ops::rescaled({all.values.narrow(1, number * width, width), all.scale.narrow(0, number * width, width)},
                         bits, scale);
  };
  const ops::ScaledIntegers q = part(0, query_scale_), k = part(1, key_scale_), v = part(2, value_scale_);
  return norm_(ops::rescaled_sum(out_(attended(q, k, v, batch, comm), comm), x, sum_bits, sum_scale_));
}

QuantizedMlp::QuantizedMlp(const policy::Mlp& mlp, Loader& loader)
    : float_activation_(mlp.quantized->float_activation),
      input_scale_(activation_scale(mlp.quantized->input, bits, loader)),
      activation_scale_(activation_scale(mlp.quantized->activation, bits, loader)),
      down_scale_(activation_scale(mlp.quantized->down, bits, loader)),
      sum_scale_(activation_scale(mlp.quantized->sum, sum_bits, loader)),
      up_({&std::get<policy::DenseMlp>(mlp.kind).up}, loader),
      down_(mlp.down(), loader),
      norm_(mlp.norm.value(), mlp.quantized->shift, mlp.quantized->output, loader) {}

ops::ScaledIntegers QuantizedMlp::operator()(const ops::ScaledIntegers& attended, comm::Communicator& comm) const {
  const ops::ScaledIntegers x = ops::rescaled(attended, bits, input_scale_);
  const ops::ScaledIntegers up = up_(x);
  const ops::ScaledIntegers inner = float_activation_ ? ops::rounded(at::gelu(up.values), bits, activation_scale_)
                                                      : ops::rescaled(ops::integer_gelu(up), bits, activation_scale_);
  return norm_(ops::rescaled_sum(down_(ops::rescaled(inner, bits, down_scale_), comm), x, sum_bits, sum_scale_));
}

QuantizedLayer::QuantizedLayer(const policy::Layer& layer, Loader& loader)
    : attention_(layer.attention, loader), mlp_(layer.mlp, loader) {}

at::Tensor QuantizedLayer::operator()(const at::Tensor& states, const Batch& batch, comm::Communicator& comm) const {
  return mlp_(attention_(states, batch, comm), comm).values;
}

}  // namespace pm::layers
