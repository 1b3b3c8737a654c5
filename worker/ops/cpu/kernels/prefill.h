// SPDX-License-Identifier: Apache-2.0
// Prefill attention (FlashAttention) of many queries on CPUs, as its kernels see it. A span of keys and values is
// packed once as fp32 and serves all rows, each a query of one head that reads this kv head. Softmax is accumulated
// span by span (Milakov and Gimelshein 2018; Dao et al. 2022), so that no matrix of scores exists. Like those of
// kernels.h, the interface is plain data and pointers.
#pragma once
#include <cstdint>

namespace pm::ops {

enum class Element : uint8_t;

/// Packed at once: with keys of 128 numbers 256 KiB, in the second-level cache.
inline constexpr int64_t span_keys = 256;

/// Keys, or values, of one kv head as they are stored: `d` numbers each, of key j from element `j * stride` on, or with
/// blocks from `blocks[j / 16] * block_stride + j % 16 * stride`. Those of type I8 have blocks, and behind the 16 x d
/// codes of a block the scales of its keys, F32.
struct KeyRows {
  Element type;
  const void* first;
  int64_t d, stride;
  const int32_t* blocks = nullptr;
  int64_t block_stride = 0;
};

/// The numbers of a value when packed: d, rounded up to whole vectors of any instruction set. It is static, for the
/// linker must not take the copy of an instruction set for all.
static inline int64_t packed_width(int64_t d) { return (d + 15) / 16 * 16; }

struct PackKeys {
  KeyRows keys, values;
  int64_t from, count;   ///< of them; count <= span_keys
  float* packed_keys;    ///< span_keys * d numbers, in a form of the kernels' own; keys beyond `count` are 0
  float* packed_values;  ///< span_keys * packed_width(d) numbers, likewise; what lies beyond d is 0
  bool bf16 = false;     ///< the model computes in bf16: queries and weights may be rounded to it
};

/// A query of one head, and what it has accumulated.
struct QueryRow {
  const float* q;      ///< [d]
  const float* bias;   ///< of key 0 of the sequence; nullptr: none
  int64_t from, to;    ///< the keys of the sequence that it sees
  float largest, sum;  ///< score, or one little above it; sum of exp(score - largest). They begin as -infinity and 0
  float* out;          ///< [packed_width(d)]: values weighted by these exponentials; at the beginning 0
};

/// Adds the keys of a packed span to rows. With score = scale q k + bias, or with a softcap softcap * tanh(scale q k /
/// softcap).
struct AttendRows {
  Element type;  ///< of keys and values, as they were stored
  QueryRow* rows;
  int64_t count, d;
  const float *packed_keys, *packed_values;
  int64_t from, keys;    ///< the span's place in the sequence
  float scale, softcap;  ///< softcap 0: none
  bool bf16 = false;     ///< as with PackKeys
};

}  // namespace pm::ops
