// One kind of device's kernels behind the functions of attention.h, fused.h and linear.h, which choose by the tensor they are given.
#pragma once
#include "worker/ops/attention.h"
#include "worker/ops/draw.h"
#include "worker/ops/fused.h"
#include "worker/ops/int8.h"

namespace pm::ops {

/// What every device can do, made of ATen's operations; a device overrides what it does better. Arguments and results are those of the functions
/// of the same names; tensors are on the device, spans and their blocks in the host's memory.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;
  virtual at::Tensor int8_linear(const at::Tensor& x, const Int8Matrix&, const at::Tensor& bias) const;
  virtual at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) const;
  virtual at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) const;
  virtual at::Tensor sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps) const;
  virtual at::Tensor sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre) const;
  virtual Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const;
  virtual at::Tensor rotate(const at::Tensor& x, const Angles&, bool halves) const;
  virtual at::Tensor gated_silu(const at::Tensor& x) const;
  /// Whether draw() is there; ATen's operations have none.
  virtual bool draws() const { return false; }
  virtual at::Tensor draw(at::Tensor scores, const Draws&) const;
  virtual void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const;
  virtual at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const Rotation&, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const;
  virtual at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sequences&, const AttentionOptions&,
                                      std::vector<at::Tensor>* probabilities) const;
  virtual at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const Sequences&, const AttentionOptions&) const;

 protected:
  /// One sequence's rows of paged_attention's result, by matrix products on its gathered keys and values.
  static void attend_many(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const SequenceSpan&, const AttentionOptions&, at::Tensor& out);
};

/// The processor's kernels (worker/ops/cpu).
const Backend& cpu_backend();
/// From here on tensors on devices of this type go to `backend`, which stays; before, ATen's operations serve them. Call before the first tensor of that type.
void use_backend(at::DeviceType, const Backend& backend);

}  // namespace pm::ops
