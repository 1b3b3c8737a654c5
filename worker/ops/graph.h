// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: the launches of a step are captured once and replayed as a whole with the same pointers.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace pm::ops {

class Graph {
 public:
  virtual ~Graph() = default;
  /// Launches the graph on the calling thread's current stream.
  virtual void replay() = 0;
};

/// Captures what `body` launches; its results exist only after replay(). Memory that `body` allocates belongs to the
/// graph. `body` must neither read device values on the host nor copy between host and device.
using GraphCapturer = std::unique_ptr<Graph> (*)(at::Device, const std::function<void()>& body);

/// Registers graph capture for devices of this type. It is called before the first tensor of that type.
void register_graph_capturer(at::DeviceType, GraphCapturer);
/// Returns the graph capturer of a device type; nullptr when it cannot capture.
GraphCapturer graph_capturer(at::DeviceType);

}  // namespace pm::ops
