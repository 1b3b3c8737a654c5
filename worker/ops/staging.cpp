// SPDX-License-Identifier: Apache-2.0
// Copies staged reads to a device.
#include "worker/ops/staging.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>

#include "worker/ops/device_memory.h"

namespace pm::ops {

at::Tensor pinned(int64_t bytes) { return driver(at::getAccelerator(/*checked=*/true).value()).pinned(bytes); }

at::Tensor to_device(const at::Tensor& host, at::Device device) {
  if (!device.is_cuda()) return host.to(device);
  // PyTorch's allocator of pinned memory keeps this tensor's until the copy is done.
  return host.pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true);
}

Staging::~Staging() {
  try {
    stream_.synchronize();
  } catch (const std::exception&) {  // a failed device copies nothing
  }
}

int64_t Staging::bytes() const {
  int64_t all = 0;
  for (const Buffer& buffer : ring_) all += buffer.bytes.defined() ? buffer.bytes.numel() : 0;
  return all;
}

void Staging::put(const at::Tensor& target, at::ScalarType stored, const Read& read) {
  const int64_t bytes = target.numel() * static_cast<int64_t>(c10::elementSize(stored));
  if (bytes == 0) return;
  Buffer& buffer = ring_[next_];
  buffer.copied.synchronize();
  if (!buffer.bytes.defined() || buffer.bytes.numel() < bytes) {
    buffer.bytes.reset();
    buffer.bytes = pinned(bytes);
  }
  const at::Tensor filled = buffer.bytes.narrow(0, 0, bytes);
  read({static_cast<std::byte*>(filled.mutable_data_ptr()), static_cast<size_t>(bytes)});
  next_ = (next_ + 1) % ring_.size();
  StreamEvent before;  // the current stream may still use the memory of `target` for an earlier tensor
  before.record(device_);
  {
    const c10::StreamGuard beside(stream_);
    before.wait(device_);
    target.copy_(filled.view(stored).view(target.sizes()), /*non_blocking=*/true);
    buffer.copied.record(device_);
  }
  buffer.copied.wait(device_);
}

}  // namespace pm::ops
