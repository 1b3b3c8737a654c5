// SPDX-License-Identifier: Apache-2.0
// The fake device backend, for machines without a GPU: a PyTorch device named "fake". Host code cannot touch its
// addresses, as it cannot touch a GPU's. ATen's operations run on the CPU behind them; an operation on tensors of
// several devices is refused, as on a GPU. So a program that runs here and computes the right numbers places its
// tensors correctly. Operations are done when they return, after the pending work of the device's stream (stream.h).
// PM_FAKE_DEVICES is the number of devices (default 2), PM_FAKE_MEMORY the MiB of each (default 16384), PM_FAKE_OTHERS
// the MiB of these that others hold (default 256).
#include "tests/gpu/fake_device/device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "tests/gpu/fake_device/streams.h"
#include "worker/ops/device_memory.h"

namespace pm::fake_device {

namespace {

constexpr auto type = at::DeviceType::PrivateUse1;
constexpr size_t address_space_bytes = size_t{64} << 30;  // of virtual addresses, not of memory

int64_t environment_integer(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

int device_count() {
  static const int count = static_cast<int>(environment_integer("PM_FAKE_DEVICES", 2));
  return count;
}

thread_local c10::DeviceIndex current = 0;

at::Tensor retained(at::Tensor tensor) {
  if (capture) capture->retained.push_back(tensor);
  return tensor;
}

/// The device allocator: addresses that fault when they are touched, and the host memory that backs them.
class Memory final : public c10::DeviceAllocator {
 public:
  static Memory& instance() {
    static auto* memory = new Memory;  // never destroyed, because tensors of static storage may outlive it
    return *memory;
  }
  at::DataPtr allocate(size_t bytes) override {
    const at::Device device(type, current);
    if (bytes == 0) return {nullptr, device};
    const size_t size = (bytes + 4095) / 4096 * 4096;
    std::lock_guard lock(mutex_);
    Usage& use = usage_[device.index()];
    const int64_t left = std::min(use.limit, total() - others() - use.beside) - use.bytes.current;
    TORCH_CHECK_WITH(OutOfMemoryError, static_cast<int64_t>(size) <= left, "fake out of memory. Tried to allocate ",
                     static_cast<double>(size) / (1 << 20), " MiB, ", left, " bytes are left");
    size_t offset = used_;
    if (auto& free = free_[size]; !free.empty()) {
      offset = free.back();
      free.pop_back();
    } else {
      if (used_ + size > address_space_bytes) throw std::runtime_error("the fake device has no virtual addresses left");
      used_ += size;
    }
    blocks_[offset] = {size, device.index()};
    use.bytes.increase(size);
    void* data = device_ + offset;
    return {data, data, &release, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(host(to), host(from), bytes);
  }
  void* host(const void* address) const {
    const auto* bytes = static_cast<const char*>(address);
    return bytes >= device_ && bytes < device_ + address_space_bytes ? host_ + (bytes - device_)
                                                                     : const_cast<void*>(address);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stats.reserved_bytes[0] = usage_[device].bytes;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    usage_[device].bytes.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    return {static_cast<size_t>(total() - others() - usage_[device].beside - usage_[device].bytes.current),
            static_cast<size_t>(total())};
  }
  void take_outside_allocator(c10::DeviceIndex device, int64_t bytes) {
    std::lock_guard lock(mutex_);
    usage_[device].beside += bytes;
  }
  void limit(c10::DeviceIndex device, int64_t bytes) {
    std::lock_guard lock(mutex_);
    usage_[device].limit = bytes;
  }

 private:
  struct Block {
    size_t size = 0;
    c10::DeviceIndex device = 0;
  };
  struct Usage {
    c10::CachingAllocator::Stat bytes;
    int64_t limit = std::numeric_limits<int64_t>::max(), beside = 0;
  };
  Memory() : device_(map(PROT_NONE)), host_(map(PROT_READ | PROT_WRITE)) {}
  static int64_t total() { return environment_integer("PM_FAKE_MEMORY", 16384) << 20; }
  static int64_t others() { return environment_integer("PM_FAKE_OTHERS", 256) << 20; }
  static char* map(int protection) {
    void* base = mmap(nullptr, address_space_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap found no virtual addresses for a fake device");
    return static_cast<char*>(base);
  }
  static void release(void* data) {
    Memory& memory = instance();
    const auto offset = static_cast<size_t>(static_cast<char*>(data) - memory.device_);
    std::unique_lock lock(memory.mutex_);
    const Block block = memory.blocks_.at(offset);
    lock.unlock();
    Stream::of(block.device).finish();  // pending work of the stream may still use it
    lock.lock();
    madvise(memory.host_ + offset, block.size, MADV_DONTNEED);
    memory.free_[block.size].push_back(offset);
    memory.usage_[block.device].bytes.decrease(block.size);
  }

  char *device_, *host_;
  std::mutex mutex_;
  size_t used_ = 0;
  std::unordered_map<size_t, Block> blocks_;
  std::map<c10::DeviceIndex, Usage> usage_;
  std::map<size_t, std::vector<size_t>> free_;
};

/// Pinned memory in pages of its own, which fault once they are freed, so that a late copy does not go unnoticed.
class Pinned final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, at::kCPU};
    const size_t size = (bytes + 4095) / 4096 * 4096 + 4096;
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "no pinned memory");
    *static_cast<size_t*>(base) = size;
    return {static_cast<char*>(base) + 4096, base, &release, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* base) {
    if (base) munmap(base, *static_cast<size_t*>(base));
  }
};

class FakeDriver final : public ops::Driver {
 public:
  std::string product(at::Device) const override { return "Fake"; }
  bool set_memory_limit(at::Device device, int64_t bytes) const override {
    Memory::instance().limit(device.index(), bytes);
    return true;
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  Guard() = default;
  explicit Guard(at::DeviceType) {}
  at::DeviceType type() const override { return fake_device::type; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  at::Device getDevice() const override { return {fake_device::type, current}; }
  void setDevice(at::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "device ", device, " of ", device_count());
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Stream getStream(at::Device device) const override { return Streams::instance().current(device); }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    return Streams::instance().from_pool(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return Streams::instance().exchange(stream); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { Streams::destroy(event); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    Streams::instance().record(event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override { Streams::instance().block(event, stream); }
  bool queryEvent(void* event) const override { return Streams::instance().is_done(event); }
  bool queryStream(const c10::Stream& stream) const override { return Streams::instance().is_done(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { Streams::instance().finish(stream); }
  void synchronizeEvent(void* event) const override { Streams::instance().wait(event); }
  void synchronizeDevice(const c10::DeviceIndex device) const override { Streams::instance().finish(device); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static auto* pinned = new Pinned;
    return pinned;
  }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current)));
  return retained(at::detail::empty_generic(size, &Memory::instance(),
                                            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                            c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard here(device.value_or(at::Device(type, current)));
  return retained(at::detail::empty_strided_generic(size, stride, &Memory::instance(),
                                                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                    c10::dtype_or_default(dtype)));
}

thread_local bool inside = false;  // within an operation, whose own copies are not captured

/// Keeps no reference to the tensors unless a graph is captured, so that memory freed before the copy is an error.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (capture && !inside) {
    if (from.is_cpu() || to.is_cpu()) throw std::runtime_error("a copy between host and device during graph capture");
    capture->steps.push_back([from, to] { host_view(to).copy_(host_view(from)); });
  }
  const at::Device device = to.is_cpu() ? from.device() : to.device();
  const auto seen = [](const at::Tensor& tensor) {
    return tensor.numel() == 0 ? at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()))
                               : at::from_blob(Memory::instance().host(tensor.data_ptr()), tensor.sizes(),
                                               tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  };
  const auto copy = [from = seen(from), to = seen(to)] { to.copy_(from); };
  if (non_blocking || from.device().type() == to.device().type()) {
    Streams::instance().enqueue(device, copy);
  } else {
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
  if (capture && !inside) throw std::runtime_error("the host reads a device value during graph capture");
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
  synchronize_current_stream(seen.value_or(at::Device(type, current)));
  if (!capture || inside) return at::native::cpu_fallback(op, stack);
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
  capture->steps.push_back([run, given, made] {
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

thread_local Capture* capture = nullptr;

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
