// Attention on a device: single queries against the paged cache (decoding), and runs of queries against the cache or against rows (prompts, encoders). Lengths,
// tables and rows are read on the device, so that a captured launch follows what is written there later.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// What becomes of a product q.k: scale; softcap * tanh(score / softcap) if there is a cap; slope x key's position (ALiBi); a number by distance.
struct Scores {
  float scale = 1;
  float softcap = 0;                  ///< 0: none
  bool causal = true;                 ///< a query sees no key behind it
  int64_t window = 0;                 ///< 0: none; else a query sees itself and window - 1 tokens before it
  const float* slopes = nullptr;      ///< [heads] (Press et al. 2021); nullptr: none
  bool slopes_scaled = false;         ///< multiplied by `scale` too
  bool slopes_bf16 = false;           ///< slope, position and product are rounded to bf16
  const float* relative = nullptr;    ///< [heads, 2 reach + 1]: what is added for key - query = -reach .. reach, beyond that the outermost; T5's buckets by distance
  int64_t reach = 0;
};

/// One query per sequence. Splits of its keys run at once; their parts are then brought to one largest score, in the keys' order (Dao et al. 2023, Flash-Decoding).
/// The splits depend on lengths and `splits` only, so that bits do not depend on who else is in the batch.
struct DecodeAttention {
  const void* q = nullptr;            ///< [rows, heads, d], rows q_stride elements apart
  int64_t q_stride = 0;
  void* out = nullptr;                ///< [rows, heads, d]; a sequence without keys gets 0
  Element type = Element::F32;        ///< of q and out
  const void *k_cache = nullptr, *v_cache = nullptr;  ///< [blocks, kv_heads, 16, d], blocks block_stride elements apart
  int64_t block_stride = 0;
  Element cache = Element::F32;
  const int32_t* tables = nullptr;    ///< [sequences, table_stride]: block i of a sequence holds its keys 16 i .. 16 i + 15
  int64_t table_stride = 0;
  const int32_t* keys = nullptr;      ///< [sequences]: how many a query sees at most
  const int32_t* contexts = nullptr;  ///< [sequences]: the query's position; nullptr: keys - 1
  const int32_t* rows = nullptr;      ///< [sequences]: of q and out; nullptr: 0, 1, ...
  int64_t sequences = 0, heads = 0, kv_heads = 0, d = 0;   ///< heads is a multiple of kv_heads; d <= 512
  Scores scores;
  int64_t splits = 1;
  float* parts = nullptr;             ///< decode_parts() floats; not needed for one split
};
/// Floats of room that the parts of so many splits take.
int64_t decode_parts(const DecodeAttention&);
/// How many splits keep `processors` multiprocessors busy when the longest sequence has `keys` keys; 1 where there are sequences and heads enough.
int64_t decode_splits(int64_t sequences, int64_t heads, int64_t kv_heads, int64_t keys, int64_t processors);
void decode_attention(const DecodeAttention&, Stream);

/// Sequences of any number of queries each: tokens first[s] .. first[s] + tokens[s] - 1 of q, the first of which is token contexts[s] of its sequence.
struct PrefillAttention {
  const void* q = nullptr;            ///< [rows, heads, d], rows q_stride elements apart
  int64_t q_stride = 0;
  void* out = nullptr;                ///< [rows, heads, d]
  Element type = Element::F32;        ///< of q and out
  const void *k = nullptr, *v = nullptr;
  Element keys_type = Element::F32;   ///< of k and v
  bool paged = true;                  ///< k, v are caches as DecodeAttention's; else rows [key rows, kv_heads, d]
  int64_t k_stride = 0;               ///< elements between blocks, or between rows; of v too
  const int32_t* tables = nullptr;    ///< paged only: [sequences, table_stride]
  int64_t table_stride = 0;
  const int32_t *first = nullptr, *tokens = nullptr, *contexts = nullptr, *keys = nullptr;   ///< [sequences]
  const int32_t* key_rows = nullptr;  ///< [sequences], not paged only: the row of the first key
  int64_t sequences = 0, most_tokens = 0;   ///< most_tokens: the largest of `tokens`
  int64_t heads = 0, kv_heads = 0, d = 0;   ///< d <= 512
  Scores scores;
};
/// Tensor cores multiply where q, k and v are of one 16-bit type, d is a multiple of 8, at most 256, and everything lies on 16 bytes; weights of values are
/// rounded to that type then. Else products and sums are fp32. Throws std::invalid_argument for shapes that no kernel takes.
void prefill_attention(const PrefillAttention&, Stream);
/// Whether prefill_attention would use tensor cores.
bool prefill_uses_tensor_cores(const PrefillAttention&);

}  // namespace pm::ops::cuda
