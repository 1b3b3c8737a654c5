// The CUDA kernels at work on the pretended device, by the emulation of tests/cuda: with PM_PRETEND_KERNELS set, the worker runs them where it would run them on a
// GPU, through the same dispatch, on the same tables. Without it ATen's operations serve.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <type_traits>

#include "tests/pretend/device.h"
#include "worker/ops/cuda/backend.h"
#include "worker/ops/graph.h"

namespace pm::emulation {
extern thread_local std::function<void(std::function<void()>)> on_launch;   // tests/cuda/emulation/emulation.h, which makes CUDA's words out of others
}

namespace pm::pretend {

namespace {

std::mutex one_at_a_time;   // the emulation runs one launch at a time, ranks are threads

class OneAtATime final : public ops::Backend {
 public:
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const override { return alone([&] { return kernels_.linear(x, weight, bias); }); }
  at::Tensor int8_linear(const at::Tensor& x, const ops::Int8Matrix& w, const at::Tensor& bias) const override { return alone([&] { return kernels_.int8_linear(x, w, bias); }); }
  at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) const override { return alone([&] { return kernels_.layer_norm(x, gain, bias, eps); }); }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) const override { return alone([&] { return kernels_.rms_norm(x, gain, eps, centre); }); }
  at::Tensor sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps) const override { return alone([&] { return kernels_.sum_layer_norm(x, residual, gain, bias, eps); }); }
  at::Tensor sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre) const override { return alone([&] { return kernels_.sum_rms_norm(x, residual, gain, eps, centre); }); }
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const ops::Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override {
    return alone([&] { return kernels_.rotary_write(qkv, heads, rotation, slots, k_cache, v_cache); });
  }
  ops::Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override { return alone([&] { return kernels_.rotary_angles(positions, frequencies, factor); }); }
  at::Tensor rotate(const at::Tensor& x, const ops::Angles& angles, bool halves) const override { return alone([&] { return kernels_.rotate(x, angles, halves); }); }
  at::Tensor gated_silu(const at::Tensor& x) const override { return alone([&] { return kernels_.gated_silu(x); }); }
  bool draws() const override { return kernels_.draws(); }
  at::Tensor draw(at::Tensor scores, const ops::Draws& draws) const override { return alone([&] { return kernels_.draw(scores, draws); }); }
  void write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& slots, at::Tensor& k_cache, at::Tensor& v_cache) const override { alone([&] { kernels_.write_kv(k, v, slots, k_cache, v_cache); }); }
  at::Tensor ragged_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ops::Sequences& sequences, const ops::AttentionOptions& options, std::vector<at::Tensor>* probabilities) const override {
    return alone([&] { return kernels_.ragged_attention(q, k, v, sequences, options, probabilities); });
  }
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const ops::Sequences& sequences, const ops::AttentionOptions& options) const override {
    return alone([&] { return kernels_.paged_attention(q, k_cache, v_cache, sequences, options); });
  }

 private:
  template <typename F>
  std::invoke_result_t<F> alone(F&& f) const {
    catch_up(c10::impl::getDeviceGuardImpl(at::DeviceType::PrivateUse1)->getDevice());   // not while others wait for their turn
    const std::lock_guard lock(one_at_a_time);
    return f();
  }
  ops::cuda::Kernels kernels_{{.address = &host_address, .stream = [](at::Device) -> ops::cuda::Stream { return nullptr; }, .processors = [](at::Device) { return 4; }, .matrix_units = false}};
};

/// What a GPU's graph does: the same launches and operations in the same order on the same memory, whatever lies there now. PM_PRETEND_GRAPHS asks for it.
class Recorded final : public ops::Graph {
 public:
  explicit Recorded(const std::function<void()>& body) {
    recording = &all_;
    emulation::on_launch = [this](std::function<void()> again) { all_.steps.push_back(std::move(again)); };
    const auto stop = [] { recording = nullptr, emulation::on_launch = nullptr; };
    try {
      body();
      const char* refused = std::getenv("PM_PRETEND_NO_GRAPHS_ON");   // the number of a device that has no memory for them
      const int here = c10::impl::getDeviceGuardImpl(at::DeviceType::PrivateUse1)->getDevice().index();
      TORCH_CHECK_WITH(OutOfMemoryError, !refused || std::atoi(refused) != here, "pretend out of memory for a graph");
    } catch (...) {
      stop();
      throw;
    }
    stop();
  }
  void replay() override {
    const std::lock_guard lock(one_at_a_time);
    for (const auto& step : all_.steps) step();
  }

 private:
  Recording all_;
};

[[maybe_unused]] const bool registered = [] {
  if (!std::getenv("PM_PRETEND_KERNELS")) return false;
  static const OneAtATime kernels;
  if (std::getenv("PM_PRETEND_GRAPHS")) {
    ops::use_recorder(at::DeviceType::PrivateUse1, [](at::Device, const std::function<void()>& body) -> std::unique_ptr<ops::Graph> { return std::make_unique<Recorded>(body); });
  }
  ops::use_backend(at::DeviceType::PrivateUse1, kernels);
  return true;
}();

}  // namespace

}  // namespace pm::pretend
