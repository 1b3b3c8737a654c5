// SPDX-License-Identifier: Apache-2.0
// Reference implementations of operations of worker/ops in fp64, and inputs for them. The unit tests and bench/ops
// share them.
#pragma once
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "worker/ops/attention.h"

namespace pm::ops::reference {

/// Returns T5's bucket of one distance (key - query), implemented from the paper and not from the code under test.
int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional);

/// Returns softmax(scale q k^T + bias + mask) v of one sequence in fp64 [queries, heads, d], with the share of a sink;
/// q [queries, heads, d], k, v [keys, kv_heads, d]. The first query is token number `context`. AlibiBias::bf16 is not
/// supported. `bidirectional` as SequenceSpan's.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t context,
                     const AttentionOptions& options, std::span<const KeyRange> bidirectional = {});

/// Returns x [tokens, heads, head_dim] in fp64 after pair i of each head was multiplied, as a complex number, by
/// factor e^(i angle). angle = position x frequency, rounded to fp32.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& frequencies, bool is_neox,
                  double factor);

/// Returns x with the numbers that it has where products with weights or keys of `type` round it to bf16: those that
/// are exact on every CPU.
inline at::Tensor rounded_for(at::ScalarType type, const at::Tensor& x) {
  return type == at::kBFloat16 ? x.to(type).to(at::kFloat) : x;
}

/// One sequence of AttentionInputs.
struct SequenceShape {
  int64_t context = 0, tokens = 1;
  int64_t keys = 0;  ///< 0: context + tokens; else the source length of a cross-attention
  std::vector<KeyRange> bidirectional = {};
};

/// Random queries, keys and values of a step's sequences, and a block table for each sequence over shuffled blocks.
struct AttentionInputs {
  AttentionInputs() = default;
  AttentionInputs(AttentionInputs&&) = default;  // `sequences` points into `tables`, which a copy would leave behind
  AttentionInputs(const AttentionInputs&) = delete;
  at::Tensor q;             ///< [rows, heads, d] fp32
  at::Tensor k, v;          ///< [key rows, kv_heads, d] fp32, with values that the type of the cache holds exactly
  at::Tensor slots;         ///< [key rows] int64, as write_kv() takes them
  int64_t blocks = 0;       ///< of a cache that holds all keys, and some unused ones
  StepSequences sequences;  ///< rows and key rows follow each other without gaps
  std::vector<std::vector<int32_t>> tables;
};
/// `type` is that of the cache.
AttentionInputs attention_inputs(int64_t heads, int64_t kv_heads, int64_t d, std::span<const SequenceShape> shapes,
                                 at::ScalarType type);
/// Returns attention() of all sequences [rows, heads, d].
at::Tensor attention(const AttentionInputs& inputs, const AttentionOptions& options);

}  // namespace pm::ops::reference
