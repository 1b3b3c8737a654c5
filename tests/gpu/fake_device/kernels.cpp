// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels at work on the fake device, by the emulation of tests/gpu/kernels: with PM_FAKE_KERNELS set, the
// worker runs them where it would run them on a GPU, through the same dispatch, on the same tables. Without it ATen's
// operations serve.
#include <ATen/ATen.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <type_traits>

#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/graphs.h"
#include "worker/ops/cuda/backend.h"

namespace pm::emulation {
extern thread_local std::function<void(std::function<void()>)>
    on_launch;  // of tests/gpu/kernels/emulation/emulation.h, which redefines CUDA's keywords
}

namespace pm::fake_device {

namespace {

class SerializedBackend final : public ops::Backend {
 public:
  at::ScalarType activation_type(at::ScalarType compute) const override { return kernels_.activation_type(compute); }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType result) const override {
    return serialized([&] { return kernels_.linear(x, weight, bias, result); });
  }
  at::Tensor quantized_linear(const at::Tensor& x, const ops::QuantizedMatrix& w, const at::Tensor& bias,
                              at::ScalarType result) const override {
    return serialized([&] { return kernels_.quantized_linear(x, w, bias, result); });
  }
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                        at::ScalarType result) const override {
    return serialized([&] { return kernels_.layer_norm(x, weight, bias, eps, result); });
  }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                      at::ScalarType result) const override {
    return serialized([&] { return kernels_.rms_norm(x, weight, eps, weight_offset, result); });
  }
  at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                  const at::Tensor& bias, double eps, at::ScalarType result) const override {
    return serialized([&] { return kernels_.fused_add_layer_norm(x, residual, weight, bias, eps, result); });
  }
  at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                double weight_offset, at::ScalarType result) const override {
    return serialized([&] { return kernels_.fused_add_rms_norm(x, residual, weight, eps, weight_offset, result); });
  }
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const ops::HeadNorms& norms,
                          const ops::Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache,
                          at::Tensor& v_cache) const override {
    return serialized([&] { return kernels_.rotary_write(qkv, heads, norms, rotation, slots, k_cache, v_cache); });
  }
  ops::Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override {
    return serialized([&] { return kernels_.rotary_angles(positions, frequencies, factor); });
  }
  at::Tensor rotate(const at::Tensor& x, const ops::Angles& angles, bool is_neox) const override {
    return serialized([&] { return kernels_.rotate(x, angles, is_neox); });
  }
  at::Tensor silu_and_mul(const at::Tensor& x) const override {
    return serialized([&] { return kernels_.silu_and_mul(x); });
  }
  bool has_sampler() const override { return kernels_.has_sampler(); }
  at::Tensor sample(at::Tensor scores, const ops::SampleBatch& batch) const override {
    return serialized([&] { return kernels_.sample(scores, batch); });
  }
  at::Tensor sample(at::Tensor scores, const ops::SamplingBuffers& buffers) const override {
    return serialized([&] { return kernels_.sample(scores, buffers); });
  }
  ops::BestScores best_scores(const at::Tensor& scores) const override {
    return serialized([&] { return kernels_.best_scores(scores); });
  }
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache,
                at::Tensor& v_cache) const override {
    serialized([&] { kernels_.write_kv(k, v, slots, k_cache, v_cache); });
  }
  ops::AttentionMetadata attention_metadata(std::span<const ops::SequenceSpan> sequences,
                                            at::Device device) const override {
    return kernels_.attention_metadata(sequences, device);
  }
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const ops::StepSequences& sequences, const ops::AttentionOptions& options,
                              std::vector<at::Tensor>* probabilities) const override {
    return serialized([&] { return kernels_.ragged_attention(q, k, v, sequences, options, probabilities); });
  }
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const ops::StepSequences& sequences, const ops::AttentionOptions& options) const override {
    return serialized([&] { return kernels_.paged_attention(q, k_cache, v_cache, sequences, options); });
  }

 private:
  template <typename F>
  std::invoke_result_t<F> serialized(F&& f) const {
    synchronize_current_stream(
        at::Device(at::DeviceType::PrivateUse1, current_device()));  // before the lock, while others may launch
    const std::lock_guard lock(launch_mutex);
    return f();
  }
  ops::cuda::CudaBackend kernels_{{.address = &host_address,
                                   .stream = [](at::Device device) -> ops::cuda::Stream {
                                     require_current(device);
                                     synchronize_current_stream(device);  // a launch reads what a copy before it wrote
                                     return nullptr;
                                   },
                                   .multiprocessors = [](at::Device) { return 4; },
                                   .compute_capability = [](at::Device) { return 90; }}};
};

/// Adds the launches of a capture to its operations.
void observe_launches(Capture* one) {
  emulation::on_launch = nullptr;
  if (one) emulation::on_launch = [one](std::function<void()> again) { one->add(std::move(again)); };
}

[[maybe_unused]] const bool registered = [] {
  if (!std::getenv("PM_FAKE_KERNELS")) return false;
  static const SerializedBackend kernels;
  observe_capture = &observe_launches;
  ops::register_backend(at::DeviceType::PrivateUse1, kernels);
  return true;
}();

}  // namespace

}  // namespace pm::fake_device
