// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/graph.h"

#include <c10/core/StreamGuard.h>

#include <array>
#include <exception>
#include <unordered_map>

#include "worker/ops/stream.h"

namespace pm::ops {

namespace {

using GraphDrivers = std::array<const GraphDriver*, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

GraphDrivers& graph_drivers() {
  static GraphDrivers all{};
  return all;
}

/// Returns the stream on which the calling thread captures graphs of a device. It is the same for all graphs, because
/// each stream costs a workspace of cuBLAS.
c10::Stream capture_stream(at::Device device) {
  thread_local std::unordered_map<at::Device, c10::Stream> streams;
  const auto found = streams.find(device);
  return found != streams.end() ? found->second : streams.emplace(device, stream_from_pool(device)).first->second;
}

}  // namespace

void register_graph_driver(at::DeviceType type, const GraphDriver& driver) {
  graph_drivers()[static_cast<size_t>(type)] = &driver;
}

std::unique_ptr<GraphPool> GraphPool::make(at::Device device) {
  const GraphDriver* driver = graph_drivers()[static_cast<size_t>(device.type())];
  return driver ? std::unique_ptr<GraphPool>(new GraphPool(device, *driver)) : nullptr;
}

/// Tensors that `body` allocates need no record_stream(): their memory goes back to the stream of captures, whose next
/// work waits for the current stream.
void GraphPool::run(const std::function<void()>& body) const {
  StreamEvent before, after;
  before.record(device_);
  {
    const c10::StreamGuard here(capture_stream(device_));
    before.wait(device_);
    body();
    after.record(device_);
  }
  after.wait(device_);
}

std::unique_ptr<Graph> GraphPool::capture(const std::function<void()>& body) const {
  std::unique_ptr<Graph> graph = driver_.new_graph();
  run([&] {
    try {
      graph->capture_begin(id_);
      body();
      graph->capture_end();
    } catch (...) {
      abandon(*graph);
      throw;
    }
  });
  return graph;
}

/// Ends what is left of a capture that failed. CUDAGraph ends a valid capture whole, as where `body` found no memory.
/// One that CUDA has made invalid it leaves behind, with allocators that still allocate to the pool.
void GraphPool::abandon(Graph& graph) const noexcept {
  try {
    graph.capture_end();
  } catch (const std::exception&) {
  }
  driver_.end_stream_capture(capture_stream(device_));
  for (const auto allocator : {GraphDriver::Allocator::Device, GraphDriver::Allocator::PinnedHost}) {
    try {
      driver_.end_allocate_to_pool(allocator, device_, id_);
      driver_.release_pool(allocator, device_, id_);
    } catch (const std::exception&) {  // the allocator does not allocate to the pool: this part had not begun, or ended
    }
  }
}

}  // namespace pm::ops
