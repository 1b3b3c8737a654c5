// SPDX-License-Identifier: Apache-2.0
// The rank group whose ranks are processes, connected over shared memory on one node and over TCP between nodes.
#include <ATen/Parallel.h>

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "worker/base/error.h"
#include "worker/comm/membership/status_table.h"
#include "worker/engine/ranks/device.h"
#include "worker/engine/ranks/rank_group.h"
#include "worker/engine/ranks/rank_memory.h"
#include "worker/engine/ranks/warm_up.h"

#include "base/log.h"

namespace pm::engine {

namespace {

/// Allocated bytes of the node's shared-memory segment, divided by the ranks of the node.
int64_t segment_share(const comm::RankPlacement& placement) {
  struct stat info{};
  return stat(("/dev/shm/" + placement.segment).c_str(), &info) == 0 ? info.st_blocks * 512 / placement.count : 0;
}

/// Loads a rank's shard, reports progress and memory in the status table, and connects to the other ranks. `kv_blocks`
/// receives the number of KV blocks.
std::unique_ptr<Rank> load(const RankGroupConfig& config, const comm::RankPlacement& placement,
                           comm::Membership& membership, comm::RankStatus& status, int64_t& kv_blocks) {
  const auto started = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  const auto report_time = [&] { status.load_seconds_milli = static_cast<int64_t>(seconds() * 1000); };
  status.load_total = config.plan->ranks.at(static_cast<size_t>(placement.rank)).predicted.weights;
  status.state = static_cast<uint32_t>(comm::RankState::Loading);
  const int here = placement.rank - placement.first;
  const at::Device device = rank_device(config.device, here);
  const c10::DeviceGuard on(device);
  const bool measured = !device.is_cpu() && config.max_kv_blocks > 0;
  limit_device_memory(*config.plan, placement.rank, device, 1);
  int64_t beside = 0;
  if (placement.rank == 0 && config.load_beside)
    config.load_beside(device, [&](int64_t bytes) {
      status.load_bytes = beside = bytes;
      report_time();
    });
  status.load_total += beside;
  auto rank = with_memory_errors(device, "while rank " + std::to_string(placement.rank) + " was loaded", nullptr, [&] {
    return std::make_unique<Rank>(parallel::make_executor({config.checkpoint, config.model, config.plan,
                                                           measured ? 0 : config.kv_blocks, membership.communicator(),
                                                           [&](int64_t bytes) {
                                                             status.load_bytes = beside + bytes;
                                                             report_time();
                                                           },
                                                           device, config.graphs, config.adapters}));
  });
  status.measured.communicator = segment_share(placement);
  report_loaded(rank->executor(), status);
  report_time();
  LOG(INFO) << "rank " << placement.rank << " holds " << status.measured.weights << " bytes of weights and "
            << status.measured.kv << " of KV blocks after " << seconds() << " s";
  membership.connect_all();
  kv_blocks = config.kv_blocks;
  if (measured) {
    const WarmUpResult warmed =
        warm_up(*rank, config, *membership.communicator(), ranks_sharing_device(config.device, here, placement.count));
    kv_blocks = warmed.blocks;
    status.measured.activations = warmed.activations;
    status.graphs.bytes = warmed.graphs;
    report_loaded(rank->executor(), status);
  }
  return rank;
}

class ProcessRankGroup final : public RankGroup {
 public:
  ProcessRankGroup(const RankGroupConfig& config, const comm::RankPlacement& placement)
      : status_table_(comm::StatusTable::open(placement.segment, placement.size)),
        membership_(placement, status_table_) {
    rank_ = load(config, placement, membership_, status_table_->rank(0), kv_blocks_);
    wait_for_ranks();
    open_dp_ranks(
        *config.plan, [&](int follower, comm::Direction direction) { return membership_.channel(follower, direction); },
        placement.deadline);
  }
  ~ProcessRankGroup() override {
    close_dp_ranks();
    stop_followers();
  }
  Rank& leader() override { return *rank_; }

 private:
  /// Waits until all followers are ready. Loading has no deadline here: the launcher ends the replica if a rank fails
  /// or makes no progress.
  void wait_for_ranks() {
    for (int r = 1; r < status_table_->size(); ++r) {
      while (status_table_->rank(r).state != static_cast<uint32_t>(comm::RankState::Ready)) {
        if (status_table_->rank(r).failed)
          throw Error(Reason::RankLost, "rank " + std::to_string(r) + " failed while loading");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  std::shared_ptr<comm::StatusTable> status_table_;
  comm::Membership membership_;
  std::unique_ptr<Rank> rank_;
};

}  // namespace

std::unique_ptr<RankGroup> process_rank_group(const RankGroupConfig& config, const comm::RankPlacement& placement) {
  return std::make_unique<ProcessRankGroup>(config, placement);
}

void follow(const RankGroupConfig& config, const comm::RankPlacement& placement) {
  const auto status_table = comm::StatusTable::open(placement.segment, placement.size);
  comm::RankStatus& status = status_table->rank(placement.rank);
  comm::Membership membership(placement, status_table);
  int64_t kv_blocks = 0;
  const auto rank = load(config, placement, membership, status, kv_blocks);
  const auto channel = membership.channel(placement.rank);
  std::shared_ptr<comm::Channel> results;
  if (sends_results(*config.plan, placement.rank))
    results = membership.channel(placement.rank, comm::Direction::ToLeader);
  status.state = static_cast<uint32_t>(comm::RankState::Ready);
  rank->follow(*channel, results.get(), [&](int64_t step) {
    status.steps = step;
    report_step(rank->executor(), status);
  });
}

}  // namespace pm::engine
