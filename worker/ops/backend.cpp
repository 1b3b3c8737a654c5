// SPDX-License-Identifier: Apache-2.0
// Dispatches each operation to the backend of its tensor's device.
#include "worker/ops/backend.h"

#include <ATen/ATen.h>

#include <array>

#include "worker/ops/linear.h"

namespace pm::ops {

namespace {

using Backends = std::array<const Backend*, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

Backends& backends() {
  static const Backend aten;
  static Backends all = [] {
    Backends made;
    made.fill(&aten);
    made[static_cast<size_t>(at::DeviceType::CPU)] = &cpu_backend();
    return made;
  }();
  return all;
}

const Backend& backend_for(at::DeviceType type) {
  static const Backend& cpu = cpu_backend();
  return type == at::kCPU ? cpu : *backends()[static_cast<size_t>(type)];
}
const Backend& backend_for(const at::Tensor& x) { return backend_for(x.device().type()); }

}  // namespace

void register_backend(at::DeviceType type, const Backend& backend) { backends()[static_cast<size_t>(type)] = &backend; }

at::ScalarType activation_type(at::DeviceType type, at::ScalarType compute) {
  return backend_for(type).activation_type(compute);
}
std::optional<int64_t> rows_of_equal_bits(at::DeviceType type, at::ScalarType compute, bool as_codes) {
  return backend_for(type).rows_of_equal_bits(compute, as_codes);
}
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  return backend_for(x).linear(x, weight, {}, at::kFloat);
}
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType result) {
  return backend_for(x).linear(x, weight, bias, result);
}
at::Tensor unrounded_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const Backend& backend = backend_for(x);
  if (x.scalar_type() != at::kFloat || !backend.rounds_inputs(weight.scalar_type()))
    return backend.linear(x, weight, bias, at::kFloat);
  const at::Tensor high = x.to(weight.scalar_type()).to(at::kFloat), rest = x - high,
                   middle = rest.to(weight.scalar_type()).to(at::kFloat);
  const at::Tensor y = backend.linear(at::cat({high, middle, rest - middle}), weight, {}, at::kFloat);
  const int64_t rows = x.size(0);
  const at::Tensor sum = y.narrow(0, 2 * rows, rows) + y.narrow(0, rows, rows) + y.narrow(0, 0, rows);
  return bias.defined() ? sum + bias : sum;
}
at::Tensor linear(const at::Tensor& x, const QuantizedMatrix& matrix, const at::Tensor& bias, at::ScalarType result) {
  return backend_for(x).quantized_linear(x, matrix, bias, result);
}
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      at::ScalarType result) {
  return backend_for(x).layer_norm(x, weight, bias, eps, result);
}
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                    at::ScalarType result) {
  return backend_for(x).rms_norm(x, weight, eps, weight_offset, result);
}
at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                const at::Tensor& bias, double eps, at::ScalarType result) {
  return backend_for(x).fused_add_layer_norm(x, residual, weight, bias, eps, result);
}
at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                              double weight_offset, at::ScalarType result) {
  return backend_for(x).fused_add_rms_norm(x, residual, weight, eps, weight_offset, result);
}
Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) {
  return backend_for(positions).rotary_angles(positions, frequencies, factor);
}
at::Tensor rotate(const at::Tensor& x, const Angles& angles, bool is_neox) {
  return backend_for(x).rotate(x, angles, is_neox);
}
at::Tensor silu_and_mul(const at::Tensor& x) { return backend_for(x).silu_and_mul(x); }

bool has_sampler(at::DeviceType type) { return backends()[static_cast<size_t>(type)]->has_sampler(); }
at::Tensor sample(at::Tensor scores, const SampleBatch& batch) {
  return backend_for(scores).sample(std::move(scores), batch);
}
at::Tensor sample(at::Tensor scores, const SamplingBuffers& buffers) {
  return backend_for(scores).sample(std::move(scores), buffers);
}
BestScores best_scores(const at::Tensor& scores) { return backend_for(scores).best_scores(scores); }

void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
              at::Tensor& v_cache) {
  backend_for(k).write_kv(k, v, slots, k_cache, v_cache);
}

at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const HeadNorms& norms, const Rotation& rotation,
                        const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) {
  return backend_for(qkv).rotary_write(qkv, heads, norms, rotation, slots, k_cache, v_cache);
}

void make_attention_metadata(StepSequences& sequences, at::Device device) {
  if (sequences.metadata.buffer.defined() || sequences.spans.empty()) return;
  sequences.metadata = backend_for(device.type()).attention_metadata(sequences.spans, device);
}

at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const StepSequences& sequences, const AttentionOptions& options,
                            std::vector<at::Tensor>* probabilities) {
  return backend_for(q).ragged_attention(q, k, v, sequences, options, probabilities);
}

void add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k, const RelativeContent& content,
                          const RelativeSequence& sequence) {
  backend_for(scores).add_relative_content(scores, q, k, content, sequence);
}

at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           const StepSequences& sequences, const AttentionOptions& options) {
  return backend_for(q).paged_attention(q, k_cache, v_cache, sequences, options);
}

}  // namespace pm::ops
