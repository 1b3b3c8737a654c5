// Rotary position embedding and the writing of keys and values to the paged cache, in one pass over what the projection made.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// cos and sin of position x frequency, both times `factor`, for the layers of a step to share.
struct RotaryAngles {
  const int64_t* positions = nullptr;    ///< [tokens]
  const float* frequencies = nullptr;    ///< [n]: every kind of scaling is in these and in `factor`
  float factor = 1;
  float *cos = nullptr, *sin = nullptr;  ///< [tokens, n]
  int64_t tokens = 0, n = 0;
};
void rotary_angles(const RotaryAngles&, Stream);

/// A norm of each head's vector, in fp32, before it is turned (Qwen3): as Norm's, rounded only with the result.
struct HeadNorm {
  bool active = false, rms = true;
  const void *gain = nullptr, *bias = nullptr;   ///< [d]; nullptr: 1, 0
  Element parameters = Element::F32;
  float eps = 1e-6f, centre = 0;
};

/// Turns pairs of the first 2 n of each head's vector by its token's angles; the rest stays. With n = 0 nothing is turned.
struct RotaryWrite {
  const void* qkv = nullptr;             ///< [tokens, (heads + 2 kv_heads) x d], rows qkv_stride elements apart: queries, keys, values
  int64_t qkv_stride = 0;
  Element type = Element::F32;           ///< of qkv and q
  void* q = nullptr;                     ///< [tokens, heads, d], apart from qkv; nullptr: queries are left out
  const float *cos = nullptr, *sin = nullptr;   ///< [tokens, n]
  int64_t n = 0;
  bool halves = true;                    ///< pairs are (i, n + i), else (2 i, 2 i + 1)
  bool turn_values = false;              ///< values are turned as keys are (RoFormer)
  const int64_t* slots = nullptr;        ///< [tokens]: block * 16 + offset; negative: the token's keys and values go nowhere
  void *k_cache = nullptr, *v_cache = nullptr;  ///< [blocks, kv_heads, 16, d], blocks block_stride elements apart
  int64_t block_stride = 0;
  Element cache = Element::F32;
  int64_t tokens = 0, heads = 0, kv_heads = 0, d = 0;
  HeadNorm query_norm, key_norm;
};
void rotary_write(const RotaryWrite&, Stream);

}  // namespace pm::ops::cuda
