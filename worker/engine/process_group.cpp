// See group.h: ranks as processes, on one node around a shared-memory segment, on several connected over TCP.
#include <ATen/Parallel.h>

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "worker/base/error.h"
#include "worker/comm/status.h"
#include "worker/engine/device.h"
#include "worker/engine/group.h"
#include "worker/engine/measure.h"
#include "worker/engine/warm_up.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {

/// Bytes of the node's shared segment that exist, as one rank's part of them.
int64_t segment_share(const comm::Place& place) {
  struct stat info {};
  return stat(("/dev/shm/" + place.segment).c_str(), &info) == 0 ? info.st_blocks * 512 / place.count : 0;
}

/// Loads a rank's share and shows its progress and bytes on the status board; meets the other ranks. `kv_blocks` becomes how many there are.
std::unique_ptr<Rank> load(const GroupModel& group, const comm::Place& place, comm::Membership& membership, comm::RankStatus& status, int64_t& kv_blocks) {
  const auto started = std::chrono::steady_clock::now();
  status.load_total = group.plan->ranks.at(static_cast<size_t>(place.rank)).predicted.weights;
  status.state = static_cast<uint32_t>(comm::RankState::Loading);
  const int here = place.rank - place.first;
  const at::Device device = device_of(group.device, here);
  const c10::DeviceGuard on(device);
  const bool measured = !device.is_cpu() && group.most_blocks > 0;
  limit_to_plan(*group.plan, place.rank, device, 1);
  auto rank = with_memory_errors(device, "while rank " + std::to_string(place.rank) + " was loaded", nullptr, [&] {
    return std::make_unique<Rank>(parallel::make_executor({group.checkpoint, group.model, group.plan, measured ? 0 : group.kv_blocks, membership.communicator(),
                                                           [&](int64_t bytes) { status.load_bytes = bytes; }, device, group.graphs}));
  });
  status.measured[3] = segment_share(place);
  show_loaded(rank->executor(), status);
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  status.load_seconds_milli = static_cast<int64_t>(seconds * 1000);
  LOG(INFO) << "rank " << place.rank << " holds " << status.measured[0] << " bytes of weights and " << status.measured[1]
            << " of KV blocks after " << seconds << " s";
  membership.meet();
  kv_blocks = group.kv_blocks;
  if (measured) {
    const Warmed warmed = warm_up(*rank, group, *membership.communicator(), sharing(group.device, here, place.count));
    kv_blocks = warmed.blocks;
    status.measured[2] = warmed.activations;
    status.graphs[2] = warmed.graphs;
    show_loaded(rank->executor(), status);
  }
  return rank;
}

class ProcessGroup final : public Group {
 public:
  ProcessGroup(const GroupModel& group, const comm::Place& place) : board_(comm::StatusBoard::open(place.segment, place.size)), membership_(place, board_) {
    rank_ = load(group, place, membership_, board_->rank(0), kv_blocks_);
    await_others();
    open_lanes(*group.plan, [&](int follower, comm::Way way) { return membership_.channel(follower, way); }, place.deadline);
  }
  ~ProcessGroup() override {
    close_lanes();
    dismiss();
  }
  Rank& leader() override { return *rank_; }

 private:
  /// Loading may take long and has no deadline here: the launcher ends the group when a rank fails or its bytes stop moving.
  void await_others() {
    for (int r = 1; r < board_->size(); ++r) {
      while (board_->rank(r).state != static_cast<uint32_t>(comm::RankState::Ready)) {
        if (board_->rank(r).failed) throw Error(ErrorKind::RankLost, "RankLost", "rank " + std::to_string(r) + " failed while loading");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  std::shared_ptr<comm::StatusBoard> board_;
  comm::Membership membership_;
  std::unique_ptr<Rank> rank_;
};

}  // namespace

std::unique_ptr<Group> process_group(const GroupModel& group, const comm::Place& place) { return std::make_unique<ProcessGroup>(group, place); }

void follow(const GroupModel& group, const comm::Place& place) {
  const auto board = comm::StatusBoard::open(place.segment, place.size);
  comm::RankStatus& status = board->rank(place.rank);
  comm::Membership membership(place, board);
  int64_t kv_blocks = 0;
  const auto rank = load(group, place, membership, status, kv_blocks);
  const auto channel = membership.channel(place.rank);
  std::shared_ptr<comm::Channel> results;
  if (gives_results(*group.plan, place.rank)) results = membership.channel(place.rank, comm::Way::Back);
  status.state = static_cast<uint32_t>(comm::RankState::Ready);
  rank->follow(*channel, results.get(), [&](int64_t step) {
    status.steps = step;
    show_step(rank->executor(), status);
  });
}

}  // namespace pm::engine
