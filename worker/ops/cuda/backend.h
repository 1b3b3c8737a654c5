// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: the kernels of this folder behind worker/ops/backend.h. It uses ATen's tensors but no CUDA header:
// device access comes as functions, so that the same file serves a GPU and the fake device (tests/gpu/fake_device).
#pragma once
#include "worker/ops/backend.h"
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Access to a device type.
struct DeviceHooks {
  void* (*address)(const void*);       ///< maps a tensor's pointer to the one that kernels use
  Stream (*stream)(at::Device);        ///< the calling thread's current stream
  int (*multiprocessors)(at::Device);  ///< number of multiprocessors
  bool matrix_units;                   ///< whether at::mm multiplies 16-bit matrices into fp32
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const DeviceHooks& hooks) : hooks_(hooks) {}
  /// Few rows: gemv(), which reads each weight once. Many rows: ATen's GEMM; 16-bit weights are multiplied with 16-bit
  /// rows into fp32.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const override;
  /// As linear(); groups that are neither a multiple of 16 inputs nor the whole row go to ATen.
  at::Tensor int8_linear(const at::Tensor& x, const Int8Matrix&, const at::Tensor& bias) const override;
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        double eps) const override;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset) const override;
  at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                  const at::Tensor& bias, double eps) const override;
  at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                double weight_offset) const override;
  Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override;
  at::Tensor rotate(const at::Tensor& x, const Angles&, bool is_neox) const override;
  at::Tensor silu_and_mul(const at::Tensor& x) const override;
  bool has_sampler() const override { return true; }
  at::Tensor sample(at::Tensor scores, const SampleBatch&) const override;
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                at::Tensor& v_cache) const override;
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const Rotation&, const at::Tensor& slots,
                          at::Tensor& k_cache, at::Tensor& v_cache) const override;
  AttentionMetadata attention_metadata(std::span<const SequenceSpan>, at::Device) const override;
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const StepSequences&,
                              const AttentionOptions&, std::vector<at::Tensor>* probabilities) const override;
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const StepSequences&, const AttentionOptions&) const override;

 private:
  at::Tensor norm(const at::Tensor& x, const at::Tensor& residual, bool rms, const at::Tensor& weight,
                  double weight_offset, const at::Tensor& bias, double eps) const;
  template <typename T = void>
  T* address(const at::Tensor& tensor) const {
    return tensor.defined() ? static_cast<T*>(hooks_.address(tensor.const_data_ptr())) : nullptr;
  }
  Stream stream(const at::Tensor& tensor) const { return hooks_.stream(tensor.device()); }
  DeviceHooks hooks_;
};

}  // namespace pm::ops::cuda
