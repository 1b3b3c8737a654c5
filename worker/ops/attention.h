// Attention over a paged KV cache: keys and values lie in blocks of 16 tokens that a table maps, nothing is padded.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace pm::ops {

/// Tokens of one KV block.
inline constexpr int64_t block_tokens = 16;

/// One sequence of a step: `tokens` queries starting at row `first`; `context` tokens were in the cache before them.
struct SequenceSpan {
  int64_t first = 0, tokens = 0, context = 0;
  std::span<const int32_t> blocks;   ///< block i holds tokens 16 i .. 16 i + 15 of the sequence
};

/// What one layer's attention needs beside q, k, v.
struct AttentionOptions {
  double scale = 1;
  bool causal = true;
  int64_t window = 0;                ///< 0: none; else a query sees itself and window - 1 tokens before it
};

/// Writes k, v [tokens, kv_heads, d] into the layer's caches [blocks, kv_heads, 16, d]; slots [tokens] = block * 16 + offset.
void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache);

/// q [tokens, heads, d] fp32 -> [tokens, heads, d] fp32. heads is a multiple of kv_heads; query head h reads kv head h / (heads / kv_heads).
/// With `probabilities`, appends for each sequence the softmax [heads, queries, context + queries] in fp32.
at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           std::span<const SequenceSpan> sequences, const AttentionOptions&,
                           std::vector<at::Tensor>* probabilities = nullptr);

}  // namespace pm::ops
