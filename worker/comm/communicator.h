// SPDX-License-Identifier: Apache-2.0
// Declares the communicator of ranks: collectives of a tensor-parallel group and point-to-point transfers between
// pipeline stages. Implementations use threads, shared memory, TCP and NCCL (device_communicator.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pm::comm {

enum class Op { Sum, Max };

/// A group of `size` ranks. All ranks call the same operations in the same order with tensors of agreed shapes, and
/// every wait has the deadline of the group. Operations throw Error{CommunicatorAborted} after abort() or a
/// missed deadline; the message names the operation, the rank and the peer. Tensors must be contiguous. Not
/// thread-safe: one thread per rank makes the calls, except for abort().
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns true when the operations can be captured in a CUDA graph (ops/graph.h).
  virtual bool supports_graph_capture() const { return false; }
  /// Reports that captured operations of the group have been enqueued again by a graph replay, so that they are watched
  /// as one operation. `what` must have static storage.
  virtual void graph_replayed(const char* /*what*/) {}

  /// Reduces the F32 `tensor` in place. Values are summed in rank order 0, 1, ..., so that every rank gets the same
  /// bits. NCCL uses an order of its own, also with the same bits on every rank.
  virtual void all_reduce(at::Tensor& tensor, Op op = Op::Sum) = 0;
  /// Concatenates the parts of all ranks along dimension 0 in rank order and returns the result on every rank. `rows`
  /// holds the first dimension of each rank's part; they may differ.
  virtual at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) = 0;
  /// Works as all_gatherv() above, but writes into `all`, which has sum(rows) rows and the dtype of `part`. `part` may
  /// be its own range of `all`.
  virtual void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) = 0;
  /// Works as all_gatherv(), but only `root` gets the result; the others get an undefined tensor.
  virtual at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) = 0;
  /// Copies `tensor` of `root` to all ranks, in place.
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void send(const at::Tensor& tensor, int to) = 0;
  virtual void recv(at::Tensor& tensor, int from) = 0;
  virtual void barrier() = 0;
  /// Throws what an operation throws when the group has been aborted. An operation on a device returns before the
  /// device has done it, so results that were copied to the host are valid only after this call.
  virtual void check() {}
  /// Makes a group of ranks first, ..., first + count - 1 of this group, which must include this rank. A rank calls
  /// collectives of one group only, this one or one split; it may call send and recv of both. A split cannot be split
  /// again. Throws std::invalid_argument for ranks outside this group.
  virtual std::shared_ptr<Communicator> split(int first, int count) = 0;
  /// Ends every present and future wait of all ranks with `reason`. May be called from any thread, repeatedly.
  virtual void abort(const std::string& reason) = 0;

  /// Returns the device memory, in bytes, that the communicators of this rank took outside the allocator when they
  /// joined, as far as the free memory of the device shows it. May be called from any thread.
  virtual int64_t device_bytes() const { return 0; }

  /// Calls, bytes and seconds of one operation since start, for metrics.
  struct Count {
    std::string op;
    int64_t calls = 0, bytes = 0;
    double seconds = 0;
  };
  virtual std::vector<Count> counts() const = 0;
};

/// Makes n communicators over the memory of one process, for threads as ranks (tests, `forward --batch`, `generate`).
/// Takes tensors of any device.
std::vector<std::shared_ptr<Communicator>> in_process(int n, std::chrono::milliseconds deadline);

/// Opens the communicator of `rank` over POSIX shared memory at `segment`, a file in /dev/shm that create_segment()
/// made. Waits spin briefly, then sleep on a futex.
std::shared_ptr<Communicator> shared_memory(const std::string& segment, int rank, int size,
                                            std::chrono::milliseconds deadline);
/// Creates the segment file for n ranks with `bytes_per_rank` of buffer each; larger tensors are sent in pieces.
/// Removes a stale file of that name first.
void create_segment(const std::string& segment, int n, int64_t bytes_per_rank);
/// Aborts the group of the segment from outside, for example from the launcher. Unknown or removed segments are
/// ignored.
void abort_segment(const std::string& segment, const std::string& reason);

}  // namespace pm::comm
