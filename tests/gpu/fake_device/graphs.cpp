// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_device/graphs.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/memory.h"
#include "tests/gpu/fake_device/streams.h"
#include "worker/ops/graph.h"

namespace pm::fake_device {

thread_local Capture* capture = nullptr;
void (*observe_capture)(Capture*) = nullptr;
std::mutex launch_mutex;

namespace {

constexpr int fault_place = 5;  // in the middle of the smallest step

void stop_capture() {
  if (capture) capture->active = false;
  capture = nullptr;
  if (observe_capture) observe_capture(nullptr);
}

[[noreturn]] void throw_fault(Capture& one) {
  const std::string fault = std::exchange(one.fault, "");
  TORCH_CHECK_WITH(OutOfMemoryError, fault != "memory", "fake out of memory for a graph");
  if (fault == "operation") one.refuse("a fault that a test injects");
  TORCH_CHECK(false, "CUDA error: the graph cannot be instantiated");
}

/// Behaves as at::cuda::CUDAGraph does, also where a capture fails: then nobody but the caller ends the capture of the
/// stream and the use of the pools.
class FakeGraph final : public ops::Graph {
 public:
  ~FakeGraph() override {
    if (capture_) capture_->operations().clear();  // frees the tensors that they hold
    if (!ended_) return;
    Memory::instance().release_pool(device_, pool_);
    Pinned::instance().release_pool(pool_);
  }

  void capture_begin(c10::MempoolId_t pool) override {
    device_ = current_device();
    pool_ = pool;
    const c10::Stream stream = Streams::instance().current(at::Device(device_type, device_));
    TORCH_CHECK(stream.id() != 0, "CUDA graphs must be captured on a non-default stream.");
    capture_ = std::make_shared<Capture>(stream);
    const auto filter = [own = capture_](c10::Stream stream) { return own->active && stream == own->stream(); };
    Memory::instance().begin_allocate_to_pool(device_, pool, filter);
    Pinned::instance().begin_allocate_to_pool(pool, filter);
    TORCH_CHECK(!capture, "CUDA error: operation not permitted when stream is capturing");
    const char* refused = std::getenv("PM_FAKE_NO_GRAPHS_ON");
    if (refused && std::atoi(refused) == device_) {
      const char* fault = std::getenv("PM_FAKE_CAPTURE_FAULT");
      capture_->fault = fault ? fault : "memory";
      capture_->fault_at = capture_->fault == "instantiate" ? -1 : fault_place;
    }
    capture_->active = true;
    capture = capture_.get();
    if (observe_capture) observe_capture(capture);
  }

  void capture_end() override {
    TORCH_CHECK(capture && capture == capture_.get(), "CUDA error: the stream is not being captured");
    stop_capture();
    Streams::instance().finish(capture_->stream());
    TORCH_CHECK(!capture_->invalidated, "CUDA error: operation failed due to a previous error during capture");
    Memory::instance().end_allocate_to_pool(device_, pool_);
    Pinned::instance().end_allocate_to_pool(pool_);
    ended_ = true;
    if (!capture_->fault.empty()) throw_fault(*capture_);
    instantiated_ = true;
  }

  void replay() override {
    TORCH_CHECK(instantiated_, "Called CUDAGraph::replay without a preceding successful capture.");
    const OnDevice here(device_);
    Streams::instance().finish(Streams::instance().current(at::Device(device_type, device_)));
    const std::lock_guard lock(launch_mutex);
    for (const auto& operation : capture_->operations()) operation();
  }

 private:
  c10::DeviceIndex device_ = 0;
  c10::MempoolId_t pool_{0, 0};
  std::shared_ptr<Capture> capture_;
  bool ended_ = false, instantiated_ = false;
};

class FakeGraphDriver final : public ops::GraphDriver {
 public:
  c10::MempoolId_t new_pool() const override {
    static std::atomic<c10::CaptureId_t> next{1};
    return {0, next++};
  }
  std::unique_ptr<ops::Graph> new_graph() const override { return std::make_unique<FakeGraph>(); }
  void end_stream_capture(const c10::Stream& stream) const noexcept override {
    if (capture && capture->stream() == stream) stop_capture();
  }
  void end_allocate_to_pool(Allocator allocator, at::Device device, c10::MempoolId_t pool) const override {
    if (allocator == Allocator::Device) return Memory::instance().end_allocate_to_pool(device.index(), pool);
    Pinned::instance().end_allocate_to_pool(pool);
  }
  void release_pool(Allocator allocator, at::Device device, c10::MempoolId_t pool) const override {
    if (allocator == Allocator::Device) return Memory::instance().release_pool(device.index(), pool);
    Pinned::instance().release_pool(pool);
  }
};

[[maybe_unused]] const bool registered = [] {
  if (std::getenv("PM_FAKE_KERNELS") && std::getenv("PM_FAKE_GRAPHS")) register_graphs();
  return true;
}();

}  // namespace

void Capture::add(std::function<void()> operation) {
  TORCH_CHECK(!invalidated, "CUDA error: operation failed due to a previous error during capture");
  if (static_cast<int>(operations_.size()) == fault_at) throw_fault(*this);
  operations_.push_back(std::move(operation));
}

void Capture::refuse(const std::string& operation) {
  invalidated = true;
  TORCH_CHECK(false, "CUDA error: operation not permitted when stream is capturing: ", operation);
}

void register_graphs() {
  static const FakeGraphDriver driver;
  ops::register_graph_driver(device_type, driver);
}

}  // namespace pm::fake_device
