// SPDX-License-Identifier: Apache-2.0
// CPU attention: kernels over the KV blocks for single queries (decode_attention.h), and for several ones
// (prefill_attention.h). Scores with terms of relative positions, and those that a caller wants to see, are matrices
// (../aten.cpp).
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/decode_attention.h"
#include "worker/ops/cpu/prefill_attention.h"
#include "worker/ops/cpu/types.h"
#include "worker/ops/kv_codes.h"
#include "worker/ops/score_bias.h"

namespace pm::ops {

namespace {

/// Writes the rows of x [tokens, kv_heads, d], of any strides of tokens and heads, to their slots in the cache.
template <typename T>
void write(const at::Tensor& given, const int64_t* slots, at::Tensor& cache) {
  const at::Tensor x = given.stride(2) == 1 ? given : given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2);
  const float* from = x.const_data_ptr<float>();
  T* to = cache.mutable_data_ptr<T>();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* row = from + t * x.stride(0) + h * x.stride(1);
      write_vector(row, d, to + slots[t] / block_tokens * cache.stride(0) + h * cache.stride(1),
                   slots[t] % block_tokens);
    }
  }
}

/// Returns a query of the sequence as if it was its last one.
SingleQuery single_query(const SequenceSpan& sequence, int64_t query, const AttentionOptions& options,
                         at::Device device) {
  const int64_t position = sequence.context + query,
                keys = options.causal ? std::min(sequence.causal_end(position), sequence.keys) : sequence.keys;
  const at::Tensor bias = score_bias(options, position, 1, keys, device);
  return {.row = sequence.first + query,
          .position = position,
          .keys = keys,
          .blocks = sequence.blocks,
          .bias = bias.defined() ? bias.squeeze(1).contiguous() : bias};
}

}  // namespace

void CpuBackend::write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                          at::Tensor& v_cache) const {
  const at::Tensor places = slots.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND3(at::kHalf, at::kBFloat16, at::kChar, k_cache.scalar_type(), "write_kv", [&] {
    write<scalar_t>(k, places.const_data_ptr<int64_t>(), k_cache);
    write<scalar_t>(v, places.const_data_ptr<int64_t>(), v_cache);
  });
}

at::Tensor CpuBackend::ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const StepSequences& sequences, const AttentionOptions& options,
                                        std::vector<at::Tensor>* probabilities) const {
  const bool rows =
      q.scalar_type() == at::kFloat && is_element(k.scalar_type()) && k.stride(2) == 1 && v.stride(2) == 1;
  if (probabilities || !has_prefill_attention(options) || !rows)
    return Backend::ragged_attention(q, k, v, sequences, options, probabilities);
  const bool rounds = rounds_inputs(options.compute_type);
  const at::Tensor keys = rounds ? k.to(at::kBFloat16) : k, values = rounds ? v.to(at::kBFloat16) : v;
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  for (const SequenceSpan& sequence : sequences.spans) prefill_attention(q, keys, values, sequence, options, out);
  return out;
}

at::Tensor CpuBackend::paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                       const StepSequences& sequences, const AttentionOptions& options) const {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  std::vector<SingleQuery> single;
  for (size_t i = 0; i < sequences.spans.size(); ++i) {
    const SequenceSpan& sequence = sequences.spans[i];
    if (!has_prefill_attention(options)) {
      attend_many(q, k_cache, v_cache, sequences, i, options, out);
      continue;
    }
    if (sequence.tokens != 1 && !sequence.drafts) {
      prefill_attention(q, k_cache, v_cache, sequence, options, out);
      continue;
    }
    for (int64_t query = 0; query < sequence.tokens; ++query)
      single.push_back(single_query(sequence, query, options, q.device()));
  }
  if (!single.empty()) decode_attention(q, k_cache, v_cache, single, options, out);
  return out;
}

}  // namespace pm::ops
