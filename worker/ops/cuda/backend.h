// The kernels of this folder behind worker/ops/backend.h. Knows ATen's tensors but no CUDA header: what it needs of a device comes as functions, so that the
// same file serves a GPU and the emulation of one (tests/pretend).
#pragma once
#include "worker/ops/backend.h"
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// A kind of device as the kernels see it.
struct Host {
  void* (*address)(const void*);       ///< of a tensor's memory, for a kernel
  Stream (*stream)(at::Device);        ///< the calling thread's current one
  int (*processors)(at::Device);       ///< multiprocessors
  bool matrix_units;                   ///< whether at::mm multiplies 16-bit matrices into fp32
};

class Kernels final : public Backend {
 public:
  explicit Kernels(const Host& host) : host_(host) {}
  /// Few rows: products that read each weight once. Many: ATen's, of 16-bit factors into fp32 where the weights are 16-bit.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const override;
  /// Likewise; where groups are not of 16 inputs or all, ATen's.
  at::Tensor int8_linear(const at::Tensor& x, const Int8Matrix&, const at::Tensor& bias) const override;
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) const override;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) const override;
  at::Tensor sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps) const override;
  at::Tensor sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre) const override;
  Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override;
  at::Tensor rotate(const at::Tensor& x, const Angles&, bool halves) const override;
  at::Tensor gated_silu(const at::Tensor& x) const override;
  bool draws() const override { return true; }
  at::Tensor draw(at::Tensor scores, const Draws&) const override;
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override;
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const Rotation&, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override;
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sequences&, const AttentionOptions&, std::vector<at::Tensor>* probabilities) const override;
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const Sequences&, const AttentionOptions&) const override;

 private:
  at::Tensor norm(const at::Tensor& x, const at::Tensor& residual, bool rms, const at::Tensor& gain, double centre, const at::Tensor& bias, double eps) const;
  template <typename T = void>
  T* address(const at::Tensor& tensor) const { return tensor.defined() ? static_cast<T*>(host_.address(tensor.const_data_ptr())) : nullptr; }
  Stream stream(const at::Tensor& tensor) const { return host_.stream(tensor.device()); }
  Host host_;
};

}  // namespace pm::ops::cuda
