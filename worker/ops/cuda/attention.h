// SPDX-License-Identifier: Apache-2.0
// CUDA attention: decode (single queries against the paged cache) and prefill (several queries against the cache or
// against rows). Lengths, block tables, rows and positions are read on the device, so that a captured launch follows
// later changes of them.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Transformation of a product q.k: scale; softcap * tanh(score / softcap) where there is a cap; ALiBi's slope x key
/// position; the relative position bias.
struct Scores {
  float scale = 1;
  float softcap = 0;                ///< 0: none
  bool causal = true;               ///< a query attends to no later key
  int64_t window = 0;               ///< 0: none; else a query sees itself and window - 1 tokens before it, and as many
                                    ///< after it where attention is not causal
  const float* slopes = nullptr;    ///< [heads] (Press et al. 2021); nullptr: none
  bool slopes_scaled = false;       ///< multiplied by `scale` too
  bool slopes_bf16 = false;         ///< slope, position and product are rounded to bf16
  const float* relative = nullptr;  ///< [heads, 2 reach + 1]: what is added for key - query = -reach .. reach, beyond
                                    ///< that the outermost; T5's buckets by distance
  int64_t reach = 0;
  const float* sinks = nullptr;  ///< [heads]: one more logit of each head's softmax, whose value is 0; nullptr: none
};

/// Decode attention: one query per sequence. Splits of its keys run in parallel; the partial results are rescaled to
/// one largest score and added (Dao et al. 2023, Flash-Decoding). A sequence uses as many of the `splits` as its length
/// at the launch needs: at least eight KV blocks for each. So a captured launch with splits for the longest sequence
/// costs a short one nothing, and the bits do not depend on the other sequences of the batch.
///
/// 16-bit heads of a multiple of 8 and at most 256 elements, with 16-byte aligned pointers and strides, use tensor
/// cores: up to eight query heads of a KV head at once. Queries and softmax weights are rounded to two 16-bit numbers
/// each, which keeps 16 (bf16) or 22 (fp16) bits of them; fp16 queries must be below 65,504.
struct DecodeAttention {
  const void* q = nullptr;  ///< [rows, heads, d], rows q_stride elements apart
  int64_t q_stride = 0;
  void* out = nullptr;                                ///< [rows, heads, d]; a sequence without keys gets 0
  Element type = Element::F32;                        ///< of q and out
  const void *k_cache = nullptr, *v_cache = nullptr;  ///< [blocks, kv_heads, 16, d], blocks block_stride elements apart
  int64_t block_stride = 0;
  Element cache = Element::F32;
  const int32_t* tables =
      nullptr;  ///< [sequences, table_stride]: block i of a sequence holds its keys 16 i .. 16 i + 15
  int64_t table_stride = 0;
  const int32_t* keys = nullptr;                          ///< [sequences]: number of keys
  const int32_t* contexts = nullptr;                      ///< [sequences]: the query's position; nullptr: keys - 1
  const int32_t* rows = nullptr;                          ///< [sequences]: of q and out; nullptr: 0, 1, ...
  int64_t sequences = 0, heads = 0, kv_heads = 0, d = 0;  ///< heads is a multiple of kv_heads; d <= 512
  Scores scores;
  int64_t splits = 1;
  float* parts = nullptr;  ///< decode_parts() floats; not needed for one split
};
/// Returns the floats that the partial results of all splits take.
int64_t decode_parts(const DecodeAttention&);
/// Returns the number of splits that keeps `multiprocessors` multiprocessors busy when the longest sequence has `keys`
/// keys, from the blocks of the launch's kernel that the driver lets run at once. `splits` and `parts` are not read.
int64_t decode_splits(const DecodeAttention&, int64_t keys, int64_t multiprocessors);
/// Returns the fewest splits whose thread blocks, `blocks` a split, take 0.9 of the places of their waves, or else
/// those with the largest share; fewer where `keys` keys need fewer. `places` blocks run at once.
int64_t decode_splits(int64_t blocks, int64_t places, int64_t keys);
/// Throws std::invalid_argument for shapes that no kernel supports.
void decode_attention(const DecodeAttention&, Stream);

/// Prefill attention: sequences of any number of queries. Tokens first[s] .. first[s] + tokens[s] - 1 of q belong to
/// sequence s; the first of them is token contexts[s] of the sequence.
struct PrefillAttention {
  const void* q = nullptr;  ///< [rows, heads, d], rows q_stride elements apart
  int64_t q_stride = 0;
  void* out = nullptr;              ///< [rows, heads, d]
  Element type = Element::F32;      ///< of q
  Element out_type = Element::F32;  ///< of out
  const void *k = nullptr, *v = nullptr;
  Element keys_type = Element::F32;  ///< of k and v
  bool paged = true;                 ///< k, v are caches as DecodeAttention's; else rows [key rows, kv_heads, d]
  int64_t k_stride = 0;              ///< elements between blocks, or between rows; of v too
  const int32_t* tables = nullptr;   ///< paged only: [sequences, table_stride]
  int64_t table_stride = 0;
  const int32_t *first = nullptr, *tokens = nullptr, *contexts = nullptr, *keys = nullptr;  ///< [sequences]
  const int32_t* key_rows = nullptr;       ///< [sequences], not paged only: the row of the first key
  int64_t sequences = 0, max_tokens = 0;   ///< max_tokens: the largest of `tokens`
  int64_t heads = 0, kv_heads = 0, d = 0;  ///< d <= 512
  Scores scores;
};
/// Uses tensor cores where q, k and v have one 16-bit type, out has it too or is fp32, d is a multiple of 8 and at most
/// 256, and all pointers and strides are 16-byte aligned; the softmax weights are rounded to that type then. Else
/// products and sums are fp32.
/// Throws std::invalid_argument for shapes that no kernel supports.
void prefill_attention(const PrefillAttention&, Stream);
/// Returns whether prefill_attention would use tensor cores.
bool prefill_uses_tensor_cores(const PrefillAttention&);

/// Copies the keys and values of sequences from a 16-bit cache to adjacent rows, for kernels that read no block tables.
struct GatherKv {
  const void *k_cache = nullptr, *v_cache = nullptr;  ///< [blocks, kv_heads, 16, d], blocks block_stride elements apart
  int64_t block_stride = 0;
  const int32_t* tables = nullptr;  ///< [sequences, table_stride]
  int64_t table_stride = 0;
  const int32_t* starts = nullptr;  ///< [sequences + 1]: the row of each sequence's first key; last the number of rows
  void *k = nullptr, *v = nullptr;  ///< [rows, kv_heads, d]
  int64_t sequences = 0, max_keys = 0, kv_heads = 0, d = 0;  ///< max_keys: of any sequence; d is a multiple of 8
};
/// All pointers and the stride must be 16-byte aligned. Throws std::invalid_argument for shapes that are not served.
void gather_kv(const GatherKv&, Stream);

}  // namespace pm::ops::cuda
