// SPDX-License-Identifier: Apache-2.0
// Implements the communicator between processes of one host. Each rank writes into its own slot of the segment and
// reads the slots of the others. Tensors longer than half a slot are sent in pieces, one phase each, so that a rank
// writes the next piece while others still read the last one.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "worker/comm/collectives/collective_counters.h"
#include "worker/comm/collectives/phased_barrier.h"
#include "worker/comm/collectives/reduce.h"
#include "worker/comm/collectives/tensor_checks.h"
#include "worker/comm/communicator.h"
#include "worker/comm/shared_memory/segment.h"

namespace pm::comm {
namespace {

constexpr int64_t piece_bytes =
    256 << 10;  ///< a piece of this size is read back while it is still in the second-level cache
constexpr int64_t two_shot_min_bytes = 16 << 10;  ///< from this size on, groups of three and more ranks use two phases
                                                  ///< (reduce-scatter, all-gather), which read less

void require_cpu(const char* op, const at::Tensor& tensor) {
  if (!tensor.is_cpu())
    throw std::invalid_argument(std::string(op) + ": shared memory takes CPU tensors, found " + tensor.device().str());
}

class SharedMemoryCommunicator final : public Communicator {
 public:
  /// The ranks of the group are those of the segment from `first` on; `rank` counts from there.
  SharedMemoryCommunicator(std::shared_ptr<Segment> segment, int first, int size, int rank,
                           std::chrono::milliseconds deadline)
      : segment_(std::move(segment)),
        first_(first),
        deadline_(deadline),
        piece_(std::min(piece_bytes, segment_->half_bytes())),
        barrier_(segment_->barrier_slots().subspan(static_cast<size_t>(first), static_cast<size_t>(size)),
                 segment_->note(), rank, first, deadline, [s = segment_](const std::string& why) { s->abort(why); }) {
    for (int peer = 0; peer < size; ++peer) {
      out_.push_back(mailbox("send", first + rank, first + peer, first + peer));
      in_.push_back(mailbox("recv", first + peer, first + rank, first + peer));
    }
  }

  int rank() const override { return barrier_.rank(); }
  int size() const override { return barrier_.size(); }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    require_cpu("all_reduce", tensor);
    const CollectiveCounters::Call call(counters_, Operation::AllReduce, tensor.nbytes());
    float* data = tensor.mutable_data_ptr<float>();
    const int64_t step = piece_ / static_cast<int64_t>(sizeof(float));
    int64_t at = 0;
    do {  // an empty tensor is one phase too, so that ranks stay in step
      const int64_t count = std::min(step, tensor.numel() - at);
      const bool shares = size() > 2 && count * static_cast<int64_t>(sizeof(float)) >= two_shot_min_bytes;
      shares ? reduce_two_shot(data + at, count, op) : reduce_one_shot(data + at, count, op);
      at += count;
    } while (at < tensor.numel());
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
    require_cpu("broadcast", tensor);
    const CollectiveCounters::Call call(counters_, Operation::Broadcast, tensor.nbytes());
    const int64_t total = static_cast<int64_t>(tensor.nbytes());
    auto* data = static_cast<std::byte*>(tensor.data_ptr());
    for (int64_t at = 0; at == 0 || at < total; at += piece_) {
      const auto count = static_cast<size_t>(std::min(piece_, total - at));
      const int half = barrier_.enter(Operation::Broadcast, total);
      if (rank() == root) copy(slot(root, half), data + at, count);
      barrier_.arrive();
      barrier_.wait_for(root);
      if (rank() != root) copy(data + at, slot(root, half), count);
    }
  }

  void send(const at::Tensor& tensor, int to) override {
    require_contiguous("send", tensor);
    require_cpu("send", tensor);
    require_peer("send", to, rank(), size());
    const CollectiveCounters::Call call(counters_, Operation::Send, tensor.nbytes());
    const uint64_t length = tensor.nbytes();
    out_[to].write(std::as_bytes(std::span(&length, 1)));
    out_[to].write({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }

  void recv(at::Tensor& tensor, int from) override {
    require_contiguous("recv", tensor);
    require_cpu("recv", tensor);
    require_peer("recv", from, rank(), size());
    const CollectiveCounters::Call call(counters_, Operation::Recv, tensor.nbytes());
    uint64_t length = 0;
    in_[from].read(std::as_writable_bytes(std::span(&length, 1)));
    if (length != tensor.nbytes()) {
      const std::string what = "recv on rank " + std::to_string(rank()) + ": expected " +
                               std::to_string(tensor.nbytes()) + " bytes, rank " + std::to_string(from) + " sent " +
                               std::to_string(length);
      abort(what);  // the position in the ring is lost
      throw std::logic_error(what);
    }
    in_[from].read({static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  }

  void barrier() override {
    const CollectiveCounters::Call call(counters_, Operation::Barrier, 0);
    barrier_.enter(Operation::Barrier, 0);
    barrier_.arrive();
    barrier_.wait_for_all();
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank(), size());
    return std::make_shared<SharedMemoryCommunicator>(segment_, first_ + first, count, rank() - first, deadline_);
  }

  void abort(const std::string& reason) override { segment_->abort(reason); }
  std::vector<Count> counts() const override { return counters_.read(); }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  Ring mailbox(const char* op, int from, int to, int peer) {
    return Ring(segment_->mailbox_state(from, to), segment_->mailbox_data(from, to), segment_->note(),
                {op, first_ + barrier_.rank(), peer}, deadline_,
                [s = segment_](const std::string& why) { s->abort(why); });
  }
  std::byte* slot(int of, int half) const { return segment_->slot(first_ + of, half); }
  float* floats(int of, int half) const { return reinterpret_cast<float*>(slot(of, half)); }

  /// Returns the values of every rank: those of this rank in place, those of the others in their slots.
  std::vector<const float*>& parts(const float* mine, int half, int64_t offset) {
    parts_.resize(size());
    for (int peer = 0; peer < size(); ++peer) parts_[peer] = (peer == rank() ? mine : floats(peer, half)) + offset;
    return parts_;
  }

  /// Reduces in one phase: every rank reads the values of all others (one-shot all-reduce).
  void reduce_one_shot(float* data, int64_t count, Op op) {
    const int half = barrier_.enter(Operation::AllReduce, count * static_cast<int64_t>(sizeof(float)));
    if (size() == 1) return barrier_.arrive();
    copy(floats(rank(), half), data, static_cast<size_t>(count) * sizeof(float));
    barrier_.arrive();
    barrier_.wait_for_all();
    reduce_in_rank_order(parts(data, half, 0), data, count, op);
  }

  /// Reduces in two phases: every rank sums its part of the elements, then reads the sums of the others (two-shot
  /// all-reduce: reduce-scatter and all-gather).
  void reduce_two_shot(float* data, int64_t count, Op op) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    const int partials = barrier_.enter(Operation::AllReduce, bytes);
    copy(floats(rank(), partials), data, static_cast<size_t>(bytes));
    barrier_.arrive();
    barrier_.wait_for_all();
    const Share mine = share_of(count, rank(), size());
    reduce_in_rank_order(parts(data, partials, mine.first), data + mine.first, mine.count, op);

    const int sums = barrier_.enter(Operation::AllReduce, bytes);
    copy(floats(rank(), sums) + mine.first, data + mine.first, static_cast<size_t>(mine.count) * sizeof(float));
    barrier_.arrive();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      barrier_.wait_for(peer);
      const Share share = share_of(count, peer, size());
      copy(data + share.first, floats(peer, sums) + share.first, static_cast<size_t>(share.count) * sizeof(float));
    }
  }

  /// Gathers into `result` where that is defined. Only `reader` gets the result; for all_gatherv each rank names
  /// itself. It takes as many phases as the longest part has pieces.
  at::Tensor gather(Operation op, const at::Tensor& part, std::span<const int64_t> rows, int reader,
                    at::Tensor result) {
    const GatherShape shape(name(op), part, rows, rank(), size());
    if (result.defined()) shape.require_result(name(op), part, result);
    require_cpu(name(op), part);
    const CollectiveCounters::Call call(counters_, op, shape.total_bytes());
    if (rank() == reader && !result.defined()) result = shape.make_result(part);
    auto* out = rank() == reader ? static_cast<std::byte*>(result.data_ptr()) : nullptr;
    const auto* mine = static_cast<const std::byte*>(part.const_data_ptr());
    if (out != nullptr && out + shape.offset(rank()) != mine)
      copy(out + shape.offset(rank()), mine, static_cast<size_t>(shape.bytes(rank())));
    int64_t longest = 0;
    for (int peer = 0; peer < size(); ++peer) longest = std::max(longest, shape.bytes(peer));
    for (int64_t at = 0; at == 0 || at < longest; at += piece_) {
      const auto piece_of = [&](int peer) {
        return static_cast<size_t>(std::clamp<int64_t>(shape.bytes(peer) - at, 0, piece_));
      };
      const int half = barrier_.enter(op, shape.total_bytes());
      if (const size_t bytes = piece_of(rank()); bytes != 0) copy(slot(rank(), half), mine + at, bytes);
      barrier_.arrive();
      for (int peer = 0; out != nullptr && peer < size(); ++peer) {
        if (peer == rank()) continue;
        barrier_.wait_for(peer);
        if (const size_t bytes = piece_of(peer); bytes != 0)
          copy(out + shape.offset(peer) + at, slot(peer, half), bytes);
      }
    }
    return result;
  }

  std::shared_ptr<Segment> segment_;
  int first_;
  std::chrono::milliseconds deadline_;
  int64_t piece_;
  PhasedBarrier barrier_;
  CollectiveCounters counters_;
  std::vector<Ring> out_, in_;  ///< by peer
  std::vector<const float*> parts_;
};

}  // namespace

std::shared_ptr<Communicator> shared_memory(const std::string& segment, int rank, int size,
                                            std::chrono::milliseconds deadline) {
  if (rank < 0 || rank >= size)
    throw std::invalid_argument("rank " + std::to_string(rank) + " in a group of " + std::to_string(size));
  return std::make_shared<SharedMemoryCommunicator>(Segment::open(segment, size), 0, size, rank, deadline);
}

}  // namespace pm::comm
