// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of the fake device: a graph repeats the operations that its capture saw, in the same order and on the
// same memory. Captures follow the rules of at::cuda::CUDAGraph and of stream capture.
#pragma once
#include <c10/core/Stream.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace pm::fake_device {

/// The capture of a stream. As on a GPU, nothing may be read on the host then, nor copied to or from it.
class Capture {
 public:
  explicit Capture(c10::Stream stream) : stream_(stream) {}
  /// Stores an operation. Throws c10::Error once the capture is invalid, and where a test injects a fault.
  void add(std::function<void()> operation);
  /// Makes the capture invalid and throws c10::Error, as an operation does that cannot be captured.
  [[noreturn]] void refuse(const std::string& operation);

  const c10::Stream& stream() const { return stream_; }
  std::vector<std::function<void()>>& operations() { return operations_; }

  std::atomic<bool> active{false};       ///< the stream is being captured
  std::atomic<bool> invalidated{false};  ///< cudaStreamCaptureStatusInvalidated
  int fault_at = -1;                     ///< number of the operation that fails, and how; -1: none
  std::string fault;

 private:
  const c10::Stream stream_;
  std::vector<std::function<void()>> operations_;
};
/// The capture of the calling thread's stream; nullptr: none.
extern thread_local Capture* capture;

/// Lets the fake device capture graphs. PM_FAKE_GRAPHS beside PM_FAKE_KERNELS does so for a whole program, because the
/// kernels read lengths on the device and ATen's operations do not. PM_FAKE_NO_GRAPHS_ON is the index of a device that
/// fails to, and PM_FAKE_CAPTURE_FAULT how: memory (none is left, the default), operation (one cannot be captured) or
/// instantiate (the graph cannot be made of the capture).
void register_graphs();

/// Told of each capture that begins, and of its end by nullptr, by the emulation of kernels where it is linked.
extern void (*observe_capture)(Capture*);
/// Held while kernels run: the emulation runs one launch at a time, and ranks are threads.
extern std::mutex launch_mutex;

}  // namespace pm::fake_device
