// Recorded launches: what a step queues on a device is kept once and sent again in one go, with the same pointers (CUDA graphs).
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace pm::ops {

class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues all of it on the calling thread's stream.
  virtual void replay() = 0;
};

/// Records what `body` queues; what that writes is there after replay() only. Memory that it allocates stays the graph's. `body` may neither read a device's values
/// on the host nor copy between the two.
using Recorder = std::unique_ptr<Graph> (*)(at::Device, const std::function<void()>& body);

/// From here on launches on devices of this type can be recorded. Call before the first tensor of that type.
void use_recorder(at::DeviceType, Recorder);
/// nullptr: they cannot.
Recorder recorder(at::DeviceType);

}  // namespace pm::ops
