// SPDX-License-Identifier: Apache-2.0
// Host-to-device staging: data is read into a ring of pinned buffers and copied asynchronously while the next read
// runs.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "worker/ops/stream.h"

namespace pm::ops {

/// Returns an uninitialised uint8 tensor of pinned host memory. Throws c10::Error when the system has no such memory
/// left.
at::Tensor pinned(int64_t bytes);

/// Returns a copy of a CPU tensor on a device. On a GPU the host does not wait for work that is queued there, as a copy
/// from pageable memory does.
at::Tensor to_device(const at::Tensor& host, at::Device);

/// A ring of pinned buffers with a copy stream of its own, for one thread. Work queued on the current stream before
/// put() does not wait for the copy; work queued after put() does.
class Staging {
 public:
  static constexpr int64_t buffer_bytes = int64_t{16} << 20;
  static constexpr int buffers = 3;
  explicit Staging(at::Device device) : device_(device), stream_(stream_from_pool(device)), ring_(buffers) {}
  /// Waits for the copies in flight.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  using Read = std::function<void(std::span<std::byte> out)>;
  /// Fills `target`, a device tensor of any strides, with what `read` delivers: row-major elements of type `stored`.
  /// Returns as soon as `read` has returned; the copy may still be in flight. Waits for the oldest copy when all
  /// buffers are in flight. `target` should have at most buffer_bytes, because a buffer grows to the size of the
  /// request. Throws what `read` throws.
  void put(const at::Tensor& target, at::ScalarType stored, const Read& read);
  /// Returns the host memory of all buffers in bytes.
  int64_t bytes() const;

 private:
  struct Buffer {
    at::Tensor bytes;    ///< pinned
    StreamEvent copied;  ///< recorded after the copy from this buffer
  };
  const at::Device device_;
  const c10::Stream stream_;
  std::vector<Buffer> ring_;
  size_t next_ = 0;
};

}  // namespace pm::ops
