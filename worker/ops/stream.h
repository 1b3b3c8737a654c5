// Work of a device that goes on beside the calling thread's: points in it that others wait for.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace pm::ops {

/// The calling thread's current stream of a device that is not the processor.
c10::Stream current_stream(at::Device);
/// A stream for work beside it: one of a few that are handed out in turn.
c10::Stream another_stream(at::Device);
/// Keeps the allocator from giving the tensor's memory to others before the work that the stream has now is done. Nothing on the processor.
void used_on(const at::Tensor&, const std::optional<c10::Stream>&);

/// A point in the work of a stream. On the processor nothing: its work is done when its call returns.
class Mark {
 public:
  /// Puts it where the calling thread's current stream of this device is now.
  void record(at::Device);
  /// What the calling thread's current stream is given from here on waits for it; nothing before it is recorded.
  void wait(at::Device) const;
  /// The calling thread itself waits.
  void synchronize() const;

 private:
  std::optional<c10::Event> event_;
};

}  // namespace pm::ops
