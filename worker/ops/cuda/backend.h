// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: the kernels of this folder behind worker/ops/backend.h. It uses ATen's tensors but no CUDA header:
// device access comes as functions, so that the same file serves a GPU and the fake device (tests/gpu/fake_device).
#pragma once
#include "worker/ops/backend.h"
#include "worker/ops/cuda/linear/gemv.h"
#include "worker/ops/cuda/rotary.h"
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Access to a device type.
struct DeviceHooks {
  void* (*address)(const void*);          ///< maps a tensor's pointer to the one that kernels use
  Stream (*stream)(at::Device);           ///< the calling thread's current stream
  int (*multiprocessors)(at::Device);     ///< number of multiprocessors
  int (*compute_capability)(at::Device);  ///< 10 x major + minor: 90 is sm_90
};

/// What computes the attention of several queries a sequence.
enum class PrefillPath : uint8_t {
  Flash,        ///< FlashAttention-2 of PyTorch, on 16-bit tensors
  TensorCores,  ///< prefill_attention() on 16-bit tensors
  Fp32          ///< prefill_attention() with products in fp32
};

/// Returns what computes attention with keys of `type`. PyTorch's FlashAttention is built without soft caps and without
/// ALiBi, has no relative position bias, and takes heads of a multiple of 8 and at most 256 elements. It places the
/// last query of a sequence at the last key: a mask that depends on positions is right only where `ends_with_queries`.
PrefillPath prefill_path(const AttentionOptions&, at::ScalarType type, int64_t head_dim, bool ends_with_queries,
                         int compute_capability);

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DeviceHooks& hooks) : hooks_(hooks) {}
  at::ScalarType activation_type(at::ScalarType compute) const override;
  /// Few rows: gemv(), which reads each weight once. More rows: ATen's GEMM. Both round x to 16-bit weights, add in
  /// fp32 and round the result once.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType result) const override;
  /// As linear(), where weights and x are rounded to the matrix' compute_type. For more rows the weights are widened to
  /// it in a workspace, tile by tile (widened_tile_rows).
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
  bool has_sampler() const override { return true; }
  at::Tensor sample(at::Tensor scores, const SampleBatch&) const override;
  at::Tensor sample(at::Tensor scores, const SamplingBuffers&) const override;
  ops::BestScores best_scores(const at::Tensor& scores) const override;
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                at::Tensor& v_cache) const override;
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const ops::HeadNorms&, const Rotation&,
                          const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override;
  AttentionMetadata attention_metadata(std::span<const SequenceSpan>, at::Device) const override;
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const StepSequences&,
                              const AttentionOptions&, std::vector<at::Tensor>* probabilities) const override;
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const StepSequences&, const AttentionOptions&) const override;

 private:
  /// Launches norm(). With a residual, x must be contiguous and becomes the sum.
  at::Tensor norm(at::Tensor& x, const at::Tensor& residual, bool rms, const at::Tensor& weight, double weight_offset,
                  const at::Tensor& bias, double eps, at::ScalarType result) const;
  /// Launches gemv() with these weights.
  at::Tensor run_gemv(const at::Tensor& x, Gemv weights, const at::Tensor& bias, at::ScalarType result) const;
  HeadNorm head_norm(const std::optional<ops::HeadNorm>&) const;
  /// Writes the result of paged_attention's sequences with several queries to their rows of `out`.
  void paged_prefill(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const StepSequences&,
                     const AttentionOptions&, at::Tensor& out) const;
  template <typename T = void>
  T* address(const at::Tensor& tensor) const {
    return tensor.defined() ? static_cast<T*>(hooks_.address(tensor.const_data_ptr())) : nullptr;
  }
  Stream stream(const at::Tensor& tensor) const { return hooks_.stream(tensor.device()); }
  DeviceHooks hooks_;
};

}  // namespace pm::ops::cuda
