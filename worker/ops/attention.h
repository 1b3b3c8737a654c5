// Attention over ragged sequences, nothing padded: against keys of the same step, or against a paged cache whose blocks of 16 tokens a table maps.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "worker/ops/fused.h"

namespace pm::ops {

/// Tokens of one KV block.
inline constexpr int64_t block_tokens = 16;

/// One sequence of a step: rows first .. first + tokens - 1 are its queries, the first of which is token number `context` of the sequence.
struct SequenceSpan {
  int64_t first = 0, tokens = 0, context = 0;
  int64_t keys = 0;                  ///< how many tokens it attends to at most: context + tokens, or those of a cross-attention's source
  int64_t key_row = 0;               ///< without a cache: the row of its first key
  std::span<const int32_t> blocks;   ///< with a cache: block i holds keys 16 i .. 16 i + 15
};

/// The sequences of a step, in the host's memory.
class Sequences : public std::vector<SequenceSpan> {
 public:
  using std::vector<SequenceSpan>::vector;
  Sequences() = default;
  Sequences(std::vector<SequenceSpan> spans) : std::vector<SequenceSpan>(std::move(spans)) {}
  int64_t longest = 0;               ///< keys of the longest sequence that may take a place of these, where their launches are recorded; 0: they stay
  mutable at::Tensor on_device;      ///< what a device's kernels made of them, once for all layers; by whoever runs the step, a thread
};

/// Slopes per head times the key's position (Press et al. 2021).
struct AlibiBias {
  at::Tensor slopes;                 ///< [heads] fp32
  bool scaled = false;               ///< multiplied by the attention's scale, as the scores are
  bool bf16 = false;                 ///< slope, position and product are rounded to bf16
};

/// A learned number per head for each bucket of distances (Raffel et al. 2020, T5).
struct BucketedBias {
  at::Tensor table;                  ///< [buckets, heads]
  int64_t far = 128;                 ///< distances from here on share the last bucket
  bool bidirectional = true;         ///< half of the buckets for keys after the query
};

/// What one layer's attention needs beside q, k, v.
struct AttentionOptions {
  double scale = 1;
  double softcap = 0;                ///< 0: none; else scaled scores become softcap * tanh(score / softcap); not beside a bias
  bool causal = true;
  int64_t window = 0;                ///< 0: none; else a query sees itself and window - 1 tokens before it
  AlibiBias alibi;                   ///< slopes undefined: none
  BucketedBias buckets;              ///< table undefined: none
};

/// Slopes of all `heads`, as BLOOM and Falcon make them: powers of 2^(-8 / p) for the largest power of two p, odd powers of its root beyond.
at::Tensor alibi_slopes(int64_t heads);
/// The bucket of each relative position (key - query), int64 -> int64: exact near, logarithmic up to `far`.
at::Tensor relative_buckets(const at::Tensor& distance, int64_t buckets, int64_t far, bool bidirectional);

/// Writes k, v [tokens, kv_heads, d] into the layer's caches [blocks, kv_heads, 16, d]; slots [tokens] = block * 16 + offset.
void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache);

/// What a projection makes of a step's tokens, qkv [tokens, (heads + 2 kv_heads) x d]: queries, keys and values beside each other. Keys and values are turned and written as
/// write_kv() does, in one pass; the queries come back turned, [tokens, heads, d].
at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const Rotation&, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache);

/// q [tokens, heads, d], k, v [key rows, kv_heads, d], all fp32 -> [tokens, heads, d]. heads is a multiple of kv_heads; query head h reads kv
/// head h / (heads / kv_heads). With `probabilities`, appends for each sequence the softmax [heads, queries, keys] in fp32.
at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sequences& sequences,
                            const AttentionOptions&, std::vector<at::Tensor>* probabilities = nullptr);

/// As ragged_attention, keys and values from the caches.
at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const Sequences& sequences,
                           const AttentionOptions&);

}  // namespace pm::ops
