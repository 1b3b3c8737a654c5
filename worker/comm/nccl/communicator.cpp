// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl/communicator.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>

#include "worker/comm/collectives/collective_counters.h"
#include "worker/comm/collectives/tensor_checks.h"
#include "worker/comm/nccl/nccl_comm.h"
#include "worker/comm/nccl/watchdog.h"

namespace pm::comm::nccl {
namespace {

// A call in a call log: 8 bits of operation, 40 of bytes, 16 of its number.
constexpr int op_shift = 56, bytes_shift = 16;
constexpr uint64_t bytes_mask = (1ull << 40) - 1, number_mask = (1ull << bytes_shift) - 1;

std::string describe(uint64_t call) {
  return std::string(name(static_cast<Operation>(call >> op_shift))) + " of " +
         std::to_string(call >> bytes_shift & bytes_mask) + " bytes";
}

/// Returns the bytes of the device outside the allocator of this process: contexts, libraries, other programs.
int64_t bytes_outside_allocator(at::Device device) {
  const c10::DeviceGuard here(device);
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  const auto [free, total] = allocator.getMemoryInfo(device.index());
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<int64_t>(total - free) - allocator.getDeviceStats(device.index()).reserved_bytes[all].current;
}

/// State that all communicators of a rank share.
struct World {
  DeviceGroup group;
  Streams streams;
  Watchdog watchdog;
  uint64_t calls = 0;                    ///< collectives started
  std::atomic<int64_t> device_bytes{0};  ///< device memory in bytes that NCCL communicators took
  std::map<int, std::unique_ptr<NcclComm>>
      pairs;  ///< by world rank of the peer; used by every communicator of the rank
  World(const DeviceGroup& of, const Streams& streams)
      : group(of), streams(streams), watchdog(of.segment, of.device, streams, of.host->rank(), of.deadline) {}
  ~World() {
    for (auto& [peer, nccl_comm] : pairs)
      if (nccl_comm) watchdog.remove(*nccl_comm);
  }
};

/// Returns the 128 bytes of an NCCL id as a tensor that the host communicator can send.
at::Tensor bytes_of(ncclUniqueId& id) {
  return at::from_blob(id.internal, {static_cast<int64_t>(sizeof id.internal)}, at::TensorOptions(at::kByte));
}

class NcclCommunicator final : public Communicator {
 public:
  /// The ranks of the group are those of the world from `first` on. `host` is their host communicator.
  NcclCommunicator(std::shared_ptr<World> world, std::shared_ptr<Communicator> host, int first)
      : world_(std::move(world)), host_(std::move(host)), first_(first), rank_(host_->rank()), size_(host_->size()) {}
  ~NcclCommunicator() override {
    if (all_) world_->watchdog.remove(*all_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool supports_graph_capture() const override { return true; }
  void graph_replayed(const char* what) override { world_->watchdog.enqueued(what, 0); }

  void all_reduce(at::Tensor& tensor, Op op) override {
    require_float(tensor);
    if (tensor.is_cpu()) return host_->all_reduce(tensor, op);
    collective(Operation::AllReduce, tensor, static_cast<int64_t>(tensor.nbytes()), [&](ncclComm_t comm) {
      void* data = tensor.mutable_data_ptr();
      return ncclAllReduce(data, data, static_cast<size_t>(tensor.numel()), ncclFloat32,
                           op == Op::Sum ? ncclSum : ncclMax, comm, stream());
    });
  }

  at::Tensor all_gatherv(const at::Tensor& part, std::span<const int64_t> rows) override {
    if (part.is_cpu()) return host_->all_gatherv(part, rows);
    at::Tensor all = GatherShape("all_gatherv", part, rows, rank_, size_).make_result(part);
    all_gatherv(part, rows, all);
    return all;
  }

  void all_gatherv(const at::Tensor& part, std::span<const int64_t> rows, at::Tensor& all) override {
    if (part.is_cpu()) return host_->all_gatherv(part, rows, all);
    const GatherShape shape("all_gatherv", part, rows, rank_, size_);
    shape.require_result("all_gatherv", part, all);
    const bool even = std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
    collective(Operation::AllGatherv, part, shape.total_bytes(), [&](ncclComm_t comm) {
      const auto* mine = static_cast<const char*>(part.const_data_ptr());
      auto* out = static_cast<char*>(all.mutable_data_ptr());
      if (even) return ncclAllGather(mine, out, static_cast<size_t>(shape.bytes(rank_)), ncclInt8, comm, stream());
      return in_nccl_group([&](auto&& add) {
        for (int root = 0; root < size_; ++root)
          if (shape.bytes(root) != 0)
            add(ncclBroadcast(mine, out + shape.offset(root), static_cast<size_t>(shape.bytes(root)), ncclInt8, root,
                              comm, stream()));
      });
    });
    if (size_ == 1) copy_own_part(part, shape, all);
  }

  at::Tensor gatherv(const at::Tensor& part, std::span<const int64_t> rows, int root) override {
    if (part.is_cpu()) return host_->gatherv(part, rows, root);
    const GatherShape shape("gatherv", part, rows, rank_, size_);
    at::Tensor result = rank_ == root ? shape.make_result(part) : at::Tensor();
    collective(Operation::Gatherv, part, shape.total_bytes(), [&](ncclComm_t comm) {
      const void* mine = part.const_data_ptr();
      auto* out = rank_ == root ? static_cast<char*>(result.mutable_data_ptr()) : nullptr;
      return in_nccl_group([&](auto&& add) {
        if (rank_ != root && shape.bytes(rank_) != 0)
          add(ncclSend(mine, static_cast<size_t>(shape.bytes(rank_)), ncclInt8, root, comm, stream()));
        for (int peer = 0; rank_ == root && peer < size_; ++peer)
          if (peer != root && shape.bytes(peer) != 0)
            add(ncclRecv(out + shape.offset(peer), static_cast<size_t>(shape.bytes(peer)), ncclInt8, peer, comm,
                         stream()));
      });
    });
    if (rank_ == root) copy_own_part(part, shape, result);
    return result;
  }

  void broadcast(at::Tensor& tensor, int root) override {
    require_contiguous("broadcast", tensor);
    if (tensor.is_cpu()) return host_->broadcast(tensor, root);
    collective(Operation::Broadcast, tensor, static_cast<int64_t>(tensor.nbytes()), [&](ncclComm_t comm) {
      void* data = tensor.mutable_data_ptr();
      return ncclBroadcast(data, data, tensor.nbytes(), ncclInt8, root, comm, stream());
    });
  }

  void send(const at::Tensor& tensor, int to) override {
    require_contiguous("send", tensor);
    if (tensor.is_cpu()) return host_->send(tensor, to);
    point_to_point(
        Operation::Send, tensor, to,
        [&](int64_t bytes) { host_->send(at::from_blob(&bytes, {1}, at::TensorOptions(at::kLong)), to); },
        [&](ncclComm_t comm, int peer) {
          return ncclSend(tensor.const_data_ptr(), tensor.nbytes(), ncclInt8, peer, comm, stream());
        });
  }

  void recv(at::Tensor& tensor, int from) override {
    require_contiguous("recv", tensor);
    if (tensor.is_cpu()) return host_->recv(tensor, from);
    point_to_point(
        Operation::Recv, tensor, from,
        [&](int64_t expected) {
          int64_t bytes = 0;
          at::Tensor word = at::from_blob(&bytes, {1}, at::TensorOptions(at::kLong));
          host_->recv(word, from);
          if (bytes == expected) return;
          const std::string what = "recv on rank " + std::to_string(first_ + rank_) + ": expected " +
                                   std::to_string(expected) + " bytes, rank " + std::to_string(first_ + from) +
                                   " sent " + std::to_string(bytes);
          abort(what);  // the data that was sent would wait for ever
          throw std::logic_error(what);
        },
        [&](ncclComm_t comm, int peer) {
          return ncclRecv(tensor.mutable_data_ptr(), tensor.nbytes(), ncclInt8, peer, comm, stream());
        });
  }

  void barrier() override { host_->barrier(); }
  void check() override {
    if (note().aborted()) throw_aborted("a step", first_ + rank_, note());
  }

  std::shared_ptr<Communicator> split(int first, int count) override {
    require_part(first, count, rank_, size_);
    return std::make_shared<NcclCommunicator>(world_, host_->split(first, count), first_ + first);
  }

  void abort(const std::string& reason) override {
    host_->abort(reason);
    world_->watchdog.abort(reason);
  }

  int64_t device_bytes() const override { return world_->device_bytes; }

  std::vector<Count> counts() const override {
    std::vector<Count> all = counters_.read(), host = host_->counts();
    for (size_t i = 0; i < all.size(); ++i)
      all[i].calls += host[i].calls, all[i].bytes += host[i].bytes, all[i].seconds += host[i].seconds;
    return all;
  }

 private:
  AbortNote& note() const { return world_->group.segment->note(); }
  cudaStream_t stream() const { return world_->streams.current(world_->group.device); }

  void require_device(const char* op, const at::Tensor& tensor) const {
    if (tensor.device() != world_->group.device)
      throw std::invalid_argument(std::string(op) + " on rank " + std::to_string(first_ + rank_) +
                                  ": expected a tensor on " + world_->group.device.str() + ", found " +
                                  tensor.device().str());
  }

  void copy_own_part(const at::Tensor& part, const GatherShape& shape, at::Tensor& all) const {
    at::Tensor own = all.narrow(0, shape.row_bytes == 0 ? 0 : shape.offset(rank_) / shape.row_bytes, part.size(0));
    if (part.numel() != 0 && own.const_data_ptr() != part.const_data_ptr()) own.copy_(part);
  }

  /// Checks that ranks of one node make the same call. No rank waits: the later of two ranks sees what the earlier
  /// called. Captured calls do not count: the capture of one rank may end early, and later calls must have the same
  /// numbers on all ranks all the same.
  void check_same_call(Operation op, int64_t bytes) {
    if (note().aborted()) throw_aborted(name(op), first_ + rank_, note());
    if (world_->streams.capturing(world_->group.device)) return;
    const uint64_t number = ++world_->calls;
    const uint64_t mine = static_cast<uint64_t>(op) << op_shift |
                          (static_cast<uint64_t>(bytes) & bytes_mask) << bytes_shift | (number & number_mask);
    const auto logs = world_->group.segment->call_logs();
    const auto place = [&](int world) -> std::atomic<uint64_t>& {
      return logs[static_cast<size_t>(world)].calls[number % CallLog{}.calls.size()];
    };
    place(first_ + rank_).store(mine);
    for (int world = first_; world < first_ + size_; ++world) {
      const uint64_t theirs = place(world).load();
      if (theirs == 0 || theirs == mine || (theirs & number_mask) != (number & number_mask)) continue;
      const std::string what = "ranks disagree: rank " + std::to_string(first_ + rank_) + " calls " + describe(mine) +
                               ", rank " + std::to_string(world) + " calls " + describe(theirs);
      abort(what);
      throw std::logic_error(what);
    }
  }

  /// Runs a collective of device tensors: counts it, checks that no other rank makes another call, and, unless there is
  /// nothing to exchange, enqueues `calls(communicator)` in the stream.
  template <class Calls>
  void collective(Operation op, const at::Tensor& tensor, int64_t bytes, Calls&& calls) {
    require_device(name(op), tensor);
    const CollectiveCounters::Call call(counters_, op, bytes);
    check_same_call(op, bytes);
    if (size_ > 1 && bytes > 0) run(op, bytes, all(), calls);
  }

  /// Runs one side of a transfer with `peer`. `exchange_sizes(bytes)` runs on the hosts and checks that both sides
  /// agree. `calls(communicator, rank of the peer there)` enqueues the transfer.
  template <class ExchangeSizes, class Calls>
  void point_to_point(Operation op, const at::Tensor& tensor, int peer, ExchangeSizes&& exchange_sizes, Calls&& calls) {
    require_device(name(op), tensor);
    require_peer(name(op), peer, rank_, size_);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    const CollectiveCounters::Call call(counters_, op, bytes);
    NcclComm& nccl_comm = pair(peer);
    exchange_sizes(bytes);
    if (bytes > 0) run(op, bytes, nccl_comm, [&](ncclComm_t comm) { return calls(comm, rank_ < peer ? 1 : 0); });
  }

  template <class Calls>
  void run(Operation op, int64_t bytes, NcclComm& nccl_comm, Calls&& calls) {
    nccl_comm.call(name(op), calls);
    world_->watchdog.enqueued(name(op), bytes);
  }

  /// Runs calls as one NCCL group (ncclGroupStart, ncclGroupEnd) and returns their first error.
  template <class Calls>
  static ncclResult_t in_nccl_group(Calls&& calls) {
    ncclResult_t worst = ncclGroupStart();
    if (worst != ncclSuccess) return worst;
    calls([&](ncclResult_t result) {
      if (worst == ncclSuccess && result != ncclInProgress) worst = result;
    });
    const ncclResult_t end = ncclGroupEnd();
    return worst == ncclSuccess ? end : worst;
  }

  void join(std::unique_ptr<NcclComm>& nccl_comm, const ncclUniqueId& id, const NcclComm::Who& who) {
    const int64_t before = bytes_outside_allocator(world_->group.device);
    nccl_comm =
        std::make_unique<NcclComm>(id, who, world_->group.device, world_->watchdog.segment(), world_->group.deadline);
    world_->device_bytes += std::max<int64_t>(0, bytes_outside_allocator(world_->group.device) - before);
    world_->watchdog.add(*nccl_comm);
  }

  /// Returns the NCCL communicator of all ranks of this group, which join at their first collective.
  NcclComm& all() {
    if (all_) return *all_;
    ncclUniqueId id{};
    at::Tensor bytes = bytes_of(id);
    if (rank_ == 0) {
      id = new_id();
      for (int peer = 1; peer < size_; ++peer) host_->send(bytes, peer);
    } else {
      host_->recv(bytes, 0);
    }
    const std::string with = "ranks " + std::to_string(first_) + " to " + std::to_string(first_ + size_ - 1);
    join(all_, id, {rank_, size_, first_ + rank_, with});
    return *all_;
  }

  /// Returns the NCCL communicator with one other rank, which both join at their first transfer. The lower rank is 0
  /// there.
  NcclComm& pair(int peer) {
    std::unique_ptr<NcclComm>& nccl_comm = world_->pairs[first_ + peer];
    if (nccl_comm) return *nccl_comm;
    ncclUniqueId id{};
    at::Tensor bytes = bytes_of(id);
    if (rank_ < peer) {
      id = new_id();
      host_->send(bytes, peer);
    } else {
      host_->recv(bytes, peer);
    }
    join(nccl_comm, id, {rank_ < peer ? 0 : 1, 2, first_ + rank_, "rank " + std::to_string(first_ + peer)});
    return *nccl_comm;
  }

  const std::shared_ptr<World> world_;
  const std::shared_ptr<Communicator> host_;
  const int first_, rank_, size_;
  std::unique_ptr<NcclComm> all_;
  CollectiveCounters counters_;
};

}  // namespace

std::shared_ptr<Communicator> join(const DeviceGroup& group, const Streams& streams) {
  return std::make_shared<NcclCommunicator>(std::make_shared<World>(group, streams), group.host, 0);
}

}  // namespace pm::comm::nccl
