// SPDX-License-Identifier: Apache-2.0
// The CPU backend; operations that it does not override are ATen's (worker/ops/aten.cpp).
#pragma once
#include "worker/ops/backend.h"

namespace pm::ops {

/// Activations are fp32 here, so that results are.
class CpuBackend final : public Backend {
 public:
  bool rounds_inputs(at::ScalarType weight) const override;
  std::optional<int64_t> rows_of_equal_bits(at::ScalarType compute, bool as_codes) const override;
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType result) const override;
  at::Tensor quantized_linear(const at::Tensor& x, const QuantizedMatrix&, const at::Tensor& bias,
                              at::ScalarType result) const override;
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                        at::ScalarType result) const override;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                      at::ScalarType result) const override;
  at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                  const at::Tensor& bias, double eps, at::ScalarType result) const override;
  at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                double weight_offset, at::ScalarType result) const override;
  Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override;
  at::Tensor rotate(const at::Tensor& x, const Angles&, bool is_neox) const override;
  at::Tensor silu_and_mul(const at::Tensor& x) const override;
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                at::Tensor& v_cache) const override;
  /// One sweep over the heads: norm, rotation, and the write to the cache.
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const HeadNorms&, const Rotation&,
                          const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override;
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const StepSequences&,
                              const AttentionOptions&, std::vector<at::Tensor>* probabilities) const override;
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const StepSequences&, const AttentionOptions&) const override;
  /// One sweep over the scores for both terms, which reads the rows' products where they lie.
  void add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k, const RelativeContent&,
                            const RelativeSequence&) const override;
};

}  // namespace pm::ops
