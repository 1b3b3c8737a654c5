// See attention.h. Two ways: a fused pass over the blocks for single queries (decode), matrix products on gathered keys for many.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "worker/ops/attention.h"
#include "worker/ops/cpu/score_bias.h"

namespace pm::ops {

void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) {
  const at::Tensor block = at::floor_divide(slots, block_tokens), offset = at::remainder(slots, block_tokens);
  // index [tokens], slice, index [tokens]: ATen puts the indexed dimensions first, giving [tokens, kv_heads, d]
  k_cache.index_put_({block, at::indexing::Slice(), offset}, k.to(k_cache.scalar_type()));
  v_cache.index_put_({block, at::indexing::Slice(), offset}, v.to(v_cache.scalar_type()));
}

namespace {

/// Keys or values of one sequence as fp32 [kv_heads, length, d].
at::Tensor gather(const at::Tensor& cache, const SequenceSpan& sequence) {
  const int64_t length = sequence.keys, blocks = (length + block_tokens - 1) / block_tokens;
  const at::Tensor table = at::from_blob(const_cast<int32_t*>(sequence.blocks.data()), {blocks}, at::kInt);
  at::Tensor taken = at::index_select(cache, 0, table).to(at::kFloat);              // [blocks, kv_heads, 16, d]
  taken = taken.permute({1, 0, 2, 3}).reshape({cache.size(1), blocks * block_tokens, cache.size(3)});
  return taken.narrow(1, 0, length);
}

/// True where a query may not look: [queries, keys]. Made per call from two ranges; nothing is kept.
at::Tensor hidden_mask(const SequenceSpan& sequence, const AttentionOptions& options) {
  const at::Tensor query = at::arange(sequence.context, sequence.context + sequence.tokens, at::kLong).unsqueeze(1);
  const at::Tensor key = at::arange(0, sequence.keys, at::kLong).unsqueeze(0);
  at::Tensor hidden = at::zeros({sequence.tokens, sequence.keys}, at::kBool);
  if (options.causal) hidden = hidden.logical_or(key > query);
  if (options.window > 0) hidden = hidden.logical_or(key <= query - options.window);
  return hidden;
}

/// Queries of one sequence [queries, heads, d] against its keys and values [kv_heads, keys, d]; returns [queries, heads, d].
at::Tensor many_queries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& sequence, const AttentionOptions& options,
                        std::vector<at::Tensor>* probabilities) {
  const int64_t heads = q.size(1), kv_heads = k.size(0), d = q.size(2);
  const at::Tensor query = q.permute({1, 0, 2}).reshape({kv_heads, heads / kv_heads * sequence.tokens, d});
  at::Tensor scores = at::bmm(query, k.transpose(1, 2)).mul_(options.scale);             // [kv_heads, group x queries, keys]
  scores = scores.reshape({heads, sequence.tokens, sequence.keys});
  if (const at::Tensor bias = score_bias(options, sequence.context, sequence.tokens, sequence.keys); bias.defined()) scores.add_(bias);
  if ((options.causal && sequence.tokens > 1) || options.window > 0) {
    scores.masked_fill_(hidden_mask(sequence, options), -std::numeric_limits<float>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1);
  if (probabilities) probabilities->push_back(weights);
  const at::Tensor out = at::bmm(weights.reshape({kv_heads, heads / kv_heads * sequence.tokens, sequence.keys}), v);
  return out.reshape({heads, sequence.tokens, d}).permute({1, 0, 2});
}

/// One query of one head: an online softmax over the blocks. `k`, `v`: this head's part of a block is [16, d] at block * stride.
/// `bias`: what is added to the score of each key; nullptr: nothing.
template <typename T>
void one_query(const float* q, const T* k, const T* v, int64_t block_stride, const SequenceSpan& sequence, int64_t begin, double scale,
               const float* bias, int64_t d, float* out) {
  const int64_t length = sequence.keys;
  float best = -std::numeric_limits<float>::infinity(), sum = 0;
  std::fill(out, out + d, 0.f);
  float scores[block_tokens];
  for (int64_t start = begin / block_tokens * block_tokens; start < length; start += block_tokens) {
    const int64_t base = sequence.blocks[static_cast<size_t>(start / block_tokens)] * block_stride;
    const int64_t from = std::max(begin - start, int64_t{0}), to = std::min(block_tokens, length - start);
    float block_best = best;
    for (int64_t t = from; t < to; ++t) {
      const T* key = k + base + t * d;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t i = 0; i < d; ++i) dot += q[i] * static_cast<float>(key[i]);
      scores[t] = static_cast<float>(dot * scale) + (bias ? bias[start + t] : 0.f);
      block_best = std::max(block_best, scores[t]);
    }
    const float rescale = std::exp(best - block_best);   // 0 for the first block
    sum *= rescale;
    for (int64_t i = 0; i < d; ++i) out[i] *= rescale;
    best = block_best;
    for (int64_t t = from; t < to; ++t) {
      const float weight = std::exp(scores[t] - best);
      const T* value = v + base + t * d;
      sum += weight;
      for (int64_t i = 0; i < d; ++i) out[i] += weight * static_cast<float>(value[i]);
    }
  }
  for (int64_t i = 0; i < d; ++i) out[i] /= sum;
}

}  // namespace

at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::span<const SequenceSpan> sequences,
                            const AttentionOptions& options, std::vector<at::Tensor>* probabilities) {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  for (const SequenceSpan& sequence : sequences) {
    const at::Tensor keys = k.narrow(0, sequence.key_row, sequence.keys).permute({1, 0, 2}), values = v.narrow(0, sequence.key_row, sequence.keys).permute({1, 0, 2});
    out.narrow(0, sequence.first, sequence.tokens).copy_(many_queries(q.narrow(0, sequence.first, sequence.tokens), keys, values, sequence, options, probabilities));
  }
  return out;
}

at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, std::span<const SequenceSpan> sequences,
                           const AttentionOptions& options) {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  std::vector<const SequenceSpan*> single;
  std::vector<at::Tensor> biases;   // of the single ones: [heads, keys]
  for (const SequenceSpan& sequence : sequences) {
    if (sequence.tokens != 1) {
      const at::Tensor k = gather(k_cache, sequence), v = gather(v_cache, sequence);
      out.narrow(0, sequence.first, sequence.tokens).copy_(many_queries(q.narrow(0, sequence.first, sequence.tokens), k, v, sequence, options, nullptr));
      continue;
    }
    single.push_back(&sequence);
    const at::Tensor bias = score_bias(options, sequence.context, 1, sequence.keys);
    biases.push_back(bias.defined() ? bias.squeeze(1).contiguous() : bias);
  }
  if (single.empty()) return out;
  const at::Tensor queries = q.contiguous();
  const int64_t heads = q.size(1), kv_heads = k_cache.size(1), d = q.size(2), head_stride = block_tokens * d;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, k_cache.scalar_type(), "paged_attention", [&] {
    const auto* k = k_cache.const_data_ptr<scalar_t>();
    const auto* v = v_cache.const_data_ptr<scalar_t>();
    const float* from = queries.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    at::parallel_for(0, static_cast<int64_t>(single.size()) * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto which = static_cast<size_t>(i / heads);
        const SequenceSpan& sequence = *single[which];
        const int64_t head = i % heads, offset = (sequence.first * heads + head) * d, kv = head / (heads / kv_heads) * head_stride;
        const int64_t first = options.window > 0 ? std::max<int64_t>(0, sequence.context + 1 - options.window) : 0;
        const float* bias = biases[which].defined() ? biases[which].const_data_ptr<float>() + head * sequence.keys : nullptr;
        one_query(from + offset, k + kv, v + kv, kv_heads * head_stride, sequence, first, options.scale, bias, d, to + offset);
      }
    });
  });
  return out;
}

}  // namespace pm::ops
