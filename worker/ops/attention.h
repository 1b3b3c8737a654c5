// SPDX-License-Identifier: Apache-2.0
// Attention over ragged (unpadded) sequences: to keys of the same step, or to a paged KV cache whose blocks of 16
// tokens are mapped by block tables.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/kv_block.h"
#include "worker/ops/fused.h"

namespace pm::ops {

/// Keys begin .. end - 1 of a sequence.
struct KeyRange {
  int64_t begin = 0, end = 0;
};

/// One sequence of a step: rows first .. first + tokens - 1 hold its queries. The first of them is token number
/// `context` of the sequence.
struct SequenceSpan {
  int64_t first = 0, tokens = 0, context = 0;
  int64_t keys = 0;                 ///< number of keys: context + tokens, or the source length of a cross-attention
  int64_t key_row = 0;              ///< without a cache: the row of its first key
  std::span<const int32_t> blocks;  ///< with a cache: block i holds keys 16 i .. 16 i + 15
  /// Where attention is causal: ranges within which it is bidirectional, so that their tokens see the keys behind them
  /// too. Ascending; each ends with the keys or before.
  std::vector<KeyRange> bidirectional = {};
  /// Drafts and the token before them: each query has the result that it would have alone, to the bit where the device
  /// can.
  bool drafts = false;

  /// Returns the end of the keys that a query at `position` sees where attention is causal.
  int64_t causal_end(int64_t position) const {
    for (const KeyRange& range : bidirectional)
      if (range.begin <= position && position < range.end) return range.end;
    return position + 1;
  }
};

/// Sequences of a step that one launch of a variable-length kernel such as FlashAttention takes: their queries are
/// adjacent rows, and so are their keys where there is no cache.
struct VarlenBatch {
  int64_t first = 0, tokens = 0;             ///< the rows of the queries
  int64_t key_row = 0, keys = 0;             ///< the rows of the keys; with a cache only their number
  int64_t sequence = 0, sequences = 0;       ///< with a cache: the first in the buffer; number of sequences
  int64_t max_tokens = 0, max_keys = 0;      ///< of any sequence
  int64_t query_starts = 0, key_starts = 0;  ///< where the buffer has [sequences + 1] numbers: the queries (keys) of
                                             ///< all sequences before each one, last the total
};

/// The sequences of a step as the attention kernels of a device read them; attention_metadata.h describes the buffer.
/// In a CUDA graph the maxima are those that a replay may have.
struct AttentionMetadata {
  at::Tensor buffer;                     ///< int32 on the device; undefined: attention there reads the spans
  int64_t table_stride = 0;              ///< blocks in a row of the block tables
  int64_t single = 0;                    ///< number of sequences with one query
  int64_t max_tokens = 0, max_keys = 0;  ///< of any sequence
  std::vector<VarlenBatch> varlen;       ///< the sequences, with a cache only those of several queries; not in a graph
  bool ends_with_queries = true;         ///< the last key of every sequence is that of its last query
};

/// The sequences of a step; the block tables of the spans lie in host memory.
struct StepSequences {
  std::vector<SequenceSpan> spans;
  AttentionMetadata metadata;
};

/// Makes the metadata of the sequences if attention on this device reads it, with one copy to the device. It is called
/// once for all layers, before the first one. Metadata that is there stays: CUDA graphs have theirs at fixed addresses.
void make_attention_metadata(StepSequences&, at::Device);

/// ALiBi: adds the slope of the head times the key's position to each score (Press et al. 2021).
struct AlibiBias {
  at::Tensor slopes;    ///< [heads] fp32
  bool scaled = false;  ///< multiplied by the attention's scale, as the scores are
  bool bf16 = false;    ///< slope, position and product are rounded to bf16
};

/// T5's relative position bias: a learned value for each head and bucket of distances (Raffel et al. 2020).
struct RelativePositionBias {
  at::Tensor table;            ///< [buckets, heads]
  int64_t max_distance = 128;  ///< all larger distances share the last bucket
  bool bidirectional = true;   ///< half of the buckets for keys after the query
};

/// Where the queries and the keys of one sequence stand. Keys are fewer than queries where padding is none, and more
/// where queries are pooled. The first `queries_apart` queries and `keys_apart` keys get no terms (Funnel's <cls>).
struct RelativeSequence {
  at::Tensor columns, key_columns;    ///< int64 [queries], [keys]: in which columns they stand, ascending
  at::Tensor segments, key_segments;  ///< likewise: in which segments they are; undefined: there are none
  int64_t queries_apart = 0, keys_apart = 0;
  at::Tensor hidden = {};  ///< [queries, keys] bool: true where a query does not see a key; one that sees none weighs
                           ///< all alike; undefined: all are seen
};

/// Which row of a table of relative positions each distance reads.
struct RelativeIndex {
  int64_t reach = 0;  ///< no distance of a query and a key of a sequence is larger
  at::Tensor rows;    ///< int64 [2 reach + 1]: of the distance query - key = -reach .. reach; ascending
  std::vector<RelativeSequence> sequences;
};

/// Terms of scores by the content of relative positions (He et al. 2021): query . keys[row] + key . queries[row], for
/// the row of their distance. They are added before scores are scaled. There are as many kv heads as heads. Each bias
/// [1, heads, d] is added to the queries of its products; undefined: none.
struct RelativeContent {
  at::Tensor keys;                                  ///< content to position: [rows, heads, d] fp32; undefined: none
  at::Tensor queries;                               ///< position to content: likewise
  at::Tensor key_bias, content_bias, segment_bias;  ///< of products with `keys`, with the keys of tokens, `segments`
  at::Tensor segments;  ///< [2, heads, d]: a query meets the first for keys of its own segment, the second for others
  std::optional<int64_t> common_segment;  ///< this one and any other are one segment
  const RelativeIndex* index = nullptr;
  bool defined() const { return keys.defined() || queries.defined(); }
};

/// Options of one layer's attention besides q, k and v.
struct AttentionOptions {
  double scale = 1;
  double softcap = 0;  ///< 0: none; else scaled scores become softcap * tanh(score / softcap); excludes a bias
  bool causal = true;
  int64_t window = 0;  ///< 0: none; else a query sees itself and window - 1 tokens before it, and as many
                       ///< after it where attention is not causal
  at::Tensor sinks;    ///< [heads] fp32: one more logit of each head's softmax, whose value is 0 (Xiao et al. 2024);
                       ///< undefined: none
  AlibiBias alibi;     ///< slopes undefined: none
  RelativePositionBias relative_bias;  ///< table undefined: none
  RelativeContent relative_content;    ///< undefined: none
  bool captures_scores = false;        ///< `probabilities` get the scores before the softmax instead
  /// The type in which the model computes: that of its 16-bit weights. A device that multiplies numbers of this type
  /// rounds fp32 queries, keys and values to it, as transformers has them.
  at::ScalarType compute_type = at::kFloat;
};

/// Returns the ALiBi slopes of all `heads` as BLOOM and Falcon compute them: powers of 2^(-8 / p) for the largest power
/// of two p <= heads, and odd powers of its root for the other heads.
at::Tensor alibi_slopes(int64_t heads);
/// Returns the T5 bucket of each relative position (key - query), int64 -> int64: exact for near keys, logarithmic up
/// to `max_distance`.
at::Tensor relative_buckets(const at::Tensor& distance, int64_t buckets, int64_t max_distance, bool bidirectional);

/// Writes k, v [tokens, kv_heads, d] into the layer's caches [blocks, kv_heads, 16, d]; slots [tokens] = block * 16 +
/// offset. Caches of codes (kv_codes.h) may stand in place of those of floats here and below.
void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
              at::Tensor& v_cache);

/// Splits the output of the fused QKV projection, qkv [tokens, (heads + 2 kv_heads) x d], applies the norms of heads,
/// rotates queries and keys, and writes keys and values to the caches as write_kv() does. One kernel does all of it
/// where the device has one. Returns the rotated queries [tokens, heads, d].
at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const HeadNorms&, const Rotation&,
                        const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache);

/// q [tokens, heads, d], k, v [key rows, kv_heads, d], all of one type -> [tokens, heads, d] of that type. heads is a
/// multiple of kv_heads; query head h reads kv head h / (heads / kv_heads). With `probabilities`, appends for each
/// sequence the softmax [heads, queries, keys] in fp32.
at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const StepSequences& sequences, const AttentionOptions&,
                            std::vector<at::Tensor>* probabilities = nullptr);

/// Adds the terms of relative positions to the scores [heads, queries, keys] of a sequence, as ragged_attention does
/// before it scales them. q [queries, heads, d], k [heads, keys, d]. None stands apart.
void add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k, const RelativeContent&,
                          const RelativeSequence&);

/// Adds to the scores [heads, queries, keys] of a sequence what its queries [queries, heads, d] say of the segments of
/// keys: query . segments[0] for those of the query's own, query . segments[1] for others. None stands apart.
void add_segments(at::Tensor& scores, const at::Tensor& q, const RelativeContent&, const RelativeSequence&);

/// Adds both to the scores of a sequence, except to those of what stands apart. `queries` and `segment_queries` have
/// the biases of their terms.
void add_relative_terms(at::Tensor& scores, const at::Tensor& queries, const at::Tensor& segment_queries,
                        const at::Tensor& keys, const RelativeContent&, const RelativeSequence&);

/// Attends like ragged_attention, with keys and values from the caches.
at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           const StepSequences& sequences, const AttentionOptions&);

}  // namespace pm::ops
