// SPDX-License-Identifier: Apache-2.0
// The common part of rank groups of threads and of processes.
#include "worker/engine/ranks/rank_group.h"

#include "worker/engine/ranks/lockstep_barrier.h"

namespace pm::engine {

bool sends_results(const Plan& plan, int rank) {
  const RankPlan& place = plan.ranks.at(static_cast<size_t>(rank));
  return rank != 0 && place.tensor == 0 && place.stage == plan.pipeline - 1;
}

void RankGroup::open_dp_ranks(const Plan& plan, const OpenChannel& open_channel, std::chrono::milliseconds deadline) {
  if (plan.gathering && plan.data > 1) {  // each data-parallel rank is one rank, and all step together
    Channels results;
    for (int rank = 1; rank < plan.data; ++rank) {
      followers_.push_back(open_channel(rank, comm::Direction::ToFollower));
      results.push_back(open_channel(rank, comm::Direction::ToLeader));
    }
    dp_ranks_ = lockstep_dp_ranks(leader(), followers_, std::move(results), deadline);
    return;
  }
  const int ranks = plan.tensor * plan.pipeline;  // per data-parallel rank
  for (int dp_rank = 0; dp_rank < plan.data; ++dp_rank) {
    Channels followers;
    std::shared_ptr<comm::Channel> results;
    for (int rank = dp_rank * ranks; rank < (dp_rank + 1) * ranks; ++rank) {
      if (rank > 0) followers.push_back(open_channel(rank, comm::Direction::ToFollower));
      if (sends_results(plan, rank)) results = open_channel(rank, comm::Direction::ToLeader);
    }
    followers_.insert(followers_.end(), followers.begin(), followers.end());
    if (results)
      dp_ranks_.push_back(std::make_unique<RemoteDpRank>(leader(), dp_rank == 0, std::move(followers),
                                                         std::move(results), plan.pipeline, deadline));
    else
      dp_ranks_.push_back(std::make_unique<DirectDpRank>(leader(), std::move(followers)));
  }
}

StepResult RankGroup::run(const StepMessage& message) {
  for (const auto& dp_rank : dp_ranks_) dp_rank->send(message);
  StepResult result;
  for (const auto& dp_rank : dp_ranks_) {
    StepOutput output = dp_rank->take();
    dp_rank->set_idle();
    if (dp_rank == dp_ranks_.front()) result = {sample(message, {}, output), std::move(output.outputs)};
  }
  return result;
}

void RankGroup::stop_followers() noexcept {
  StepMessage last;
  last.stop = true;
  for (const auto& channel : followers_) {
    try {
      channel->send(encode(last));
    } catch (const std::exception&) {  // this follower has ended already
    }
  }
}

}  // namespace pm::engine
