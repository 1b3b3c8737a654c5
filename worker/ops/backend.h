// SPDX-License-Identifier: Apache-2.0
// The kernels of one device type behind the functions of attention.h, fused.h, linear.h and sample.h, which dispatch by
// the device of their argument.
#pragma once
#include <optional>

#include "worker/ops/attention.h"
#include "worker/ops/fused.h"
#include "worker/ops/quantized_matrix.h"
#include "worker/ops/sample.h"

namespace pm::ops {

/// The default implementation of all operations by ATen; a device overrides the ones for which it has kernels.
/// Arguments and results are those of the free functions of the same names, without default arguments. Tensors lie on
/// the device, spans and block tables in host memory.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual at::ScalarType activation_type(at::ScalarType /*compute*/) const { return at::kFloat; }
  /// Returns whether linear() rounds fp32 x to the type of weights of this type.
  virtual bool rounds_inputs(at::ScalarType /*weight*/) const { return false; }
  virtual std::optional<int64_t> rows_of_equal_bits(at::ScalarType /*compute*/, bool /*as_codes*/) const {
    return std::nullopt;
  }
  virtual at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            at::ScalarType result) const;
  virtual at::Tensor quantized_linear(const at::Tensor& x, const QuantizedMatrix&, const at::Tensor& bias,
                                      at::ScalarType result) const;
  virtual at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                                at::ScalarType result) const;
  virtual at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                              at::ScalarType result) const;
  virtual at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                          const at::Tensor& bias, double eps, at::ScalarType result) const;
  virtual at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                        double weight_offset, at::ScalarType result) const;
  virtual Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const;
  virtual at::Tensor rotate(const at::Tensor& x, const Angles&, bool is_neox) const;
  virtual at::Tensor silu_and_mul(const at::Tensor& x) const;
  /// Returns whether sample() is implemented; the ATen default has no sampler.
  virtual bool has_sampler() const { return false; }
  virtual at::Tensor sample(at::Tensor scores, const SampleBatch&) const;
  virtual at::Tensor sample(at::Tensor scores, const SamplingBuffers&) const;
  virtual BestScores best_scores(const at::Tensor& scores) const;
  virtual void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                        at::Tensor& v_cache) const;
  virtual at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const HeadNorms&, const Rotation&,
                                  const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const;
  /// Returns the metadata of these sequences, at least one, for the attention of all layers. ATen's attention reads the
  /// spans and needs none.
  virtual AttentionMetadata attention_metadata(std::span<const SequenceSpan>, at::Device) const { return {}; }
  virtual at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const StepSequences&, const AttentionOptions&,
                                      std::vector<at::Tensor>* probabilities) const;
  virtual at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                                     const StepSequences&, const AttentionOptions&) const;

  virtual void add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                                    const RelativeContent&, const RelativeSequence&) const;

 protected:
  /// Computes the rows of sequence `i` of paged_attention's result by matrix products on its gathered keys and values.
  static void attend_many(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                          const StepSequences& sequences, size_t i, const AttentionOptions& options, at::Tensor& out);
};

/// Returns the CPU backend (worker/ops/cpu).
const Backend& cpu_backend();
/// Registers `backend`, which must outlive all tensors, for devices of this type; other types use the ATen default. It
/// is called before the first tensor of that type.
void register_backend(at::DeviceType, const Backend& backend);

}  // namespace pm::ops
