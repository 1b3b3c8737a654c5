// SPDX-License-Identifier: Apache-2.0
// Implements the communicator between threads of one process. Ranks publish their tensors and read them in place; an
// operation ends with a phase in which every rank reports that it has read. Events order tensors of devices across
// streams.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <optional>
#include <stdexcept>

#include "worker/comm/collectives/collective_counters.h"
#include "worker/comm/collectives/phased_barrier.h"
#include "worker/comm/collectives/reduce.h"
#include "worker/comm/collectives/tensor_checks.h"
#include "worker/comm/communicator.h"

namespace pm::comm {
namespace {

/// An event on the current stream of a tensor's device, for which streams of other threads wait. It does nothing on
/// CPU.
class StreamEvent {
 public:
  void record(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return event_.reset();
    event_.emplace(tensor.device().type());
    event_->record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
  }
  void block(const at::Tensor& tensor) const {
    if (event_) event_->block(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
  }

 private:
  std::optional<c10::Event> event_;
};

/// The tensor that one rank publishes in the current operation, and the events at which it was written and at which the
/// rank had read all others.
struct Published {
  at::Tensor tensor;
  StreamEvent written, read;
};

/// One direction between two ranks: the sender publishes its tensor and waits until the receiver has copied it.
struct Mailbox {
  std::atomic<uint64_t> published{0}, taken{0};
  at::Tensor tensor;
  StreamEvent written, read;
};

struct SharedState {
  explicit SharedState(int n) : barrier_slots(n), published(n), mail(static_cast<size_t>(n) * n) {}
  void abort(const std::string& reason) {
    note.write(reason);
    for (BarrierSlot& slot : barrier_slots) notify_all(slot.event);
  }
  Mailbox& mailbox(int from, int to) { return mail[static_cast<size_t>(from) * barrier_slots.size() + to]; }

  std::vector<BarrierSlot> barrier_slots;
  AbortNote note;
  std::vector<Published> published;
  std::vector<Mailbox> mail;
};

void copy_bytes(const at::Tensor& from, at::Tensor to) {
  if (from.is_cpu() && to.is_cpu()) {
    if (from.nbytes() != 0 && from.data_ptr() != to.data_ptr())
      std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
  } else {
    to.view_as(from).copy_(from);
  }
}

class InProcessCommunicator final : public Communicator {
 public:
  /// The ranks of the group are those of the shared state from `first` on; `rank` counts from there.
  InProcessCommunicator(std::shared_ptr<SharedState> state, int first, int size, int rank,
                        std::chrono::milliseconds deadline)
      : state_(std::move(state)),
        first_(first),
        deadline_(deadline),
        barrier_(std::span(state_->barrier_slots).subspan(static_cast<size_t>(first), static_cast<size_t>(size)),
                 state_->note, rank, first, deadline, [this](const std::string& why) { abort(why); }) {}

  int rank() const override { return barrier_.rank(); }
  int size() const override { return barrier_.size(); }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    const CollectiveCounters::Call call(counters_, Operation::AllReduce, tensor.nbytes());
    publish(Operation::AllReduce, tensor);
    barrier_.wait_for_all();
    if (tensor.is_cpu()) {
      reduce_share(tensor.numel(), op);
      finish(Operation::AllReduce, tensor);
    } else {
      const at::Tensor sum = reduce_on_device(op);
      finish(Operation::AllReduce, tensor);
      tensor.copy_(sum);
    }
  }

  at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) override {
    return gather(Operation::AllGatherv, part, rows, rank(), {});
  }
  void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) override {
    gather(Operation::AllGatherv, part, rows, rank(), all);
  }
  at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) override {
    return gather(Operation::Gatherv, part, rows, root, {});
  }

  void broadcast(at::Tensor& tensor, int root) override {
    require_contiguous("broadcast", tensor);
    const CollectiveCounters::Call call(counters_, Operation::Broadcast, tensor.nbytes());
    publish(Operation::Broadcast, tensor);
    barrier_.wait_for(root);
    if (rank() != root) copy_bytes(peer_tensor(root, tensor), tensor);
    finish(Operation::Broadcast, tensor);
  }

  void send(const at::Tensor& tensor, int to) override {
    require_contiguous("send", tensor);
    require_peer("send", to, rank(), size());
    const CollectiveCounters::Call call(counters_, Operation::Send, tensor.nbytes());
    Mailbox& box = state_->mailbox(first_ + rank(), first_ + to);
    box.tensor = tensor;
    box.written.record(tensor);
    const uint64_t number = box.published.load(std::memory_order_relaxed) + 1;
    box.published.store(number, std::memory_order_release);
    notify(state_->barrier_slots[first_ + to].event);
    barrier_.wait_until("send", to, [&] { return box.taken.load(std::memory_order_acquire) == number; });
    box.read.block(tensor);
    box.tensor.reset();
  }

  void recv(at::Tensor& tensor, int from) override {
    require_contiguous("recv", tensor);
    require_peer("recv", from, rank(), size());
    const CollectiveCounters::Call call(counters_, Operation::Recv, tensor.nbytes());
    Mailbox& box = state_->mailbox(first_ + from, first_ + rank());
    const uint64_t number = box.taken.load(std::memory_order_relaxed) + 1;
    barrier_.wait_until("recv", from, [&] { return box.published.load(std::memory_order_acquire) >= number; });
    if (box.tensor.nbytes() != tensor.nbytes())
      throw std::logic_error("recv on rank " + std::to_string(first_ + rank()) + ": expected " +
                             std::to_string(tensor.nbytes()) + " bytes, rank " + std::to_string(first_ + from) +
                             " sent " + std::to_string(box.tensor.nbytes()));
    box.written.block(tensor);
    copy_bytes(box.tensor, tensor);
    box.read.record(tensor);
    box.taken.store(number, std::memory_order_release);
    notify(state_->barrier_slots[first_ + from].event);
  }

  void barrier() override {
    const CollectiveCounters::Call call(counters_, Operation::Barrier, 0);
    barrier_.enter(Operation::Barrier, 0);
    barrier_.arrive();
    barrier_.wait_for_all();
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank(), size());
    return std::make_shared<InProcessCommunicator>(state_, first_ + first, count, rank() - first, deadline_);
  }

  void abort(const std::string& reason) override { state_->abort(reason); }
  std::vector<Count> counts() const override { return counters_.read(); }

 private:
  void publish(Operation op, const at::Tensor& tensor, int64_t agreed_bytes = -1) {
    barrier_.enter(op, agreed_bytes < 0 ? static_cast<int64_t>(tensor.nbytes()) : agreed_bytes);
    Published& mine = published(rank());
    mine.tensor = tensor;
    mine.written.record(tensor);
    barrier_.arrive();
  }

  /// Returns the tensor that a peer published, ordered before what the current stream does next.
  const at::Tensor& peer_tensor(int peer, const at::Tensor& mine) {
    if (peer != rank()) published(peer).written.block(mine);
    return published(peer).tensor;
  }

  /// Ends the operation: no rank continues before all have read.
  void finish(Operation op, const at::Tensor& tensor) {
    barrier_.enter(op, 0);
    published(rank()).read.record(tensor);
    barrier_.arrive();
    barrier_.wait_for_all();
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) published(peer).read.block(tensor);
    published(rank()).tensor.reset();
  }

  /// Sums the elements of this rank and writes the result into the tensors of all ranks; no other rank writes there.
  void reduce_share(int64_t numel, Op op) {
    const Share share = share_of(numel, rank(), size());
    std::vector<const float*> parts;
    for (int peer = 0; peer < size(); ++peer)
      parts.push_back(published(peer).tensor.const_data_ptr<float>() + share.first);
    float* out = published(rank()).tensor.mutable_data_ptr<float>() + share.first;
    reduce_in_rank_order(parts, out, share.count, op);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) std::copy_n(out, share.count, published(peer).tensor.mutable_data_ptr<float>() + share.first);
  }

  at::Tensor reduce_on_device(Op op) {
    const at::Tensor& mine = published(rank()).tensor;
    at::Tensor sum = peer_tensor(0, mine).to(mine.device(), at::kFloat, false, true);
    for (int peer = 1; peer < size(); ++peer) {
      const at::Tensor part = peer_tensor(peer, mine).to(mine.device()).view_as(mine);
      sum = op == Op::Sum ? sum.add_(part) : at::maximum(sum, part);
    }
    return sum.view_as(mine);
  }

  /// Gathers into `result` where that is defined. Only `reader` gets the result; for all_gatherv each rank names
  /// itself.
  at::Tensor gather(Operation op, const at::Tensor& part, std::span<const int64_t> rows, int reader,
                    at::Tensor result) {
    const GatherShape shape(name(op), part, rows, rank(), size());
    if (result.defined()) shape.require_result(name(op), part, result);
    const CollectiveCounters::Call call(counters_, op, shape.total_bytes());
    publish(op, part, shape.total_bytes());
    if (rank() == reader) {
      barrier_.wait_for_all();
      if (!result.defined()) result = shape.make_result(part);
      for (int64_t peer = 0, first = 0; peer < size(); first += rows[peer++])
        copy_bytes(peer_tensor(static_cast<int>(peer), part), result.narrow(0, first, rows[peer]));
    }
    finish(op, part);
    return result;
  }

  Published& published(int of) { return state_->published[static_cast<size_t>(first_ + of)]; }

  std::shared_ptr<SharedState> state_;
  int first_;
  std::chrono::milliseconds deadline_;
  PhasedBarrier barrier_;
  CollectiveCounters counters_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> in_process(int n, std::chrono::milliseconds deadline) {
  if (n < 1) throw std::invalid_argument("a group of " + std::to_string(n) + " ranks; expected at least 1");
  auto state = std::make_shared<SharedState>(n);
  std::vector<std::shared_ptr<Communicator>> out;
  for (int rank = 0; rank < n; ++rank)
    out.push_back(std::make_shared<InProcessCommunicator>(state, 0, n, rank, deadline));
  return out;
}

}  // namespace pm::comm
