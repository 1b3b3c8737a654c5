// See over_nodes.h. Every collective is an exchange between all pairs of ranks, each with a word that says what is called. Small sums go whole from everyone to everyone, which
// takes one exchange; large ones by shares: each rank gets its share from all, sums it in rank order, and gives the sum to all. Long tensors go in pieces.
#include "worker/comm/over_nodes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "worker/comm/counts.h"
#include "worker/comm/exchange.h"
#include "worker/comm/reduce.h"
#include "worker/comm/tensor_checks.h"

namespace pm::comm {
namespace {

constexpr int64_t piece_bytes = 4 << 20;          ///< what is summed at once: bounds the memory that others' parts take
constexpr int64_t share_from_bytes = 16 << 10;    ///< from here on, groups of three and more sum by shares: two exchanges, but fewer bytes
constexpr int word_bits = 56;

uint64_t word_of(Operation op, int64_t bytes) { return static_cast<uint64_t>(op) << word_bits | static_cast<uint64_t>(bytes); }

std::string describe(uint64_t word) {
  return std::string(name(static_cast<Operation>(word >> word_bits))) + " of " + std::to_string(word & ((1ull << word_bits) - 1)) + " bytes";
}

void require_cpu(const char* op, const at::Tensor& tensor) {
  if (!tensor.is_cpu()) throw std::invalid_argument(std::string(op) + ": groups over nodes take CPU tensors, found " + tensor.device().str());
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) { return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}; }
std::span<std::byte> bytes_of(float* data, int64_t count) { return {reinterpret_cast<std::byte*>(data), static_cast<size_t>(count) * sizeof(float)}; }

class OverNodes final : public Communicator {
 public:
  /// The group's ranks are those of the world from `first` on. `local`: the world through this node's segment.
  OverNodes(std::shared_ptr<Mesh> mesh, std::shared_ptr<Communicator> local, int first, int size, std::chrono::milliseconds deadline)
      : mesh_(std::move(mesh)), local_(std::move(local)), first_(first), size_(size), rank_(mesh_->settings().rank - first), deadline_(deadline),
        exchange_(mesh_->segment().note(), mesh_->settings().rank, mesh_->settings().count, deadline, [m = mesh_.get()](const std::string& why) { m->abort(why); }) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    require_cpu("all_reduce", tensor);
    const Counts::Call call(counts_, Operation::AllReduce, tensor.nbytes());
    float* data = tensor.mutable_data_ptr<float>();
    const int64_t step = piece_bytes / static_cast<int64_t>(sizeof(float));
    int64_t at = 0;
    do {   // an empty tensor is an exchange, too: ranks stay in step
      const int64_t count = std::min(step, tensor.numel() - at);
      const bool shares = size_ > 2 && count * static_cast<int64_t>(sizeof(float)) >= share_from_bytes;
      shares ? reduce_by_shares(data + at, count, op) : reduce_whole(data + at, count, op);
      at += count;
    } while (at < tensor.numel());
  }

  at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) override { return gather(Operation::AllGatherv, part, rows, -1, {}); }
  void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) override { gather(Operation::AllGatherv, part, rows, -1, all); }
  at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) override { return gather(Operation::Gatherv, part, rows, root, {}); }

  void broadcast(at::Tensor& tensor, int root) override {
    require_contiguous("broadcast", tensor);
    require_cpu("broadcast", tensor);
    const Counts::Call call(counts_, Operation::Broadcast, tensor.nbytes());
    begin(Operation::Broadcast, static_cast<int64_t>(tensor.nbytes()));
    if (rank_ != root) in(root, bytes_of(tensor));
    else for (int peer = 0; peer < size_; ++peer) out(peer, bytes_of(tensor));
    run();
  }

  void send(const at::Tensor& tensor, int to) override { pass(Operation::Send, tensor, to); }
  void recv(at::Tensor& tensor, int from) override { pass(Operation::Recv, tensor, from); }

  void barrier() override {
    const Counts::Call call(counts_, Operation::Barrier, 0);
    begin(Operation::Barrier, 0);
    for (int peer = 0; peer < size_; ++peer) out(peer, {}), in(peer, {});
    run();
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank_, size_);
    if (mesh_->here(first_ + first) && mesh_->here(first_ + first + count - 1)) return local_->split(first_ + first, count);
    return std::make_shared<OverNodes>(mesh_, local_, first_ + first, count, deadline_);
  }

  void abort(const std::string& reason) override { mesh_->abort(reason); }

  std::vector<Count> counts() const override {
    std::vector<Count> all = counts_.read(), inside = local_->counts();   // of send and recv between ranks of this node
    for (size_t i = 0; i < all.size(); ++i) all[i].calls += inside[i].calls, all[i].bytes += inside[i].bytes, all[i].seconds += inside[i].seconds;
    return all;
  }

 private:
  void begin(Operation op, int64_t bytes) {
    moves_.clear();
    op_ = op;
    word_ = word_of(op, bytes);
  }
  void add(int peer, std::span<std::byte> body, bool out) {
    if (peer == rank_) return;
    moves_.push_back({.socket = &mesh_->connection(first_ + peer, Purpose::Collective), .peer = first_ + peer, .out = out, .word = word_, .body = body});
  }
  void out(int peer, std::span<std::byte> body) { add(peer, body, true); }
  void in(int peer, std::span<std::byte> body) { add(peer, body, false); }
  void run() { exchange_.run(name(op_), moves_, describe); }

  /// Room for `count` floats of each other rank.
  float* others(int64_t count, int peer) {
    const auto whole = static_cast<size_t>(count) * static_cast<size_t>(size_);
    if (others_.size() < whole) others_.resize(whole);
    return others_.data() + count * peer;
  }

  /// Every rank's values: this rank's own where they are, the others' as they came.
  void reduce(float* mine, int64_t count, Op op) {
    parts_.resize(static_cast<size_t>(size_));
    for (int peer = 0; peer < size_; ++peer) parts_[static_cast<size_t>(peer)] = peer == rank_ ? mine : others(count, peer);
    reduce_in_rank_order(parts_, mine, count, op);
  }

  void reduce_whole(float* data, int64_t count, Op op) {
    begin(Operation::AllReduce, count * static_cast<int64_t>(sizeof(float)));
    others(count, 0);
    for (int peer = 0; peer < size_; ++peer) out(peer, bytes_of(data, count)), in(peer, bytes_of(others(count, peer), count));
    run();
    reduce(data, count, op);
  }

  void reduce_by_shares(float* data, int64_t count, Op op) {
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

  /// `root` gets the result, in `result` where that is defined; -1: everyone does.
  at::Tensor gather(Operation op, const at::Tensor& part, std::span<const int64_t> rows, int root, at::Tensor result) {
    const GatherShape shape(name(op), part, rows, rank_, size_);
    if (result.defined()) shape.require_result(name(op), part, result);
    require_cpu(name(op), part);
    const Counts::Call call(counts_, op, shape.total_bytes());
    begin(op, shape.total_bytes());
    const bool reads = root < 0 || root == rank_;
    for (int peer = 0; peer < size_; ++peer)
      if (root < 0 || root == peer) out(peer, bytes_of(part));
    if (reads) {
      if (!result.defined()) result = shape.make_result(part);
      const auto all = bytes_of(result);
      const auto place = [&](int peer) { return all.subspan(static_cast<size_t>(shape.offset(peer)), static_cast<size_t>(shape.bytes(peer))); };
      const auto own = place(rank_);
      if (!own.empty() && own.data() != part.const_data_ptr()) std::memcpy(own.data(), part.const_data_ptr(), own.size());
      for (int peer = 0; peer < size_; ++peer) in(peer, place(peer));
    }
    run();
    return reads ? result : at::Tensor();
  }

  void pass(Operation op, const at::Tensor& tensor, int peer) {
    require_contiguous(name(op), tensor);
    require_cpu(name(op), tensor);
    require_peer(name(op), peer, rank_, size_);
    const int world = first_ + peer;
    if (mesh_->here(world)) {
      at::Tensor same = tensor;
      return op == Operation::Send ? local_->send(same, world) : local_->recv(same, world);
    }
    const Counts::Call call(counts_, op, tensor.nbytes());
    Move move{.socket = &mesh_->connection(world, Purpose::PointToPoint), .peer = world, .out = op == Operation::Send, .word = word_of(Operation::Send, static_cast<int64_t>(tensor.nbytes())),
              .body = bytes_of(tensor)};
    exchange_.run(name(op), std::span(&move, 1), describe);
  }

  const std::shared_ptr<Mesh> mesh_;
  const std::shared_ptr<Communicator> local_;
  const int first_, size_, rank_;
  const std::chrono::milliseconds deadline_;
  Exchange exchange_;
  Counts counts_;
  Operation op_ = Operation::Barrier;
  uint64_t word_ = 0;
  std::vector<Move> moves_;          ///< of the exchange under way
  std::vector<float> others_;
  std::vector<const float*> parts_;
};

}  // namespace

std::shared_ptr<Communicator> over_nodes(std::shared_ptr<Mesh> mesh, const std::string& segment, std::chrono::milliseconds deadline) {
  const MeshSettings& world = mesh->settings();
  auto local = shared_memory(segment, world.rank, world.size, deadline);
  return std::make_shared<OverNodes>(std::move(mesh), std::move(local), 0, world.size, deadline);
}

}  // namespace pm::comm
