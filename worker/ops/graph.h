// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: the launches of a step are captured once and replayed as a whole with the same pointers.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>

namespace pm::ops {

/// A graph, with the operations and the rules of at::cuda::CUDAGraph.
class Graph {
 public:
  /// Ends the use of the pool, if capture_end() ended the capture.
  virtual ~Graph() = default;
  /// Begins to capture the calling thread's current stream, which is not the default one. Memory that is allocated on
  /// the stream then belongs to the pool. Throws c10::Error.
  virtual void capture_begin(c10::MempoolId_t pool) = 0;
  /// Makes the graph of what was captured. Throws c10::Error; the allocators may still allocate to the pool then.
  virtual void capture_end() = 0;
  /// Launches the graph on the calling thread's current stream.
  virtual void replay() = 0;
};

/// Makes the graphs of a kind of device. The functions do what PyTorch's of the same or a similar name do. They throw
/// c10::Error.
class GraphDriver {
 public:
  /// The allocators that have a pool for each graph: of device memory, and of pinned host memory.
  enum class Allocator { Device, PinnedHost };

  virtual ~GraphDriver() = default;
  /// Returns the id of a new pool (at::cuda::graph_pool_handle).
  virtual c10::MempoolId_t new_pool() const = 0;
  virtual std::unique_ptr<Graph> new_graph() const = 0;
  /// Ends the capture of a stream, whether it is valid or not, and drops what was captured. Does nothing for a stream
  /// that is not being captured.
  virtual void end_stream_capture(const c10::Stream&) const noexcept = 0;
  /// Throws when the allocator does not allocate to the pool.
  virtual void end_allocate_to_pool(Allocator, at::Device, c10::MempoolId_t) const = 0;
  /// Ends the use of the pool by one graph.
  virtual void release_pool(Allocator, at::Device, c10::MempoolId_t) const = 0;
};

/// Registers graphs for devices of this type; `driver` stays. Call before the first tensor of that type.
void register_graph_driver(at::DeviceType, const GraphDriver& driver);

/// Captures graphs of one device that share a memory pool, because no two of them run at once. Graphs must be dropped
/// before their pool. A pool whose graphs are gone is not captured into again: PyTorch's allocators refuse that until
/// they have freed all of its memory.
class GraphPool {
 public:
  /// Returns nullptr when devices of this type cannot capture.
  static std::unique_ptr<GraphPool> make(at::Device);

  /// Runs `body` on the stream of captures, after the work of the current stream; later work of the current stream
  /// waits for it. Libraries get their workspaces here: cuBLAS keeps one for each handle of a thread and each stream,
  /// for as long as the process lives. Made within a capture it would lie in the pool, and outlive the graphs there.
  void run(const std::function<void()>& body) const;
  /// Captures what `body` launches; its results exist only after replay(). Memory that `body` allocates belongs to the
  /// graph. `body` must neither read device values on the host nor copy between host and device. Throws what `body`
  /// and PyTorch throw, after the capture has ended and the allocators are as they were.
  std::unique_ptr<Graph> capture(const std::function<void()>& body) const;

 private:
  GraphPool(at::Device device, const GraphDriver& driver) : device_(device), driver_(driver), id_(driver.new_pool()) {}
  void abandon(Graph&) const noexcept;
  const at::Device device_;
  const GraphDriver& driver_;
  const c10::MempoolId_t id_;
};

}  // namespace pm::ops
