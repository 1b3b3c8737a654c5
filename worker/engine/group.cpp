// See group.h: what groups of threads and of processes have in common.
#include "worker/engine/group.h"

#include "worker/engine/clock.h"

namespace pm::engine {

bool gives_results(const Plan& plan, int rank) {
  const RankPlan& place = plan.ranks.at(static_cast<size_t>(rank));
  return rank != 0 && place.tensor == 0 && place.stage == plan.pipeline - 1;
}

void Group::open_lanes(const Plan& plan, const Link& link, std::chrono::milliseconds deadline) {
  if (plan.gathering && plan.data > 1) {   // lanes of one rank, whose steps are one
    Channels results;
    for (int rank = 1; rank < plan.data; ++rank) {
      followers_.push_back(link(rank, comm::Way::Out));
      results.push_back(link(rank, comm::Way::Back));
    }
    lanes_ = lanes_of_one_clock(leader(), followers_, std::move(results), deadline);
    return;
  }
  const int ranks = plan.tensor * plan.pipeline;   // of a lane
  for (int lane = 0; lane < plan.data; ++lane) {
    Channels followers;
    std::shared_ptr<comm::Channel> results;
    for (int rank = lane * ranks; rank < (lane + 1) * ranks; ++rank) {
      if (rank > 0) followers.push_back(link(rank, comm::Way::Out));
      if (gives_results(plan, rank)) results = link(rank, comm::Way::Back);
    }
    followers_.insert(followers_.end(), followers.begin(), followers.end());
    if (results) lanes_.push_back(std::make_unique<RemoteLane>(leader(), lane == 0, std::move(followers), std::move(results), plan.pipeline, deadline));
    else lanes_.push_back(std::make_unique<DirectLane>(leader(), std::move(followers)));
  }
}

StepResult Group::run(const StepMessage& message) {
  for (const auto& lane : lanes_) lane->send(message);
  StepResult result;
  for (const auto& lane : lanes_) {
    StepOutput output = lane->take();
    lane->rest();
    if (lane == lanes_.front()) result = {choose(message, {}, output), std::move(output.outputs)};
  }
  return result;
}

void Group::dismiss() noexcept {
  StepMessage last;
  last.stop = true;
  for (const auto& channel : followers_) {
    try {
      channel->send(encode(last));
    } catch (const std::exception&) {   // that follower has ended already
    }
  }
}

}  // namespace pm::engine
