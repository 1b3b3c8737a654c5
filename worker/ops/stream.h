// SPDX-License-Identifier: Apache-2.0
// Streams and events of a device, for work that runs beside the current stream.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace pm::ops {

/// Returns the calling thread's current stream of a device other than the CPU.
c10::Stream current_stream(at::Device);
/// Returns a stream of the device's stream pool, for work that runs beside the current stream.
c10::Stream stream_from_pool(at::Device);
/// Tells the caching allocator that `stream` uses the tensor (torch.Tensor.record_stream): its memory is not reused
/// before the work queued on the stream is done. Does nothing on the CPU.
void record_stream(const at::Tensor&, const std::optional<c10::Stream>&);

/// An event on a stream. On the CPU it does nothing, because CPU work is done when its call returns.
class StreamEvent {
 public:
  /// Records the event on the calling thread's current stream of this device.
  void record(at::Device);
  /// Makes the calling thread's current stream wait for the event; does nothing before it was recorded.
  void wait(at::Device) const;
  /// Blocks the calling thread until the event has completed.
  void synchronize() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace pm::ops
