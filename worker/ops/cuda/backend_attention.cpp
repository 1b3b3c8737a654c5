// SPDX-License-Identifier: Apache-2.0
// Attention of the CUDA backend. The attention metadata of a step is copied to the device once, for all layers.
#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/ops/attention_metadata.h"
#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/backend.h"

namespace pm::ops::cuda {

namespace {

constexpr int64_t max_head_dim = 512;

Element element(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? Element::F16 : x.scalar_type() == at::kBFloat16 ? Element::BF16 : Element::F32;
}

/// The rows of a metadata buffer as the kernels read them.
struct DeviceMetadata {
  const int32_t* base;  ///< on the device
  int64_t sequences, table_stride;
  const int32_t* row(MetadataRow row, int64_t from) const { return base + row * sequences + from; }
  const int32_t* tables(int64_t from) const { return base + MetadataRows * sequences + from * table_stride; }
};

DeviceMetadata device_metadata(const StepSequences& sequences, void* (*address)(const void*)) {
  const AttentionMetadata& metadata = sequences.metadata;
  if (!metadata.buffer.defined())
    throw std::logic_error(std::to_string(sequences.spans.size()) +
                           " sequences have no attention metadata; call make_attention_metadata() before the first "
                           "layer");
  return {.base = static_cast<const int32_t*>(address(metadata.buffer.const_data_ptr())),
          .sequences = static_cast<int64_t>(sequences.spans.size()),
          .table_stride = metadata.table_stride};
}

/// Converts the options for the kernels; tensors in `kept` must live until the launch is queued.
Scores scores_of(const AttentionOptions& options, at::Device device, std::vector<at::Tensor>& kept,
                 void* (*address)(const void*)) {
  Scores scores{.scale = static_cast<float>(options.scale),
                .softcap = static_cast<float>(options.softcap),
                .causal = options.causal,
                .window = options.window};
  if (options.alibi.slopes.defined()) {
    kept.push_back(options.alibi.slopes.contiguous());
    scores.slopes = static_cast<const float*>(address(kept.back().const_data_ptr()));
    scores.slopes_scaled = options.alibi.scaled;
    scores.slopes_bf16 = options.alibi.bf16;
  }
  if (options.relative_bias.table.defined()) {
    const RelativePositionBias& buckets = options.relative_bias;
    const at::Tensor distance =
        at::arange(-buckets.max_distance, buckets.max_distance + 1, at::TensorOptions(at::kLong).device(device));
    const at::Tensor bucket =
        relative_buckets(distance, buckets.table.size(0), buckets.max_distance, buckets.bidirectional);
    kept.push_back(at::index_select(buckets.table.to(at::kFloat), 0, bucket).t().contiguous());
    scores.relative = static_cast<const float*>(address(kept.back().const_data_ptr()));
    scores.reach = buckets.max_distance;
  }
  return scores;
}

}  // namespace

AttentionMetadata CudaBackend::attention_metadata(std::span<const SequenceSpan> sequences, at::Device device) const {
  AttentionMetadata metadata;
  for (const SequenceSpan& sequence : sequences) {
    metadata.single += sequence.tokens == 1;
    metadata.max_tokens = std::max(metadata.max_tokens, sequence.tokens);
    metadata.max_keys = std::max(metadata.max_keys, sequence.keys);
    if (!sequence.blocks.empty()) metadata.table_stride = std::max(metadata.table_stride, blocks_for(sequence.keys));
  }
  const auto count = static_cast<int64_t>(sequences.size());
  at::Tensor host = at::empty({metadata_size(count, metadata.table_stride)}, at::kInt);
  pack_metadata(sequences, count, metadata.table_stride, host.mutable_data_ptr<int32_t>());
  metadata.buffer = host.to(device);
  return metadata;
}

at::Tensor CudaBackend::ragged_attention(const at::Tensor& given_q, const at::Tensor& given_k,
                                         const at::Tensor& given_v, const StepSequences& sequences,
                                         const AttentionOptions& options,
                                         std::vector<at::Tensor>* probabilities) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2);
  if (probabilities || d > max_head_dim)
    return Backend::ragged_attention(given_q, given_k, given_v, sequences, options, probabilities);
  const at::Tensor q = given_q.contiguous(), k = given_k.contiguous(), v = given_v.contiguous();
  at::Tensor out = at::empty_like(q);
  if (sequences.spans.empty()) return out;
  const DeviceMetadata all = device_metadata(sequences, hooks_.address);
  std::vector<at::Tensor> kept;
  PrefillAttention p{.q = address(q),
                     .q_stride = heads * d,
                     .out = address(out),
                     .k = address(k),
                     .v = address(v),
                     .paged = false,
                     .k_stride = k.stride(0)};
  p.first = all.row(MetadataFirst, 0), p.tokens = all.row(MetadataTokens, 0), p.contexts = all.row(MetadataContexts, 0),
  p.keys = all.row(MetadataKeys, 0), p.key_rows = all.row(MetadataKeyRows, 0);
  p.sequences = all.sequences, p.max_tokens = sequences.metadata.max_tokens, p.heads = heads, p.kv_heads = k.size(1),
  p.d = d;
  p.scores = scores_of(options, q.device(), kept, hooks_.address);
  prefill_attention(p, stream(q));
  return out;
}

at::Tensor CudaBackend::paged_attention(const at::Tensor& given_q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                        const StepSequences& sequences, const AttentionOptions& options) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2), kv_heads = k_cache.size(1);
  if (d > max_head_dim) return Backend::paged_attention(given_q, k_cache, v_cache, sequences, options);
  const at::Tensor q = given_q.contiguous();
  at::Tensor out = at::empty_like(q);
  if (sequences.spans.empty()) return out;
  const DeviceMetadata all = device_metadata(sequences, hooks_.address);
  const int64_t single = sequences.metadata.single;
  std::vector<at::Tensor> kept;
  const Scores scores = scores_of(options, q.device(), kept, hooks_.address);
  if (single > 0) {
    DecodeAttention p{.q = address(q), .q_stride = heads * d, .out = address(out)};
    p.k_cache = address(k_cache), p.v_cache = address(v_cache), p.block_stride = k_cache.stride(0),
    p.cache = element(k_cache);
    p.tables = all.tables(0), p.table_stride = all.table_stride, p.keys = all.row(MetadataKeys, 0),
    p.contexts = all.row(MetadataContexts, 0), p.rows = all.row(MetadataFirst, 0);
    p.sequences = single, p.heads = heads, p.kv_heads = kv_heads, p.d = d, p.scores = scores;
    p.splits = decode_splits(p, sequences.metadata.max_keys, hooks_.multiprocessors(q.device()));
    if (p.splits > 1) {
      kept.push_back(at::empty({decode_parts(p)}, q.options()));
      p.parts = address<float>(kept.back());
    }
    decode_attention(p, stream(q));
  }
  if (single < all.sequences) {
    // With 16-bit keys the queries are rounded to the type of the keys, which tensor cores require.
    const bool narrow = k_cache.scalar_type() != at::kFloat;
    const at::Tensor query = narrow ? q.to(k_cache.scalar_type()) : q;
    at::Tensor result = narrow ? at::empty_like(query) : out;
    const int64_t from = single;
    PrefillAttention p{.q = address(query),
                       .q_stride = heads * d,
                       .out = address(result),
                       .type = element(query),
                       .k = address(k_cache),
                       .v = address(v_cache)};
    p.keys_type = element(k_cache), p.paged = true, p.k_stride = k_cache.stride(0), p.tables = all.tables(from),
    p.table_stride = all.table_stride;
    p.first = all.row(MetadataFirst, from), p.tokens = all.row(MetadataTokens, from),
    p.contexts = all.row(MetadataContexts, from), p.keys = all.row(MetadataKeys, from);
    p.sequences = all.sequences - from, p.max_tokens = sequences.metadata.max_tokens, p.heads = heads,
    p.kv_heads = kv_heads, p.d = d, p.scores = scores;
    prefill_attention(p, stream(q));
    if (narrow) {
      for (const SequenceSpan& sequence : sequences.spans) {
        if (sequence.tokens > 1)
          out.narrow(0, sequence.first, sequence.tokens).copy_(result.narrow(0, sequence.first, sequence.tokens));
      }
    }
  }
  return out;
}

}  // namespace pm::ops::cuda
