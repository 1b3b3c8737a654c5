// See backend.h: attention. Lengths, places and tables of a step's sequences go to the device once, for all layers.
#include <ATen/ATen.h>

#include <algorithm>

#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/backend.h"
#include "worker/ops/packed.h"

namespace pm::ops::cuda {

namespace {

constexpr int64_t most_head_dim = 512;

Element element(const at::Tensor& x) { return x.scalar_type() == at::kHalf ? Element::F16 : x.scalar_type() == at::kBFloat16 ? Element::BF16 : Element::F32; }

/// What the kernels read of a step's sequences.
struct Packed {
  const int32_t* base;               ///< on the device
  int64_t sequences, single, most_tokens, most_keys, table_stride;
  const int32_t* row(PackedRow row, int64_t from) const { return base + row * sequences + from; }
  const int32_t* tables(int64_t from) const { return base + PackedRows * sequences + from * table_stride; }
};

Packed packed(const Sequences& sequences, const at::Device& device, void* (*address)(const void*)) {
  Packed all{nullptr, static_cast<int64_t>(sequences.size()), 0, 0, sequences.longest, blocks_of_keys(sequences.longest)};
  for (const SequenceSpan& sequence : sequences) {
    all.single += sequence.tokens == 1;
    all.most_tokens = std::max(all.most_tokens, sequence.tokens);
    all.most_keys = std::max(all.most_keys, sequence.keys);
    if (!sequence.blocks.empty()) all.table_stride = std::max(all.table_stride, blocks_of_keys(sequence.keys));
  }
  if (!sequences.on_device.defined()) {
    at::Tensor host = at::empty({packed_size(all.sequences, all.table_stride)}, at::kInt);
    pack(sequences, all.sequences, all.table_stride, host.mutable_data_ptr<int32_t>());
    sequences.on_device = host.to(device);
  }
  all.base = static_cast<const int32_t*>(address(sequences.on_device.const_data_ptr()));
  return all;
}

/// What options add to scores; tensors in `kept` live as long as the launch is being queued.
Scores scores_of(const AttentionOptions& options, at::Device device, std::vector<at::Tensor>& kept, void* (*address)(const void*)) {
  Scores scores{.scale = static_cast<float>(options.scale), .softcap = static_cast<float>(options.softcap), .causal = options.causal, .window = options.window};
  if (options.alibi.slopes.defined()) {
    kept.push_back(options.alibi.slopes.contiguous());
    scores.slopes = static_cast<const float*>(address(kept.back().const_data_ptr()));
    scores.slopes_scaled = options.alibi.scaled;
    scores.slopes_bf16 = options.alibi.bf16;
  }
  if (options.buckets.table.defined()) {
    const BucketedBias& buckets = options.buckets;
    const at::Tensor distance = at::arange(-buckets.far, buckets.far + 1, at::TensorOptions(at::kLong).device(device));
    const at::Tensor bucket = relative_buckets(distance, buckets.table.size(0), buckets.far, buckets.bidirectional);
    kept.push_back(at::index_select(buckets.table.to(at::kFloat), 0, bucket).t().contiguous());
    scores.relative = static_cast<const float*>(address(kept.back().const_data_ptr()));
    scores.reach = buckets.far;
  }
  return scores;
}

}  // namespace

at::Tensor Kernels::ragged_attention(const at::Tensor& given_q, const at::Tensor& given_k, const at::Tensor& given_v, const Sequences& sequences, const AttentionOptions& options,
                                     std::vector<at::Tensor>* probabilities) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2);
  if (probabilities || d > most_head_dim) return Backend::ragged_attention(given_q, given_k, given_v, sequences, options, probabilities);
  const at::Tensor q = given_q.contiguous(), k = given_k.contiguous(), v = given_v.contiguous();
  at::Tensor out = at::empty_like(q);
  if (sequences.empty()) return out;
  const Packed all = packed(sequences, q.device(), host_.address);
  std::vector<at::Tensor> kept;
  PrefillAttention p{.q = address(q), .q_stride = heads * d, .out = address(out), .k = address(k), .v = address(v), .paged = false, .k_stride = k.stride(0)};
  p.first = all.row(PackedFirst, 0), p.tokens = all.row(PackedTokens, 0), p.contexts = all.row(PackedContexts, 0), p.keys = all.row(PackedKeys, 0), p.key_rows = all.row(PackedKeyRows, 0);
  p.sequences = all.sequences, p.most_tokens = all.most_tokens, p.heads = heads, p.kv_heads = k.size(1), p.d = d;
  p.scores = scores_of(options, q.device(), kept, host_.address);
  prefill_attention(p, stream(q));
  return out;
}

at::Tensor Kernels::paged_attention(const at::Tensor& given_q, const at::Tensor& k_cache, const at::Tensor& v_cache, const Sequences& sequences, const AttentionOptions& options) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2), kv_heads = k_cache.size(1);
  if (d > most_head_dim) return Backend::paged_attention(given_q, k_cache, v_cache, sequences, options);
  const at::Tensor q = given_q.contiguous();
  at::Tensor out = at::empty_like(q);
  if (sequences.empty()) return out;
  const Packed all = packed(sequences, q.device(), host_.address);
  std::vector<at::Tensor> kept;
  const Scores scores = scores_of(options, q.device(), kept, host_.address);
  if (all.single > 0) {
    DecodeAttention p{.q = address(q), .q_stride = heads * d, .out = address(out)};
    p.k_cache = address(k_cache), p.v_cache = address(v_cache), p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
    p.tables = all.tables(0), p.table_stride = all.table_stride, p.keys = all.row(PackedKeys, 0), p.contexts = all.row(PackedContexts, 0), p.rows = all.row(PackedFirst, 0);
    p.sequences = all.single, p.heads = heads, p.kv_heads = kv_heads, p.d = d, p.scores = scores;
    p.splits = decode_splits(all.single, heads, kv_heads, all.most_keys, host_.processors(q.device()));
    if (p.splits > 1) {
      kept.push_back(at::empty({decode_parts(p)}, q.options()));
      p.parts = address<float>(kept.back());
    }
    decode_attention(p, stream(q));
  }
  if (all.single < all.sequences) {
    // with 16-bit keys the queries are of their type too, which is what tensor cores take
    const bool narrow = k_cache.scalar_type() != at::kFloat;
    const at::Tensor query = narrow ? q.to(k_cache.scalar_type()) : q;
    at::Tensor result = narrow ? at::empty_like(query) : out;
    const int64_t from = all.single;
    PrefillAttention p{.q = address(query), .q_stride = heads * d, .out = address(result), .type = element(query), .k = address(k_cache), .v = address(v_cache)};
    p.keys_type = element(k_cache), p.paged = true, p.k_stride = k_cache.stride(0), p.tables = all.tables(from), p.table_stride = all.table_stride;
    p.first = all.row(PackedFirst, from), p.tokens = all.row(PackedTokens, from), p.contexts = all.row(PackedContexts, from), p.keys = all.row(PackedKeys, from);
    p.sequences = all.sequences - from, p.most_tokens = all.most_tokens, p.heads = heads, p.kv_heads = kv_heads, p.d = d, p.scores = scores;
    prefill_attention(p, stream(q));
    if (narrow) {
      for (const SequenceSpan& sequence : sequences) {
        if (sequence.tokens > 1) out.narrow(0, sequence.first, sequence.tokens).copy_(result.narrow(0, sequence.first, sequence.tokens));
      }
    }
  }
  return out;
}

}  // namespace pm::ops::cuda
