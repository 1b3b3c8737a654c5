// Communicators between threads of one process. Ranks show each other their tensors and read them in place; an operation ends
// with a phase in which everybody says that it has read. Tensors of other devices are ordered across streams by events.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <optional>
#include <stdexcept>

#include "worker/comm/communicator.h"
#include "worker/comm/counts.h"
#include "worker/comm/phases.h"
#include "worker/comm/reduce.h"
#include "worker/comm/tensor_checks.h"

namespace pm::comm {
namespace {

/// A point on the current stream of a tensor's device that other threads' streams can wait for. Nothing on CPU.
class StreamMark {
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

/// What one rank shows in the current operation: its tensor, and the points on its stream where that was written and where the rank had read all others.
struct Shown {
  at::Tensor tensor;
  StreamMark written, read;
};

/// One direction between two ranks: the sender shows its tensor and stays until the receiver has copied it.
struct Mailbox {
  std::atomic<uint64_t> shown{0}, taken{0};
  at::Tensor tensor;
  StreamMark written, read;
};

struct Room {
  explicit Room(int n) : seats(n), shown(n), mail(static_cast<size_t>(n) * n) {}
  void abort(const std::string& reason) {
    note.write(reason);
    for (Seat& seat : seats) alarm(seat.door);
  }
  Mailbox& mailbox(int from, int to) { return mail[static_cast<size_t>(from) * seats.size() + to]; }

  std::vector<Seat> seats;
  AbortNote note;
  std::vector<Shown> shown;
  std::vector<Mailbox> mail;
};

void copy_bytes(const at::Tensor& from, at::Tensor to) {
  if (from.is_cpu() && to.is_cpu()) {
    if (from.nbytes() != 0 && from.data_ptr() != to.data_ptr()) std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
  } else {
    to.view_as(from).copy_(from);
  }
}

class InProcess final : public Communicator {
 public:
  /// The group's ranks are those of the room from `first` on, `rank` counts from there.
  InProcess(std::shared_ptr<Room> room, int first, int size, int rank, std::chrono::milliseconds deadline)
      : room_(std::move(room)), first_(first), deadline_(deadline),
        phases_(std::span(room_->seats).subspan(static_cast<size_t>(first), static_cast<size_t>(size)), room_->note, rank, first, deadline,
                [this](const std::string& why) { abort(why); }) {}

  int rank() const override { return phases_.rank(); }
  int size() const override { return phases_.size(); }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    const Counts::Call call(counts_, Operation::AllReduce, tensor.nbytes());
    show(Operation::AllReduce, tensor);
    phases_.wait_for_all();
    if (tensor.is_cpu()) {
      reduce_share(tensor.numel(), op);
      finish(Operation::AllReduce, tensor);
    } else {
      const at::Tensor sum = reduce_on_device(op);
      finish(Operation::AllReduce, tensor);
      tensor.copy_(sum);
    }
  }

  at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) override { return gather(Operation::AllGatherv, part, rows, rank(), {}); }
  void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) override { gather(Operation::AllGatherv, part, rows, rank(), all); }
  at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) override {
    return gather(Operation::Gatherv, part, rows, root, {});
  }

  void broadcast(at::Tensor& tensor, int root) override {
    require_contiguous("broadcast", tensor);
    const Counts::Call call(counts_, Operation::Broadcast, tensor.nbytes());
    show(Operation::Broadcast, tensor);
    phases_.wait_for(root);
    if (rank() != root) copy_bytes(see(root, tensor), tensor);
    finish(Operation::Broadcast, tensor);
  }

  void send(const at::Tensor& tensor, int to) override {
    require_contiguous("send", tensor);
    require_peer("send", to, rank(), size());
    const Counts::Call call(counts_, Operation::Send, tensor.nbytes());
    Mailbox& box = room_->mailbox(first_ + rank(), first_ + to);
    box.tensor = tensor;
    box.written.record(tensor);
    const uint64_t number = box.shown.load(std::memory_order_relaxed) + 1;
    box.shown.store(number, std::memory_order_release);
    knock(room_->seats[first_ + to].door);
    phases_.wait_until("send", to, [&] { return box.taken.load(std::memory_order_acquire) == number; });
    box.read.block(tensor);
    box.tensor.reset();
  }

  void recv(at::Tensor& tensor, int from) override {
    require_contiguous("recv", tensor);
    require_peer("recv", from, rank(), size());
    const Counts::Call call(counts_, Operation::Recv, tensor.nbytes());
    Mailbox& box = room_->mailbox(first_ + from, first_ + rank());
    const uint64_t number = box.taken.load(std::memory_order_relaxed) + 1;
    phases_.wait_until("recv", from, [&] { return box.shown.load(std::memory_order_acquire) >= number; });
    if (box.tensor.nbytes() != tensor.nbytes())
      throw std::logic_error("recv on rank " + std::to_string(first_ + rank()) + ": expected " + std::to_string(tensor.nbytes()) + " bytes, rank " +
                             std::to_string(first_ + from) + " sent " + std::to_string(box.tensor.nbytes()));
    box.written.block(tensor);
    copy_bytes(box.tensor, tensor);
    box.read.record(tensor);
    box.taken.store(number, std::memory_order_release);
    knock(room_->seats[first_ + from].door);
  }

  void barrier() override {
    const Counts::Call call(counts_, Operation::Barrier, 0);
    phases_.enter(Operation::Barrier, 0);
    phases_.arrive();
    phases_.wait_for_all();
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank(), size());
    return std::make_shared<InProcess>(room_, first_ + first, count, rank() - first, deadline_);
  }

  void abort(const std::string& reason) override { room_->abort(reason); }
  std::vector<Count> counts() const override { return counts_.read(); }

 private:
  void show(Operation op, const at::Tensor& tensor, int64_t agreed_bytes = -1) {
    phases_.enter(op, agreed_bytes < 0 ? static_cast<int64_t>(tensor.nbytes()) : agreed_bytes);
    Shown& mine = shown(rank());
    mine.tensor = tensor;
    mine.written.record(tensor);
    phases_.arrive();
  }

  /// The tensor a peer showed, ordered before what the current stream does next.
  const at::Tensor& see(int peer, const at::Tensor& mine) {
    if (peer != rank()) shown(peer).written.block(mine);
    return shown(peer).tensor;
  }

  /// Nobody leaves before all have read.
  void finish(Operation op, const at::Tensor& tensor) {
    phases_.enter(op, 0);
    shown(rank()).read.record(tensor);
    phases_.arrive();
    phases_.wait_for_all();
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) shown(peer).read.block(tensor);
    shown(rank()).tensor.reset();
  }

  /// Sums this rank's share of the elements and writes it into everybody's tensor: nobody else touches that share.
  void reduce_share(int64_t numel, Op op) {
    const Share share = share_of(numel, rank(), size());
    std::vector<const float*> parts;
    for (int peer = 0; peer < size(); ++peer) parts.push_back(shown(peer).tensor.const_data_ptr<float>() + share.first);
    float* out = shown(rank()).tensor.mutable_data_ptr<float>() + share.first;
    reduce_in_rank_order(parts, out, share.count, op);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) std::copy_n(out, share.count, shown(peer).tensor.mutable_data_ptr<float>() + share.first);
  }

  at::Tensor reduce_on_device(Op op) {
    const at::Tensor& mine = shown(rank()).tensor;
    at::Tensor sum = see(0, mine).to(mine.device(), at::kFloat, false, true);
    for (int peer = 1; peer < size(); ++peer) {
      const at::Tensor part = see(peer, mine).to(mine.device()).view_as(mine);
      sum = op == Op::Sum ? sum.add_(part) : at::maximum(sum, part);
    }
    return sum.view_as(mine);
  }

  /// `reader` gets the result, in `result` where that is defined; for all_gatherv each rank names itself.
  at::Tensor gather(Operation op, const at::Tensor& part, std::span<const int64_t> rows, int reader, at::Tensor result) {
    const GatherShape shape(name(op), part, rows, rank(), size());
    if (result.defined()) shape.require_result(name(op), part, result);
    const Counts::Call call(counts_, op, shape.total_bytes());
    show(op, part, shape.total_bytes());
    if (rank() == reader) {
      phases_.wait_for_all();
      if (!result.defined()) result = shape.make_result(part);
      for (int64_t peer = 0, first = 0; peer < size(); first += rows[peer++])
        copy_bytes(see(static_cast<int>(peer), part), result.narrow(0, first, rows[peer]));
    }
    finish(op, part);
    return result;
  }

  Shown& shown(int of) { return room_->shown[static_cast<size_t>(first_ + of)]; }

  std::shared_ptr<Room> room_;
  int first_;
  std::chrono::milliseconds deadline_;
  Phases phases_;
  Counts counts_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator>> in_process(int n, std::chrono::milliseconds deadline) {
  if (n < 1) throw std::invalid_argument("a group of " + std::to_string(n) + " ranks; expected at least 1");
  auto room = std::make_shared<Room>(n);
  std::vector<std::shared_ptr<Communicator>> out;
  for (int rank = 0; rank < n; ++rank) out.push_back(std::make_shared<InProcess>(room, 0, n, rank, deadline));
  return out;
}

}  // namespace pm::comm
