// See backend.h: who serves which device.
#include "worker/ops/backend.h"

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

const Backend& of(const at::Tensor& x) {
  static const Backend& cpu = cpu_backend();
  return x.is_cpu() ? cpu : *backends()[static_cast<size_t>(x.device().type())];
}

}  // namespace

void use_backend(at::DeviceType type, const Backend& backend) { backends()[static_cast<size_t>(type)] = &backend; }

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) { return of(x).linear(x, weight, {}); }
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) { return of(x).linear(x, weight, bias); }
at::Tensor linear(const at::Tensor& x, const Int8Matrix& matrix, const at::Tensor& bias) { return of(x).int8_linear(x, matrix, bias); }
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) { return of(x).layer_norm(x, gain, bias, eps); }
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) { return of(x).rms_norm(x, gain, eps, centre); }
at::Tensor sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps) { return of(x).sum_layer_norm(x, residual, gain, bias, eps); }
at::Tensor sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre) { return of(x).sum_rms_norm(x, residual, gain, eps, centre); }
Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) { return of(positions).rotary_angles(positions, frequencies, factor); }
at::Tensor rotate(const at::Tensor& x, const Angles& angles, bool halves) { return of(x).rotate(x, angles, halves); }
at::Tensor gated_silu(const at::Tensor& x) { return of(x).gated_silu(x); }

bool draws(at::DeviceType type) { return backends()[static_cast<size_t>(type)]->draws(); }
at::Tensor draw(at::Tensor scores, const Draws& draws) { return of(scores).draw(std::move(scores), draws); }

void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) {
  of(k).write_kv(k, v, slots, k_cache, v_cache);
}

at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) {
  return of(qkv).rotary_write(qkv, heads, rotation, slots, k_cache, v_cache);
}

at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sequences& sequences, const AttentionOptions& options,
                            std::vector<at::Tensor>* probabilities) {
  return of(q).ragged_attention(q, k, v, sequences, options, probabilities);
}

at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const Sequences& sequences, const AttentionOptions& options) {
  return of(q).paged_attention(q, k_cache, v_cache, sequences, options);
}

}  // namespace pm::ops
