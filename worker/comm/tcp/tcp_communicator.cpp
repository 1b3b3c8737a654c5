// SPDX-License-Identifier: Apache-2.0
// Implements the communicator over nodes. Every collective is an exchange between all pairs of ranks; each message has
// a tag that names the operation and its size. Small sums are sent whole from every rank to every rank in one exchange.
// Large ones take two: each rank receives its part from all, sums it in rank order, and sends the sum to all. Long
// tensors are sent in pieces.
#include "worker/comm/tcp/tcp_communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "worker/comm/collectives/collective_counters.h"
#include "worker/comm/collectives/reduce.h"
#include "worker/comm/collectives/tensor_checks.h"
#include "worker/comm/tcp/exchange.h"

namespace pm::comm {
namespace {

constexpr int64_t piece_bytes =
    4 << 20;  ///< bytes that are summed at once; bounds the memory for the parts of other ranks
constexpr int64_t two_shot_min_bytes =
    16 << 10;  ///< from this size on, groups of three and more ranks use two exchanges, which send fewer bytes
constexpr int tag_bits = 56;

uint64_t make_tag(Operation op, int64_t bytes) {
  return static_cast<uint64_t>(op) << tag_bits | static_cast<uint64_t>(bytes);
}

std::string describe(uint64_t tag) {
  return std::string(name(static_cast<Operation>(tag >> tag_bits))) + " of " +
         std::to_string(tag & ((1ull << tag_bits) - 1)) + " bytes";
}

void require_cpu(const char* op, const at::Tensor& tensor) {
  if (!tensor.is_cpu())
    throw std::invalid_argument(std::string(op) + ": groups over nodes take CPU tensors, found " +
                                tensor.device().str());
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}
std::span<std::byte> bytes_of(float* data, int64_t count) {
  return {reinterpret_cast<std::byte*>(data), static_cast<size_t>(count) * sizeof(float)};
}

class TcpCommunicator final : public Communicator {
 public:
  /// The ranks of the group are those of the world from `first` on. `local` is the world through the segment of this
  /// node.
  TcpCommunicator(std::shared_ptr<Mesh> mesh, std::shared_ptr<Communicator> local, int first, int size,
                  std::chrono::milliseconds deadline)
      : mesh_(std::move(mesh)),
        local_(std::move(local)),
        first_(first),
        size_(size),
        rank_(mesh_->settings().rank - first),
        deadline_(deadline),
        exchange_(mesh_->segment().note(), mesh_->settings().rank, mesh_->settings().count, deadline,
                  [m = mesh_.get()](const std::string& why) { m->abort(why); }) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    require_cpu("all_reduce", tensor);
    const CollectiveCounters::Call call(counters_, Operation::AllReduce, tensor.nbytes());
    float* data = tensor.mutable_data_ptr<float>();
    const int64_t step = piece_bytes / static_cast<int64_t>(sizeof(float));
    int64_t at = 0;
    do {  // an empty tensor is an exchange too, so that ranks stay in step
      const int64_t count = std::min(step, tensor.numel() - at);
      const bool shares = size_ > 2 && count * static_cast<int64_t>(sizeof(float)) >= two_shot_min_bytes;
      shares ? reduce_two_shot(data + at, count, op) : reduce_one_shot(data + at, count, op);
      at += count;
    } while (at < tensor.numel());
  }

  at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) override {
    return gather(Operation::AllGatherv, part, rows, -1, {});
  }
  void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) override {
    gather(Operation::AllGatherv, part, rows, -1, all);
  }
  at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) override {
    return gather(Operation::Gatherv, part, rows, root, {});
  }

  void broadcast(at::Tensor& tensor, int root) override {
    require_contiguous("broadcast", tensor);
    require_cpu("broadcast", tensor);
    const CollectiveCounters::Call call(counters_, Operation::Broadcast, tensor.nbytes());
    begin(Operation::Broadcast, static_cast<int64_t>(tensor.nbytes()));
    if (rank_ != root)
      in(root, bytes_of(tensor));
    else
      for (int peer = 0; peer < size_; ++peer) out(peer, bytes_of(tensor));
    run();
  }

  void send(const at::Tensor& tensor, int to) override { point_to_point(Operation::Send, tensor, to); }
  void recv(at::Tensor& tensor, int from) override { point_to_point(Operation::Recv, tensor, from); }

  void barrier() override {
    const CollectiveCounters::Call call(counters_, Operation::Barrier, 0);
    begin(Operation::Barrier, 0);
    for (int peer = 0; peer < size_; ++peer) out(peer, {}), in(peer, {});
    run();
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank_, size_);
    if (mesh_->is_local(first_ + first) && mesh_->is_local(first_ + first + count - 1))
      return local_->split(first_ + first, count);
    return std::make_shared<TcpCommunicator>(mesh_, local_, first_ + first, count, deadline_);
  }

  void abort(const std::string& reason) override { mesh_->abort(reason); }

  std::vector<Count> counts() const override {
    std::vector<Count> all = counters_.read(),
                       inside = local_->counts();  // counts of send and recv between ranks of this node
    for (size_t i = 0; i < all.size(); ++i)
      all[i].calls += inside[i].calls, all[i].bytes += inside[i].bytes, all[i].seconds += inside[i].seconds;
    return all;
  }

 private:
  void begin(Operation op, int64_t bytes) {
    transfers_.clear();
    op_ = op;
    tag_ = make_tag(op, bytes);
  }
  void add(int peer, std::span<std::byte> body, bool out) {
    if (peer == rank_) return;
    transfers_.push_back({.socket = &mesh_->connection(first_ + peer, Purpose::Collective),
                          .peer = first_ + peer,
                          .outgoing = out,
                          .tag = tag_,
                          .body = body});
  }
  void out(int peer, std::span<std::byte> body) { add(peer, body, true); }
  void in(int peer, std::span<std::byte> body) { add(peer, body, false); }
  void run() { exchange_.run(name(op_), transfers_, describe); }

  /// Returns the buffer for `count` floats of rank `peer`.
  float* others(int64_t count, int peer) {
    const auto whole = static_cast<size_t>(count) * static_cast<size_t>(size_);
    if (others_.size() < whole) others_.resize(whole);
    return others_.data() + count * peer;
  }

  /// Reduces the values of every rank: those of this rank in place, those of the others as received.
  void reduce(float* mine, int64_t count, Op op) {
    parts_.resize(static_cast<size_t>(size_));
    for (int peer = 0; peer < size_; ++peer)
      parts_[static_cast<size_t>(peer)] = peer == rank_ ? mine : others(count, peer);
    reduce_in_rank_order(parts_, mine, count, op);
  }

  void reduce_one_shot(float* data, int64_t count, Op op) {
    begin(Operation::AllReduce, count * static_cast<int64_t>(sizeof(float)));
    others(count, 0);
    for (int peer = 0; peer < size_; ++peer)
      out(peer, bytes_of(data, count)), in(peer, bytes_of(others(count, peer), count));
    run();
    reduce(data, count, op);
  }

  void reduce_two_shot(float* data, int64_t count, Op op) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    const Share mine = share_of(count, rank_, size_);
    begin(Operation::AllReduce, bytes);
    others(mine.count, 0);
    for (int peer = 0; peer < size_; ++peer) {
      const Share theirs = share_of(count, peer, size_);
      out(peer, bytes_of(data + theirs.first, theirs.count));
      in(peer, bytes_of(others(mine.count, peer), mine.count));
    }
    run();
    reduce(data + mine.first, mine.count, op);
    begin(Operation::AllReduce, bytes);
    for (int peer = 0; peer < size_; ++peer) {
      const Share theirs = share_of(count, peer, size_);
      out(peer, bytes_of(data + mine.first, mine.count));
      in(peer, bytes_of(data + theirs.first, theirs.count));
    }
    run();
  }

  /// Gathers into `result` where that is defined. Only `root` gets the result; -1 means every rank.
  at::Tensor gather(Operation op, const at::Tensor& part, std::span<const int64_t> rows, int root, at::Tensor result) {
    const GatherShape shape(name(op), part, rows, rank_, size_);
    if (result.defined()) shape.require_result(name(op), part, result);
    require_cpu(name(op), part);
    const CollectiveCounters::Call call(counters_, op, shape.total_bytes());
    begin(op, shape.total_bytes());
    const bool reads = root < 0 || root == rank_;
    for (int peer = 0; peer < size_; ++peer)
      if (root < 0 || root == peer) out(peer, bytes_of(part));
    if (reads) {
      if (!result.defined()) result = shape.make_result(part);
      const auto all = bytes_of(result);
      const auto place = [&](int peer) {
        return all.subspan(static_cast<size_t>(shape.offset(peer)), static_cast<size_t>(shape.bytes(peer)));
      };
      const auto own = place(rank_);
      if (!own.empty() && own.data() != part.const_data_ptr())
        std::memcpy(own.data(), part.const_data_ptr(), own.size());
      for (int peer = 0; peer < size_; ++peer) in(peer, place(peer));
    }
    run();
    return reads ? result : at::Tensor();
  }

  void point_to_point(Operation op, const at::Tensor& tensor, int peer) {
    require_contiguous(name(op), tensor);
    require_cpu(name(op), tensor);
    require_peer(name(op), peer, rank_, size_);
    const int world = first_ + peer;
    if (mesh_->is_local(world)) {
      at::Tensor same = tensor;
      return op == Operation::Send ? local_->send(same, world) : local_->recv(same, world);
    }
    const CollectiveCounters::Call call(counters_, op, tensor.nbytes());
    Transfer transfer{.socket = &mesh_->connection(world, Purpose::PointToPoint),
                      .peer = world,
                      .outgoing = op == Operation::Send,
                      .tag = make_tag(Operation::Send, static_cast<int64_t>(tensor.nbytes())),
                      .body = bytes_of(tensor)};
    exchange_.run(name(op), std::span(&transfer, 1), describe);
  }

  const std::shared_ptr<Mesh> mesh_;
  const std::shared_ptr<Communicator> local_;
  const int first_, size_, rank_;
  const std::chrono::milliseconds deadline_;
  Exchange exchange_;
  CollectiveCounters counters_;
  Operation op_ = Operation::Barrier;
  uint64_t tag_ = 0;
  std::vector<Transfer> transfers_;  ///< transfers of the current exchange
  std::vector<float> others_;
  std::vector<const float*> parts_;
};

}  // namespace

std::shared_ptr<Communicator> tcp_communicator(std::shared_ptr<Mesh> mesh, const std::string& segment,
                                               std::chrono::milliseconds deadline) {
  const MeshSettings& world = mesh->settings();
  auto local = shared_memory(segment, world.rank, world.size, deadline);
  return std::make_shared<TcpCommunicator>(std::move(mesh), std::move(local), 0, world.size, deadline);
}

}  // namespace pm::comm
