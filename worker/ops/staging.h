// Bytes on their way to a device: read into a ring of pinned buffers and copied from there beside the reads that follow.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "worker/ops/stream.h"

namespace pm::ops {

/// An uninitialised tensor in the host's memory from which copies to the accelerator run beside the host's work. Throws c10::Error when the system has no such memory left.
at::Tensor pinned(int64_t bytes);

/// One thread uses it. Copies are made on a stream of their own; what the calling thread's current stream was given before waits for nothing, and what it is given
/// after put() waits for the copy.
class Staging {
 public:
  static constexpr int64_t buffer_bytes = int64_t{16} << 20;
  static constexpr int buffers = 3;
  explicit Staging(at::Device device) : device_(device), stream_(another_stream(device)), ring_(buffers) {}
  /// Waits for the copies under way.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  using Read = std::function<void(std::span<std::byte> out)>;
  /// Brings the elements of `target`, a tensor of the device that may have any strides, from where `read` gets them: row-major, of type `stored`. Returns when `read` has, while the
  /// copy may be under way; waits for the oldest copy when all buffers are on their way. `target` is best of at most buffer_bytes: a buffer grows to what is asked of it. Throws what `read` throws.
  void put(const at::Tensor& target, at::ScalarType stored, const Read& read);
  /// Of the host's memory, all buffers together.
  int64_t bytes() const;

 private:
  struct Buffer {
    at::Tensor bytes;     ///< pinned
    Mark copied;          ///< when it may be filled again
  };
  const at::Device device_;
  const c10::Stream stream_;
  std::vector<Buffer> ring_;
  size_t next_ = 0;
};

}  // namespace pm::ops
