// A device of its own memory for machines without one: "pretend". Its addresses cannot be touched by the host's code, as a GPU's cannot; ATen's operations run
// on the processor behind them, and one that gets tensors of several devices is refused, as it is on a GPU. So whatever runs here and gives the
// right numbers moves its tensors where they belong. PM_PRETEND_DEVICES says how many there are (default 2).
#include "tests/pretend/device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace pm::pretend {

namespace {

constexpr auto type = at::DeviceType::PrivateUse1;
constexpr size_t room = size_t{64} << 30;   // of addresses, not of pages

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("PM_PRETEND_DEVICES");
    return text ? std::atoi(text) : 2;
  }();
  return count;
}

thread_local c10::DeviceIndex current = 0;

at::Tensor kept(at::Tensor tensor) {
  if (recording) recording->kept.push_back(tensor);
  return tensor;
}

/// Addresses that fault when they are touched, and beside them the memory that they stand for.
class Memory final : public c10::Allocator {
 public:
  static Memory& instance() {
    static auto* memory = new Memory;   // tensors of static storage outlive every order of destruction
    return *memory;
  }
  at::DataPtr allocate(size_t bytes) override {
    const at::Device device(type, current);
    if (bytes == 0) return {nullptr, device};
    const size_t size = (bytes + 4095) / 4096 * 4096;
    std::lock_guard lock(mutex_);
    size_t offset = used_;
    if (auto& free = free_[size]; !free.empty()) {
      offset = free.back();
      free.pop_back();
    } else {
      if (used_ + size > room) throw std::runtime_error("the pretended device has no memory left");
      used_ += size;
    }
    sizes_[offset] = size;
    void* data = device_ + offset;
    return {data, data, &release, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(host(to), host(from), bytes); }
  void* host(const void* address) const {
    const auto* bytes = static_cast<const char*>(address);
    return bytes >= device_ && bytes < device_ + room ? host_ + (bytes - device_) : const_cast<void*>(address);
  }

 private:
  Memory() : device_(map(PROT_NONE)), host_(map(PROT_READ | PROT_WRITE)) {}
  static char* map(int protection) {
    void* base = mmap(nullptr, room, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("no addresses for a pretended device");
    return static_cast<char*>(base);
  }
  static void release(void* data) {
    Memory& memory = instance();
    const auto offset = static_cast<size_t>(static_cast<char*>(data) - memory.device_);
    std::lock_guard lock(memory.mutex_);
    const size_t size = memory.sizes_.at(offset);
    madvise(memory.host_ + offset, size, MADV_DONTNEED);
    memory.free_[size].push_back(offset);
  }

  char *device_, *host_;
  std::mutex mutex_;
  size_t used_ = 0;
  std::unordered_map<size_t, size_t> sizes_;
  std::map<size_t, std::vector<size_t>> free_;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(at::DeviceType) {}
  at::DeviceType type() const override { return pretend::type; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override { return {pretend::type, current}; }
  void setDevice(at::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "device ", device, " of ", device_count());
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Stream getStream(at::Device device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current)));
  return kept(at::detail::empty_generic(size, &Memory::instance(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
                         std::optional<bool>) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current)));
  return kept(at::detail::empty_strided_generic(size, stride, &Memory::instance(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype)));
}

thread_local bool inside = false;   // of an operation, whose own copies are its own matter

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (recording && !inside) {
    if (from.is_cpu() || to.is_cpu()) throw std::runtime_error("a copy between host and device while launches are recorded");
    recording->steps.push_back([from, to] { host_view(to).copy_(host_view(from)); });
  }
  host_view(to).copy_(host_view(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  if (recording && !inside) throw std::runtime_error("the host reads a value of the device while launches are recorded");
  return host_view(tensor).item();
}

/// Refuses tensors of several devices, single numbers of the host excepted, as ATen's CUDA kernels do; then runs on the processor.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<at::Device> seen;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
    if (seen && *seen != tensor.device()) throw std::runtime_error(op.schema().operator_name().name + " got tensors on " + seen->str() + " and on " + tensor.device().str());
    seen = tensor.device();
  };
  const size_t arguments = op.schema().arguments().size();
  for (size_t i = stack->size() - arguments; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (value.isTensor()) look(value.toTensor());
    if (value.isTensorList()) for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    if (value.isOptionalTensorList()) for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) if (tensor) look(*tensor);
  }
  if (!recording || inside) return at::native::cpu_fallback(op, stack);
  const torch::jit::Stack given(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  const auto run = [op](torch::jit::Stack& values) {
    inside = true;
    try {
      at::native::cpu_fallback(op, &values);
    } catch (...) {
      inside = false;
      throw;
    }
    inside = false;
  };
  run(*stack);
  const size_t results = op.schema().returns().size();
  const torch::jit::Stack made(stack->end() - static_cast<std::ptrdiff_t>(results), stack->end());
  recording->steps.push_back([run, given, made] {
    torch::jit::Stack values = given;
    run(values);
    for (size_t i = 0; i < made.size(); ++i) {   // where the first time's results were
      if (!made[i].isTensor()) throw std::logic_error("an operation with other results than tensors is recorded");
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
  library.impl("as_strided", [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) { return at::cpu::as_strided(self, size, stride, offset); });
  library.impl("view", [](const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); });
  library.impl("_reshape_alias", [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) { return at::native::_reshape_alias(self, size, stride); });
  library.impl("resize_", [](const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) -> const at::Tensor& { return at::native::resize_(self, size, format); });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("pretend");
  c10::SetAllocator(type, &Memory::instance());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

thread_local Recording* recording = nullptr;

void* host_address(const void* address) { return Memory::instance().host(address); }

at::Tensor host_view(const at::Tensor& tensor) {
  if (tensor.is_cpu() || tensor.numel() == 0) return tensor.is_cpu() ? tensor : at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  return at::from_blob(Memory::instance().host(tensor.data_ptr()), tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

}  // namespace pm::pretend
