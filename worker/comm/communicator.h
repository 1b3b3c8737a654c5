// What ranks say to each other inside a step: collectives of a tensor group, hand-overs between stages. Between threads, over shared memory and TCP, and over NCCL (devices.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pm::comm {

enum class Op { Sum, Max };

/// A group of `size` ranks. All ranks call the same operations in the same order with tensors of agreed shapes; every wait has
/// the group's deadline. Throws Error{RankLost, "CommunicatorAborted"} after abort() or a missed deadline, naming operation,
/// rank and what it waited for. Contiguous tensors only. Not thread-safe: one thread per rank calls, abort() excepted.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Whether its operations can be recorded with the launches around them (ops/graph.h).
  virtual bool recordable() const { return false; }
  /// Recorded operations of the group have been queued again, all at once: to be watched as one. `what`: of static storage.
  virtual void repeated(const char* /*what*/) {}

  /// Reduces fp32 `tensor` in place, summing in rank order 0, 1, ... so that every rank gets the same bits. NCCL has an order of its own, with the same bits on every rank too.
  virtual void all_reduce(at::Tensor& tensor, Op op = Op::Sum) = 0;
  /// Every rank gives a tensor whose first dimension may differ; every rank gets the concatenation along dim 0 in rank order.
  /// `rows` holds each rank's first dimension.
  virtual at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) = 0;
  /// As all_gatherv, into `all`, which has the sum of `rows` and the type of `part`. `part` may be its own place in it.
  virtual void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) = 0;
  /// As all_gatherv, but only `root` gets the result (others an undefined tensor).
  virtual at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) = 0;
  /// Copies `tensor` of `root` to all, in place.
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void send(const at::Tensor& tensor, int to) = 0;
  virtual void recv(at::Tensor& tensor, int from) = 0;
  virtual void barrier() = 0;
  /// Throws what an operation would throw when the group has been aborted. An operation on a device returns before it is done; so what has come to the host from a device is to be
  /// believed only after this.
  virtual void check() {}
  /// The ranks first, ..., first + count - 1 of this group, this one among them, as a group of their own. A rank may call collectives of one group only: of
  /// this one or of a split; send and recv of both. Throws std::invalid_argument for ranks that are not there. Not to be split again.
  virtual std::shared_ptr<Communicator> split(int first, int count) = 0;
  /// Ends every present and future wait of all ranks with `reason`. Thread- and signal-handler-free; may be called from any thread, repeatedly.
  virtual void abort(const std::string& reason) = 0;

  /// Bytes of the device that a library took beside the allocator for this rank's communicators when they were joined, as far as that shows in what the device has free. From any thread.
  virtual int64_t device_bytes() const { return 0; }

  /// Calls and bytes per operation since start, for metrics.
  struct Count { std::string op; int64_t calls = 0, bytes = 0; double seconds = 0; };
  virtual std::vector<Count> counts() const = 0;
};

/// n communicators over the memory of one process, for threads as ranks (tests, `forward --batch`, `generate`). Takes any device's tensors.
std::vector<std::shared_ptr<Communicator>> in_process(int n, std::chrono::milliseconds deadline);

/// The group `name` over POSIX shared memory at `segment` (a file in /dev/shm made by create_segment). Spins briefly, then sleeps on a futex.
std::shared_ptr<Communicator> shared_memory(const std::string& segment, int rank, int size, std::chrono::milliseconds deadline);
/// Creates the segment file for n ranks; `bytes_per_rank` of buffer each (larger tensors go in pieces). Removes a stale file of that name first.
void create_segment(const std::string& segment, int n, int64_t bytes_per_rank);
/// Marks the group of the segment aborted from outside, e.g. by the launcher. Unknown or removed segments are ignored.
void abort_segment(const std::string& segment, const std::string& reason);

}  // namespace pm::comm
