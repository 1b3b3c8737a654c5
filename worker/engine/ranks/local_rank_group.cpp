// SPDX-License-Identifier: Apache-2.0
// The rank group whose ranks are threads of this process.
#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "worker/engine/ranks/device.h"
#include "worker/engine/ranks/rank_group.h"

#include "base/log.h"

namespace pm::engine {

namespace {

constexpr auto step_deadline = std::chrono::seconds(60);

class LocalRankGroup final : public RankGroup {
 public:
  explicit LocalRankGroup(const RankGroupConfig&);
  ~LocalRankGroup() override;
  Rank& leader() override { return *ranks_[0]; }

 private:
  void load(const RankGroupConfig&, const std::vector<std::shared_ptr<comm::Communicator>>&, int threads_each);
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::thread> threads_;
};

void LocalRankGroup::load(const RankGroupConfig& config,
                          const std::vector<std::shared_ptr<comm::Communicator>>& communicators, int threads_each) {
  const size_t n = communicators.size();
  std::vector<std::exception_ptr> errors(n);
  const auto load_rank = [&](size_t r) {
    try {
      const at::Device device = rank_device(config.device, static_cast<int>(r));
      const c10::DeviceGuard here(device);
      const int rank = static_cast<int>(r), ranks = static_cast<int>(n);
      limit_device_memory(*config.plan, rank, device, ranks_sharing_device(config.device, rank, ranks));
      ranks_[r] = with_memory_errors(device, "while rank " + std::to_string(r) + " was loaded", nullptr, [&] {
        return std::make_unique<Rank>(parallel::make_executor({config.checkpoint,
                                                               config.model,
                                                               config.plan,
                                                               config.kv_blocks,
                                                               communicators[r],
                                                               {},
                                                               device,
                                                               config.graphs,
                                                               config.adapters}),
                                      threads_each);
      });
    } catch (...) {
      errors[r] = std::current_exception();
    }
  };
  ranks_.resize(n);
  std::vector<std::thread> loading;
  for (size_t r = 1; r < n; ++r) loading.emplace_back(load_rank, r);
  load_rank(0);
  for (auto& thread : loading) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

LocalRankGroup::LocalRankGroup(const RankGroupConfig& config) {
  const auto n = config.plan->ranks.size();
  const int threads_each = std::max(1, at::get_num_threads() / static_cast<int>(n));
  const auto communicators = comm::in_process(static_cast<int>(n), step_deadline);
  load(config, communicators, threads_each);
  kv_blocks_ = config.kv_blocks;
  Channels out(n), back(n);
  for (size_t r = 1; r < n; ++r) {
    out[r] = comm::in_process_channel(step_deadline);
    if (sends_results(*config.plan, static_cast<int>(r))) back[r] = comm::in_process_channel(step_deadline);
    threads_.emplace_back([this, r, communicator = communicators[r], channel = out[r], results = back[r]] {
      try {
        ranks_[r]->follow(*channel, results.get());
      } catch (const std::exception& error) {
        LOG(ERROR) << "rank " << r << " stopped: " << error.what();
        communicator->abort(error.what());
        if (results) results->abort(error.what());
      }
    });
  }
  open_dp_ranks(
      *config.plan,
      [&](int follower, comm::Direction direction) {
        return (direction == comm::Direction::ToFollower ? out : back)[static_cast<size_t>(follower)];
      },
      step_deadline);
}

LocalRankGroup::~LocalRankGroup() {
  close_dp_ranks();
  stop_followers();
  for (auto& thread : threads_) thread.join();
}

}  // namespace

std::unique_ptr<RankGroup> local_rank_group(const RankGroupConfig& config) {
  return std::make_unique<LocalRankGroup>(config);
}

}  // namespace pm::engine
