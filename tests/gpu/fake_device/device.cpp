// SPDX-License-Identifier: Apache-2.0
// The fake device backend, for machines without a GPU: a PyTorch device named "fake". Host code cannot touch its
// addresses, as it cannot touch a GPU's. ATen's operations run on the CPU behind them; an operation on tensors of
// several devices is refused, as on a GPU. So a program that runs here and computes the right numbers places its
// tensors correctly. Operations are done when they return, after the pending work of the device's stream (stream.h).
// PM_FAKE_DEVICES is the number of devices (default 2).
#include "tests/gpu/fake_device/device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "tests/gpu/fake_device/blas.h"
#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/graphs.h"
#include "tests/gpu/fake_device/memory.h"
#include "tests/gpu/fake_device/streams.h"
#include "worker/ops/device_memory.h"

namespace pm::fake_device {

namespace {

constexpr auto type = device_type;
std::atomic<bool> broken{false};
std::atomic<int64_t> blocking{0};  ///< copies

int device_count() {
  static const int count = static_cast<int>(environment_integer("PM_FAKE_DEVICES", 2));
  return count;
}

/// Throws c10::Error once a test has broken the device: every call that waits for it reports the error.
void require_working() { TORCH_CHECK(!broken, "CUDA error: unspecified launch failure"); }

class FakeDriver final : public ops::Driver {
 public:
  /// Destroys the context that the query created, as the driver of CUDA does.
  MemoryInfo memory_info(at::Device device) const override {
    const bool used = has_context(device.index());
    const MemoryInfo info = ops::Driver::memory_info(device);
    if (!used) forget_context(device.index());
    return info;
  }
  std::string product(at::Device) const override { return "Fake"; }
  bool set_memory_limit(at::Device device, int64_t bytes) const override {
    Memory::instance().limit(device.index(), bytes);
    return true;
  }
};

/// Selects devices where c10::cuda::impl::CUDAGuardImpl does: calls that depend on a stream's device select it and then
/// select the device before, which makes a context there.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(at::DeviceType) {}
  at::DeviceType type() const override { return fake_device::type; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override { return {fake_device::type, current_device()}; }
  void setDevice(at::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "device ", device, " of ", device_count());
    if (device.has_index()) set_device(device.index());
  }
  void uncheckedSetDevice(at::Device device) const noexcept override { maybe_set_device(device.index()); }
  c10::Stream getStream(at::Device device) const override { return Streams::instance().current(indexed(device)); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    return Streams::instance().from_pool(indexed(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return Streams::instance().exchange(stream); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (!event) return;
    visit(device, [&] { Streams::destroy(event); });
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    visit(stream.device_index(), [&] { Streams::instance().record(event, stream); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    visit(stream.device_index(), [&] { Streams::instance().block(event, stream); });
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    use_runtime();
    require_working();
    return Streams::instance().is_done(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    const OnDevice here(stream.device_index());
    use_runtime();
    return Streams::instance().is_done(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const OnDevice here(stream.device_index());
    use_runtime();
    require_working();
    Streams::instance().finish(stream);
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    use_runtime();
    require_working();
    Streams::instance().wait(event);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    require_working();
    visit(device, [&] { Streams::instance().finish(device); });
  }

 private:
  at::Device indexed(at::Device device) const { return device.has_index() ? device : getDevice(); }
  template <class Call>
  static void visit(c10::DeviceIndex device, Call&& call) {
    const c10::DeviceIndex before = current_device();
    if (device >= 0) set_device(device);
    use_runtime();
    call();
    set_device(before);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return has_context(device); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &Pinned::instance(); }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current_device())));
  return at::detail::empty_generic(size, &Memory::instance(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current_device())));
  return at::detail::empty_strided_generic(size, stride, &Memory::instance(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

thread_local bool inside = false;  // within an operation, whose own copies are neither captured nor counted

/// Keeps no reference to the tensors unless a graph is captured, so that memory freed before the copy is an error.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (capture && !inside) {
    const at::Tensor* host = from.is_cpu() ? &from : to.is_cpu() ? &to : nullptr;
    if (host && !(non_blocking && Pinned::instance().owns(host->const_data_ptr())))
      capture->refuse("a copy between a device and pageable memory");
    capture->add([from, to] { host_view(to).copy_(host_view(from)); });
  }
  const at::Device device = to.is_cpu() ? from.device() : to.device();
  const OnDevice here(device.index());
  use_runtime();
  const auto seen = [](const at::Tensor& tensor) {
    return tensor.numel() == 0 ? at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()))
                               : at::from_blob(Memory::instance().host(tensor.data_ptr()), tensor.sizes(),
                                               tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  };
  const auto copy = [from = seen(from), to = seen(to)] { to.copy_(from); };
  if (non_blocking || from.device().type() == to.device().type()) {
    Streams::instance().enqueue(device, copy);
  } else {
    if (!inside) ++blocking;
    static const bool report = std::getenv("PM_FAKE_COPIES") != nullptr;
    if (report && !inside) std::fprintf(stderr, "fake device: the host waits for a copy of %zu bytes\n", to.nbytes());
    synchronize_current_stream(device);
    copy();
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  if (capture && !inside) capture->refuse("the host reads a value of the device");
  return host_view(tensor).item();
}

/// Refuses tensors of several devices, zero-dimensional CPU tensors excepted, as ATen's CUDA kernels do; then runs the
/// operation on the CPU.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<at::Device> seen;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
    if (seen && *seen != tensor.device())
      throw std::runtime_error(op.schema().operator_name().name + " got tensors on " + seen->str() + " and on " +
                               tensor.device().str());
    seen = tensor.device();
  };
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = stack->size() - arguments; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (value.isTensor()) look(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        if (tensor) look(*tensor);
  }
  const at::Device device = seen.value_or(at::Device(type, current_device()));
  const OnDevice here(device.index());
  use_runtime();
  synchronize_current_stream(device);
  if (!inside && is_blas(op.schema().operator_name().name)) use_blas(device);
  const torch::jit::Stack given(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  const bool captured = capture && !inside;
  const auto run = [op](torch::jit::Stack& values) {
    const bool was_inside = std::exchange(inside, true);
    try {
      at::native::cpu_fallback(op, &values);
    } catch (...) {
      inside = was_inside;
      throw;
    }
    inside = was_inside;
  };
  run(*stack);
  if (!captured) return;
  const size_t results = op.schema().returns().size();
  const torch::jit::Stack made(stack->end() - static_cast<std::ptrdiff_t>(results), stack->end());
  capture->add([run, given, made] {
    torch::jit::Stack values = given;
    run(values);
    for (size_t i = 0; i < made.size(); ++i) {  // the results replace those of the capture
      if (!made[i].isTensor())
        throw std::logic_error("an operation whose results are not all tensors cannot be captured");
      const at::Tensor &old = made[i].toTensor(), &fresh = values[i].toTensor();
      if (old.data_ptr() != fresh.data_ptr()) host_view(old).copy_(host_view(fresh));
    }
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("as_strided",
               [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
                 return at::cpu::as_strided(self, size, stride, offset);
               });
  library.impl("view", [](const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); });
  library.impl("_reshape_alias", [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
    return at::native::_reshape_alias(self, size, stride);
  });
  library.impl(
      "resize_",
      [](const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) -> const at::Tensor& {
        return at::native::resize_(self, size, format);
      });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("fake");
  c10::SetAllocator(type, &Memory::instance());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  ops::register_driver(type, *new FakeDriver);
  return true;
}();

}  // namespace

int64_t environment_integer(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void break_device(bool so) { broken = so; }
int64_t blocking_copies() { return blocking; }

void synchronize_current_stream(at::Device device) {
  if (device.type() == type) Streams::instance().finish(Streams::instance().current(device));
}

void take_outside_allocator(int device, int64_t bytes) {
  Memory::instance().take_outside_allocator(static_cast<c10::DeviceIndex>(device), bytes);
}

void* host_address(const void* address) { return Memory::instance().host(address); }

at::Tensor host_view(const at::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.numel() == 0)
    return tensor.is_cpu() ? tensor : at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  synchronize_current_stream(tensor.device());
  return at::from_blob(Memory::instance().host(tensor.data_ptr()), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

}  // namespace pm::fake_device
