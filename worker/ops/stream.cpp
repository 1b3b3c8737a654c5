// SPDX-License-Identifier: Apache-2.0
// Streams and events through PyTorch's device-independent interfaces.
#include "worker/ops/stream.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace pm::ops {

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

c10::Stream stream_from_pool(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void record_stream(const at::Tensor& tensor, const std::optional<c10::Stream>& stream) {
  if (!stream || !tensor.defined() || tensor.is_cpu()) return;
  c10::impl::VirtualGuardImpl(stream->device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), *stream);
}

void StreamEvent::record(at::Device device) {
  if (device.is_cpu()) return;
  if (!event_) event_.emplace(device.type());
  event_->record(current_stream(device));
}

void StreamEvent::wait(at::Device device) const {
  if (event_) event_->block(current_stream(device));
}

void StreamEvent::synchronize() const {
  if (event_) event_->synchronize();
}

}  // namespace pm::ops
