// See attention.h. Two ways: kernels over the blocks for single queries (decode_attention.h), matrix products on gathered keys for many.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <cmath>
#include <limits>

#include "worker/ops/attention.h"
#include "worker/ops/cpu/decode_attention.h"
#include "worker/ops/cpu/score_bias.h"

namespace pm::ops {

namespace {

/// Rows of x [tokens, kv_heads, d], whatever its strides of tokens and heads, to their places in the cache.
template <typename T>
void write(const at::Tensor& given, const int64_t* slots, at::Tensor& cache) {
  const at::Tensor x = given.stride(2) == 1 ? given : given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2);
  const float* from = x.const_data_ptr<float>();
  T* to = cache.mutable_data_ptr<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* row = from + t * x.stride(0) + h * x.stride(1);
      T* place = to + slots[t] / block_tokens * cache.stride(0) + h * cache.stride(1) + slots[t] % block_tokens * d;
      for (int64_t i = 0; i < d; ++i) place[i] = static_cast<T>(row[i]);
    }
  }
}

}  // namespace

void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) {
  const at::Tensor places = slots.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, k_cache.scalar_type(), "write_kv", [&] {
    write<scalar_t>(k, places.const_data_ptr<int64_t>(), k_cache);
    write<scalar_t>(v, places.const_data_ptr<int64_t>(), v_cache);
  });
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
  if (options.softcap > 0) scores.div_(options.softcap).tanh_().mul_(options.softcap);
  if (const at::Tensor bias = score_bias(options, sequence.context, sequence.tokens, sequence.keys); bias.defined()) scores.add_(bias);
  if ((options.causal && sequence.tokens > 1) || options.window > 0) {
    scores.masked_fill_(hidden_mask(sequence, options), -std::numeric_limits<float>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1);
  if (probabilities) probabilities->push_back(weights);
  const at::Tensor out = at::bmm(weights.reshape({kv_heads, heads / kv_heads * sequence.tokens, sequence.keys}), v);
  return out.reshape({heads, sequence.tokens, d}).permute({1, 0, 2});
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
  if (!single.empty()) decode_attention(q, k_cache, v_cache, single, biases, options, out);
  return out;
}

}  // namespace pm::ops
