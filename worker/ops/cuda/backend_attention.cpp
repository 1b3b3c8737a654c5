// SPDX-License-Identifier: Apache-2.0
// Attention of the CUDA backend. The attention metadata of a step is copied to the device once, for all layers. Several
// queries of a sequence go to PyTorch's FlashAttention where it has the options, else to the kernels of this folder.
#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "worker/ops/attention_metadata.h"
#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/backend.h"

namespace pm::ops::cuda {

namespace {

constexpr int64_t max_head_dim = 512;
constexpr int64_t max_tensor_core_head_dim = 256;  // of FlashAttention, too

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
  if (options.sinks.defined()) {
    kept.push_back(options.sinks.contiguous());
    scores.sinks = static_cast<const float*>(address(kept.back().const_data_ptr()));
  }
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

/// Returns whether attention is bidirectional within some tokens, which no kernel here has.
bool has_bidirectional_ranges(const StepSequences& sequences) {
  return std::any_of(sequences.spans.begin(), sequences.spans.end(),
                     [](const SequenceSpan& sequence) { return !sequence.bidirectional.empty(); });
}

/// Attends with the queries of a batch, q [tokens, heads, d], to k, v [keys, kv_heads, d] of the same 16-bit type.
/// Returns [tokens, heads, d] of that type.
at::Tensor flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const VarlenBatch& batch,
                           const AttentionMetadata& metadata, const AttentionOptions& options) {
  const at::Tensor query_starts = metadata.buffer.narrow(0, batch.query_starts, batch.sequences + 1),
                   key_starts = metadata.buffer.narrow(0, batch.key_starts, batch.sequences + 1);
  // With one query for each sequence PyTorch would split the keys, and the sums would depend on the other sequences.
  const int64_t max_tokens = std::max<int64_t>(batch.max_tokens, 2);
  const int64_t before =
      options.window > 0 ? options.window - 1 : -1;  // tokens in sight before the query, and after it; -1: all
  return std::get<0>(at::_flash_attention_forward(q, k, v, query_starts, key_starts, max_tokens, batch.max_keys,
                                                  /*dropout_p=*/0, options.causal, /*return_debug_mask=*/false,
                                                  options.scale, before, options.causal ? 0 : before));
}

}  // namespace

PrefillPath prefill_path(const AttentionOptions& options, at::ScalarType type, int64_t head_dim, bool ends_with_queries,
                         int compute_capability) {
  const bool narrow = type == at::kHalf || type == at::kBFloat16;
  if (!narrow || compute_capability < 80 || head_dim % 8 != 0 || head_dim > max_tensor_core_head_dim)
    return PrefillPath::Fp32;
  const bool adds = options.softcap > 0 || options.alibi.slopes.defined() || options.relative_bias.table.defined() ||
                    options.sinks.defined();
  const bool needs_positions = options.causal || options.window > 0;
  return adds || (needs_positions && !ends_with_queries) ? PrefillPath::TensorCores : PrefillPath::Flash;
}

AttentionMetadata CudaBackend::attention_metadata(std::span<const SequenceSpan> sequences, at::Device device) const {
  AttentionMetadata metadata;
  for (const SequenceSpan& sequence : sequences) {
    metadata.single += sequence.tokens == 1;
    metadata.max_tokens = std::max(metadata.max_tokens, sequence.tokens);
    metadata.max_keys = std::max(metadata.max_keys, sequence.keys);
    if (!sequence.blocks.empty()) metadata.table_stride = std::max(metadata.table_stride, blocks_for(sequence.keys));
  }
  const auto count = static_cast<int64_t>(sequences.size());
  const int64_t size = metadata_size(count, metadata.table_stride);
  std::vector<int32_t> starts;
  metadata.varlen = varlen_batches(sequences, size, starts);
  metadata.ends_with_queries = std::all_of(
      sequences.begin(), sequences.end(), [](const SequenceSpan& one) { return one.keys == one.context + one.tokens; });
  at::Tensor host = at::empty({size + static_cast<int64_t>(starts.size())}, at::kInt);
  pack_metadata(sequences, count, metadata.table_stride, host.mutable_data_ptr<int32_t>());
  std::copy(starts.begin(), starts.end(), host.mutable_data_ptr<int32_t>() + size);
  metadata.buffer = host.to(device);
  return metadata;
}

at::Tensor CudaBackend::ragged_attention(const at::Tensor& given_q, const at::Tensor& given_k,
                                         const at::Tensor& given_v, const StepSequences& sequences,
                                         const AttentionOptions& options,
                                         std::vector<at::Tensor>* probabilities) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2);
  if (probabilities || d > max_head_dim || options.relative_content.defined() || has_bidirectional_ranges(sequences))
    return Backend::ragged_attention(given_q, given_k, given_v, sequences, options, probabilities);
  at::Tensor out = at::empty(given_q.sizes(), given_q.options());
  if (sequences.spans.empty()) return out;
  const DeviceMetadata all = device_metadata(sequences, hooks_.address);
  const AttentionMetadata& metadata = sequences.metadata;
  const at::ScalarType given = given_q.scalar_type(), type = given == at::kFloat ? options.compute_type : given;
  const PrefillPath path =
      prefill_path(options, type, d, metadata.ends_with_queries, hooks_.compute_capability(given_q.device()));
  if (path == PrefillPath::Flash) {
    const auto rows = [type](const at::Tensor& x, int64_t first, int64_t count) {
      return x.narrow(0, first, count).to(type);
    };
    for (const VarlenBatch& batch : metadata.varlen) {
      out.narrow(0, batch.first, batch.tokens)
          .copy_(flash_attention(rows(given_q, batch.first, batch.tokens), rows(given_k, batch.key_row, batch.keys),
                                 rows(given_v, batch.key_row, batch.keys), batch, metadata, options));
    }
    return out;
  }
  const auto whole = [&](const at::Tensor& x) {
    return (path == PrefillPath::TensorCores ? x.to(type) : x).contiguous();
  };
  const at::Tensor q = whole(given_q), k = whole(given_k), v = whole(given_v);
  std::vector<at::Tensor> kept;
  PrefillAttention p{.q = address(q),
                     .q_stride = heads * d,
                     .out = address(out),
                     .type = element(q),
                     .out_type = element(out),
                     .k = address(k),
                     .v = address(v),
                     .keys_type = element(k),
                     .paged = false,
                     .k_stride = k.stride(0)};
  p.first = all.row(MetadataFirst, 0), p.tokens = all.row(MetadataTokens, 0), p.contexts = all.row(MetadataContexts, 0),
  p.keys = all.row(MetadataKeys, 0), p.key_rows = all.row(MetadataKeyRows, 0);
  p.sequences = all.sequences, p.max_tokens = metadata.max_tokens, p.heads = heads, p.kv_heads = k.size(1), p.d = d;
  p.scores = scores_of(options, q.device(), kept, hooks_.address);
  prefill_attention(p, stream(q));
  return out;
}

at::Tensor CudaBackend::paged_attention(const at::Tensor& given_q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                        const StepSequences& sequences, const AttentionOptions& options) const {
  const int64_t heads = given_q.size(1), d = given_q.size(2), kv_heads = k_cache.size(1);
  if (d > max_head_dim || options.relative_content.defined() || has_bidirectional_ranges(sequences))
    return Backend::paged_attention(given_q, k_cache, v_cache, sequences, options);
  const at::Tensor q = given_q.contiguous();
  at::Tensor out = at::empty_like(q);
  if (sequences.spans.empty()) return out;
  const DeviceMetadata all = device_metadata(sequences, hooks_.address);
  if (const int64_t single = sequences.metadata.single; single > 0) {
    std::vector<at::Tensor> kept;
    DecodeAttention p{.q = address(q), .q_stride = heads * d, .out = address(out), .type = element(q)};
    p.k_cache = address(k_cache), p.v_cache = address(v_cache), p.block_stride = k_cache.stride(0),
    p.cache = element(k_cache);
    p.tables = all.tables(0), p.table_stride = all.table_stride, p.keys = all.row(MetadataKeys, 0),
    p.contexts = all.row(MetadataContexts, 0), p.rows = all.row(MetadataFirst, 0);
    p.sequences = single, p.heads = heads, p.kv_heads = kv_heads, p.d = d,
    p.scores = scores_of(options, q.device(), kept, hooks_.address);
    p.splits = decode_splits(p, sequences.metadata.max_keys, hooks_.multiprocessors(q.device()));
    if (p.splits > 1) {
      kept.push_back(at::empty({decode_parts(p)}, q.options().dtype(at::kFloat)));
      p.parts = address<float>(kept.back());
    }
    decode_attention(p, stream(q));
  }
  if (sequences.metadata.single < all.sequences) paged_prefill(q, k_cache, v_cache, sequences, options, out);
  return out;
}

void CudaBackend::paged_prefill(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                const StepSequences& sequences, const AttentionOptions& options,
                                at::Tensor& out) const {
  const int64_t heads = q.size(1), d = q.size(2), kv_heads = k_cache.size(1);
  const DeviceMetadata all = device_metadata(sequences, hooks_.address);
  const AttentionMetadata& metadata = sequences.metadata;
  const at::ScalarType type = k_cache.scalar_type();
  const PrefillPath path =
      prefill_path(options, type, d, metadata.ends_with_queries, hooks_.compute_capability(q.device()));
  if (path == PrefillPath::Flash) {
    for (const VarlenBatch& batch : metadata.varlen) {
      const at::Tensor k = at::empty({batch.keys, kv_heads, d}, k_cache.options()), v = at::empty_like(k);
      gather_kv({.k_cache = address(k_cache),
                 .v_cache = address(v_cache),
                 .block_stride = k_cache.stride(0),
                 .tables = all.tables(batch.sequence),
                 .table_stride = all.table_stride,
                 .starts = all.base + batch.key_starts,
                 .k = address(k),
                 .v = address(v),
                 .sequences = batch.sequences,
                 .max_keys = batch.max_keys,
                 .kv_heads = kv_heads,
                 .d = d},
                stream(q));
      out.narrow(0, batch.first, batch.tokens)
          .copy_(flash_attention(q.narrow(0, batch.first, batch.tokens).to(type), k, v, batch, metadata, options));
    }
    return;
  }
  // Tensor cores need queries of the type of the keys.
  const at::Tensor query = path == PrefillPath::TensorCores ? q.to(type) : q;
  const int64_t from = metadata.single;  // the sequences before it have one query
  std::vector<at::Tensor> kept;
  PrefillAttention p{.q = address(query),
                     .q_stride = heads * d,
                     .out = address(out),
                     .type = element(query),
                     .out_type = element(out),
                     .k = address(k_cache),
                     .v = address(v_cache)};
  p.keys_type = element(k_cache), p.paged = true, p.k_stride = k_cache.stride(0), p.tables = all.tables(from),
  p.table_stride = all.table_stride;
  p.first = all.row(MetadataFirst, from), p.tokens = all.row(MetadataTokens, from),
  p.contexts = all.row(MetadataContexts, from), p.keys = all.row(MetadataKeys, from);
  p.sequences = all.sequences - from, p.max_tokens = metadata.max_tokens, p.heads = heads, p.kv_heads = kv_heads,
  p.d = d, p.scores = scores_of(options, q.device(), kept, hooks_.address);
  prefill_attention(p, stream(q));
}

}  // namespace pm::ops::cuda
