// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of queries and keys, fused with writing keys and values to the paged cache.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Computes cosine and sine of position x frequency, both times `factor`, once for all layers of a step.
struct RotaryAngles {
  const int64_t* positions = nullptr;  ///< [tokens]
  const float* frequencies = nullptr;  ///< [n]; they and `factor` include any rope scaling
  float factor = 1;
  float *cos = nullptr, *sin = nullptr;  ///< [tokens, n]
  int64_t tokens = 0, n = 0;
};
void rotary_angles(const RotaryAngles&, Stream);

/// A norm of each head's vector in fp32 before its rotation (Qwen3), as in Norm; only the result is rounded.
struct HeadNorm {
  bool active = false, rms = true;
  const void *weight = nullptr, *bias = nullptr;  ///< [d]; nullptr: 1, 0
  Element parameters = Element::F32;
  float eps = 1e-6f, weight_offset = 0;
};

/// Rotates pairs of the first 2 n elements of each head's vector by its token's angles; the other elements stay. With n
/// = 0 nothing is rotated.
struct RotaryWrite {
  const void* qkv =
      nullptr;  ///< [tokens, (heads + 2 kv_heads) x d], rows qkv_stride elements apart: queries, keys, values
  int64_t qkv_stride = 0;
  Element type = Element::F32;                 ///< of qkv and q
  void* q = nullptr;                           ///< [tokens, heads, d], not in qkv; nullptr: no queries
  const float *cos = nullptr, *sin = nullptr;  ///< [tokens, n]
  int64_t n = 0;
  bool is_neox = true;             ///< pairs are (i, n + i), else (2 i, 2 i + 1)
  bool rotate_values = false;      ///< values are rotated as keys are (RoFormer)
  const int64_t* slots = nullptr;  ///< [tokens]: block * 16 + offset; negative: keys and values are not written
  void *k_cache = nullptr, *v_cache = nullptr;  ///< [blocks, kv_heads, 16, d], blocks block_stride elements apart
  int64_t block_stride = 0;
  Element cache = Element::F32;
  int64_t tokens = 0, heads = 0, kv_heads = 0, d = 0;
  HeadNorm query_norm, key_norm;
};
void rotary_write(const RotaryWrite&, Stream);

}  // namespace pm::ops::cuda
