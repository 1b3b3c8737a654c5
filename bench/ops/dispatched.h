// SPDX-License-Identifier: Apache-2.0
// The free functions of worker/ops as a Backend, so that a case is written once and runs on the kernels of any device
// and on the ATen defaults.
#pragma once
#include "worker/ops/backend.h"
#include "worker/ops/linear.h"

namespace pm::bench {

/// Calls the free functions, which dispatch by the device of their tensors. tests/structure checks that every method of
/// ops::Backend is here.
class Dispatched final : public ops::Backend {
 public:
  explicit Dispatched(at::DeviceType type) : type_(type) {}
  at::ScalarType activation_type(at::ScalarType compute) const override { return ops::activation_type(type_, compute); }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType result) const override {
    return ops::linear(x, weight, bias, result);
  }
  at::Tensor quantized_linear(const at::Tensor& x, const ops::QuantizedMatrix& matrix, const at::Tensor& bias,
                              at::ScalarType result) const override {
    return ops::linear(x, matrix, bias, result);
  }
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                        at::ScalarType result) const override {
    return ops::layer_norm(x, weight, bias, eps, result);
  }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                      at::ScalarType result) const override {
    return ops::rms_norm(x, weight, eps, weight_offset, result);
  }
  at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                  const at::Tensor& bias, double eps, at::ScalarType result) const override {
    return ops::fused_add_layer_norm(x, residual, weight, bias, eps, result);
  }
  at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                double weight_offset, at::ScalarType result) const override {
    return ops::fused_add_rms_norm(x, residual, weight, eps, weight_offset, result);
  }
  ops::Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override {
    return ops::rotary_angles(positions, frequencies, factor);
  }
  at::Tensor rotate(const at::Tensor& x, const ops::Angles& angles, bool is_neox) const override {
    return ops::rotate(x, angles, is_neox);
  }
  at::Tensor silu_and_mul(const at::Tensor& x) const override { return ops::silu_and_mul(x); }
  bool has_sampler() const override { return ops::has_sampler(type_); }
  at::Tensor sample(at::Tensor scores, const ops::SampleBatch& batch) const override {
    return ops::sample(std::move(scores), batch);
  }
  at::Tensor sample(at::Tensor scores, const ops::SamplingBuffers& buffers) const override {
    return ops::sample(std::move(scores), buffers);
  }
  ops::BestScores best_scores(const at::Tensor& scores) const override { return ops::best_scores(scores); }
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                at::Tensor& v_cache) const override {
    ops::write_kv(k, v, slots, k_cache, v_cache);
  }
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const ops::HeadNorms& norms,
                          const ops::Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache,
                          at::Tensor& v_cache) const override {
    return ops::rotary_write(qkv, heads, norms, rotation, slots, k_cache, v_cache);
  }
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const ops::StepSequences& sequences, const ops::AttentionOptions& options,
                              std::vector<at::Tensor>* probabilities) const override {
    return ops::ragged_attention(q, k, v, sequences, options, probabilities);
  }
  void add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                            const ops::RelativeContent& content, const ops::RelativeSequence& sequence) const override {
    ops::add_relative_content(scores, q, k, content, sequence);
  }
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const ops::StepSequences& sequences, const ops::AttentionOptions& options) const override {
    return ops::paged_attention(q, k_cache, v_cache, sequences, options);
  }

 private:
  at::DeviceType type_;
};

}  // namespace pm::bench
