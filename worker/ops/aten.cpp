// SPDX-License-Identifier: Apache-2.0
// Implements Backend by ATen's operations, for any device that ATen supports.
#include <ATen/ATen.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "worker/ops/backend.h"
#include "worker/ops/bucket_attention.h"
#include "worker/ops/kv_codes.h"
#include "worker/ops/score_bias.h"

namespace pm::ops {

namespace {

constexpr int64_t tile_bytes = int64_t{1} << 20;  // of fp32; a tile stays in the L2 cache

/// Returns the norm of x times weight, plus bias, computed in double and rounded once (see cpu/fused.cpp). LayerNorm:
/// (x - mean) / sqrt(variance + eps); RMSNorm: x / sqrt(mean of x^2 + eps).
at::Tensor normed(const at::Tensor& x, bool subtract_mean, const at::Tensor& weight, double weight_offset,
                  const at::Tensor& bias, double eps, at::ScalarType result) {
  at::Tensor y = x.to(at::kDouble);
  if (subtract_mean) y = y - y.mean(-1, /*keepdim=*/true);
  y = y * (y.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
  if (weight.defined()) y = y * (weight.to(at::kDouble) + weight_offset);
  if (bias.defined()) y = y + bias.to(at::kDouble);
  return y.to(result);
}

/// Replaces x by x + residual, in the type of the residual.
void add_residual(at::Tensor& x, const at::Tensor& residual) {
  x = x.scalar_type() == residual.scalar_type() ? x.add_(residual) : at::add(x, residual).to(residual.scalar_type());
}

/// Returns the attention mask [queries, keys]: true where a query must not attend to a key. It is built for each call
/// from two ranges.
at::Tensor hidden_mask(const SequenceSpan& sequence, const AttentionOptions& options, at::Device device) {
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
  const at::Tensor query = at::arange(sequence.context, sequence.context + sequence.tokens, whole).unsqueeze(1);
  const at::Tensor key = at::arange(0, sequence.keys, whole).unsqueeze(0);
  at::Tensor hidden = at::zeros({sequence.tokens, sequence.keys}, whole.dtype(at::kBool));
  if (options.causal) {
    at::Tensor last = query;
    for (const KeyRange& range : sequence.bidirectional)
      last = at::where((query >= range.begin).logical_and(query < range.end), range.end - 1, last);
    hidden = hidden.logical_or(key > last);
  }
  if (options.window > 0) {
    hidden = hidden.logical_or(key <= query - options.window);
    if (!options.causal) hidden = hidden.logical_or(key >= query + options.window);
  }
  return hidden;
}

/// Returns whether scores of some queries may be computed without the keys that none of them sees.
bool is_windowed(const SequenceSpan& sequence, const AttentionOptions& options) {
  return options.window > 0 && sequence.keys > 4 * options.window &&
         sequence.keys == sequence.context + sequence.tokens && !options.relative_content.defined() &&
         !options.alibi.slopes.defined() && !options.relative_bias.table.defined();
}

/// Adds to scores before they are scaled.
using AddTerms = std::function<void(at::Tensor& scores)>;

/// Attends with the queries of one sequence [queries, heads, d] to its keys and values [kv_heads, keys, d], all fp32;
/// returns [queries, heads, d].
at::Tensor many_queries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& sequence,
                        const AttentionOptions& options, const AddTerms& add_terms,
                        std::vector<at::Tensor>* probabilities) {
  const int64_t heads = q.size(1), kv_heads = k.size(0), d = q.size(2);
  const at::Tensor query = q.permute({1, 0, 2}).reshape({kv_heads, heads / kv_heads * sequence.tokens, d});
  at::Tensor scores = at::bmm(query, k.transpose(1, 2));  // [kv_heads, group x queries, keys]
  scores = scores.reshape({heads, sequence.tokens, sequence.keys});
  if (add_terms) add_terms(scores);
  scores.mul_(options.scale);
  if (options.softcap > 0) scores.div_(options.softcap).tanh_().mul_(options.softcap);
  if (const at::Tensor bias = score_bias(options, sequence.context, sequence.tokens, sequence.keys, q.device());
      bias.defined())
    scores.add_(bias);
  if ((options.causal && sequence.tokens > 1) || options.window > 0) {
    scores.masked_fill_(hidden_mask(sequence, options, q.device()), -std::numeric_limits<float>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1);
  if (options.sinks.defined())  // the share of all keys in a softmax that has the sink, too
    weights.mul_(at::sigmoid(at::logsumexp(scores, -1, /*keepdim=*/true) - options.sinks.view({heads, 1, 1})));
  if (probabilities) probabilities->push_back(options.captures_scores ? scores : weights);
  const at::Tensor out = at::bmm(weights.reshape({kv_heads, heads / kv_heads * sequence.tokens, sequence.keys}), v);
  return out.reshape({heads, sequence.tokens, d}).permute({1, 0, 2});
}

/// As many_queries(), block by block of queries with the keys in their window, so that time and memory grow with the
/// window and not with the square of the length.
at::Tensor windowed_queries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& sequence,
                            const AttentionOptions& options) {
  const int64_t step = std::max<int64_t>(options.window, 64);
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  for (int64_t begin = 0; begin < sequence.tokens; begin += step) {
    const int64_t queries = std::min(step, sequence.tokens - begin), position = sequence.context + begin,
                  from = std::max<int64_t>(0, position - options.window + 1);
    int64_t after = position + queries + (options.causal ? 0 : options.window - 1);
    SequenceSpan block = sequence;
    for (KeyRange& range : block.bidirectional) {
      if (range.begin < position + queries && position < range.end) after = std::max(after, range.end);
      range = {range.begin - from, range.end - from};
    }
    block.tokens = queries;
    block.context = position - from;
    block.keys = std::min(sequence.keys, after) - from;
    out.narrow(0, begin, queries)
        .copy_(many_queries(q.narrow(0, begin, queries), k.narrow(1, from, block.keys), v.narrow(1, from, block.keys),
                            block, options, {}, nullptr));
  }
  return out;
}

}  // namespace

at::Tensor Backend::linear(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& bias,
                           at::ScalarType result) const {
  const at::Tensor x = given.to(at::kFloat);
  if (weight.scalar_type() == at::kFloat)
    return (bias.defined() ? at::addmm(bias.to(at::kFloat), x, weight.t()) : at::mm(x, weight.t())).to(result);
  const int64_t out = weight.size(0), in = weight.size(1);
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  const int64_t rows = std::max<int64_t>(16, tile_bytes / std::max<int64_t>(1, 4 * in));
  for (int64_t first = 0; first < out; first += rows) {
    const int64_t count = std::min(rows, out - first);
    at::Tensor target = y.narrow(1, first, count);
    at::Tensor tile = weight.narrow(0, first, count).to(at::kFloat);
    target.copy_(at::mm(x, tile.t()));
  }
  if (bias.defined()) y.add_(bias);
  return y.to(result);
}

at::Tensor Backend::quantized_linear(const at::Tensor& given, const QuantizedMatrix& w, const at::Tensor& bias,
                                     at::ScalarType result) const {
  const bool rounds = w.layout.input_bits == 8 && given.numel() > 0;
  const at::Tensor x = rounds ? rounded_inputs(given.to(at::kFloat)) : given.to(at::kFloat);
  const int64_t out = w.out(), rows = std::max<int64_t>(16, tile_bytes / std::max<int64_t>(1, 4 * w.layout.in));
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  for (int64_t first = 0; first < out; first += rows) {
    const int64_t count = std::min(rows, out - first);
    y.narrow(1, first, count).copy_(at::mm(x, dequantized(w.rows(first, count)).t()));
  }
  if (bias.defined()) y.add_(bias);
  return y.to(result);
}

at::Tensor Backend::layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                               at::ScalarType result) const {
  return normed(x, true, weight, 0, bias, eps, result);
}
at::Tensor Backend::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                             at::ScalarType result) const {
  return normed(x, false, weight, weight_offset, {}, eps, result);
}

at::Tensor Backend::fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                         const at::Tensor& bias, double eps, at::ScalarType result) const {
  add_residual(x, residual);
  return layer_norm(x, weight, bias, eps, result);
}

at::Tensor Backend::fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                       double weight_offset, at::ScalarType result) const {
  add_residual(x, residual);
  return rms_norm(x, weight, eps, weight_offset, result);
}

Angles Backend::rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const {
  const at::Tensor turn = (positions.to(at::kFloat).unsqueeze(1) * frequencies).unsqueeze(1);
  return {at::cos(turn) * factor, at::sin(turn) * factor};
}

at::Tensor Backend::rotate(const at::Tensor& x, const Angles& angles, bool is_neox) const {
  const int64_t n = angles.cos.size(2), rest = x.size(2) - 2 * n;
  const at::Tensor turned = x.narrow(2, 0, 2 * n);
  const at::Tensor a = is_neox ? turned.narrow(2, 0, n) : turned.unflatten(2, {n, 2}).select(3, 0),
                   b = is_neox ? turned.narrow(2, n, n) : turned.unflatten(2, {n, 2}).select(3, 1);
  const at::Tensor first = a * angles.cos - b * angles.sin, second = b * angles.cos + a * angles.sin;
  at::Tensor y = is_neox ? at::cat({first, second}, 2) : at::stack({first, second}, 3).flatten(2);
  return (rest > 0 ? at::cat({y, x.narrow(2, 2 * n, rest)}, 2) : y).to(x.scalar_type());
}

at::Tensor Backend::silu_and_mul(const at::Tensor& x) const {
  const int64_t width = x.size(1) / 2;
  return at::silu(x.narrow(1, 0, width)) * x.narrow(1, width, width);
}

namespace {

[[noreturn]] void throw_no_sampler(const at::Tensor& scores) {
  throw std::logic_error("device " + scores.device().str() + " has no sampler; sample on the host");
}

}  // namespace

at::Tensor Backend::sample(at::Tensor scores, const SampleBatch&) const { throw_no_sampler(scores); }
at::Tensor Backend::sample(at::Tensor scores, const SamplingBuffers&) const { throw_no_sampler(scores); }
BestScores Backend::best_scores(const at::Tensor& scores) const {
  auto [values, ids] = at::max(scores, 1);
  return {.values = values, .ids = ids};
}

void Backend::write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                       at::Tensor& v_cache) const {
  const at::Tensor block = slots.floor_divide(block_tokens), row = slots.remainder(block_tokens);
  for (const auto& [x, cache] : {std::pair{&k, &k_cache}, std::pair{&v, &v_cache}}) {
    if (holds_codes(*cache))
      write_codes(*x, slots, *cache);
    else
      cache->permute({0, 2, 1, 3}).index_put_({block, row}, x->to(cache->scalar_type()));
  }
}

at::Tensor Backend::rotary_write(const at::Tensor& qkv, int64_t heads, const HeadNorms& norms, const Rotation& rotation,
                                 const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const {
  const int64_t kv_heads = k_cache.size(1), d = head_dim(k_cache);
  const auto part = [&](int64_t first, int64_t count, const std::optional<HeadNorm>& norm, bool turned) {
    at::Tensor x = qkv.narrow(1, first * d, count * d).unflatten(1, {count, d});
    if (norm)
      x = norm->is_rms ? rms_norm(x, norm->weight, norm->eps, norm->weight_offset, x.scalar_type())
                       : layer_norm(x, norm->weight, norm->bias, norm->eps, x.scalar_type());
    return turned && rotation.angles.cos.defined() ? rotate(x, rotation.angles, rotation.is_neox) : x;
  };
  write_kv(part(heads, kv_heads, norms.key, true), part(heads + kv_heads, kv_heads, {}, rotation.rotate_values), slots,
           k_cache, v_cache);
  return part(0, heads, norms.query, true);
}

namespace {

at::Tensor with_bias(const at::Tensor& queries, const at::Tensor& bias) {
  return bias.defined() ? queries + bias : queries;
}

/// Returns what adds the terms of relative positions of sequence `i` to its scores, or nothing where there are none.
AddTerms relative_terms(const RelativeContent& content, size_t i, const at::Tensor& queries, const at::Tensor& keys) {
  if (!content.defined()) return {};
  return [&content, i, queries, keys](at::Tensor& scores) {
    const RelativeSequence& places = content.index->sequences[i];
    add_relative_terms(scores, with_bias(queries, content.key_bias), with_bias(queries, content.segment_bias), keys,
                       content, places);
    if (!places.hidden.defined()) return;
    const at::Tensor blind = places.hidden.all(1, /*keepdim=*/true);
    scores.masked_fill_(places.hidden, -std::numeric_limits<float>::infinity()).masked_fill_(blind, 0);
  };
}

}  // namespace

at::Tensor Backend::ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const StepSequences& sequences, const AttentionOptions& options,
                                     std::vector<at::Tensor>* probabilities) const {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  const RelativeContent& content = options.relative_content;
  for (size_t i = 0; i < sequences.spans.size(); ++i) {
    const SequenceSpan& sequence = sequences.spans[i];
    const at::Tensor queries = q.narrow(0, sequence.first, sequence.tokens).to(at::kFloat),
                     keys = k.narrow(0, sequence.key_row, sequence.keys).permute({1, 0, 2}).to(at::kFloat),
                     values = v.narrow(0, sequence.key_row, sequence.keys).permute({1, 0, 2}).to(at::kFloat);
    out.narrow(0, sequence.first, sequence.tokens)
        .copy_(is_windowed(sequence, options) && !probabilities
                   ? windowed_queries(queries, keys, values, sequence, options)
                   : many_queries(with_bias(queries, content.content_bias), keys, values, sequence, options,
                                  relative_terms(content, i, queries, keys), probabilities));
  }
  return out;
}

at::Tensor Backend::paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                    const StepSequences& sequences, const AttentionOptions& options) const {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  for (size_t i = 0; i < sequences.spans.size(); ++i) attend_many(q, k_cache, v_cache, sequences, i, options, out);
  return out;
}

void Backend::attend_many(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                          const StepSequences& sequences, size_t i, const AttentionOptions& options, at::Tensor& out) {
  const SequenceSpan& sequence = sequences.spans[i];
  const RelativeContent& content = options.relative_content;
  const at::Tensor queries = q.narrow(0, sequence.first, sequence.tokens).to(at::kFloat),
                   k = gathered_blocks(k_cache, sequence), v = gathered_blocks(v_cache, sequence);
  out.narrow(0, sequence.first, sequence.tokens)
      .copy_(is_windowed(sequence, options) ? windowed_queries(queries, k, v, sequence, options)
                                            : many_queries(with_bias(queries, content.content_bias), k, v, sequence,
                                                           options, relative_terms(content, i, queries, k), nullptr));
}

}  // namespace pm::ops
