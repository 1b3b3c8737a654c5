// A lane whose stages are threads: all but the last pass a token on, the last knows the right answer.
#pragma once
#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {

/// One stage: waits for the one before, takes its time, wakes the next.
class StageExecutor final : public parallel::Executor {
 public:
  StageExecutor(std::shared_ptr<comm::Communicator> comm, int64_t blocks, std::chrono::microseconds time)
      : comm_(std::move(comm)), time_(time), sums_(std::make_unique<SummingExecutor>(blocks)) {}
  void check(const Arrays& inputs) const override { sums_->check(inputs); }
  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::Wanted& wanted) override {
    return pass_on([&] { return sums_->forward(requests, wanted); });
  }
  void copy_blocks(std::span<const int32_t> pairs) override { sums_->copy_blocks(pairs); }
  at::Tensor step(models::StepRows& rows) override {
    return pass_on([&] { return sums_->step(rows); });
  }
  bool generates() const override { return true; }
  bool last() const override { return comm_->rank() == comm_->size() - 1; }
  at::Tensor greedy(const at::Tensor& hidden) override { return sums_->greedy(hidden); }
  at::Tensor logits(const at::Tensor& hidden) override { return sums_->logits(hidden); }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  SummingExecutor& sums() { return *sums_; }

 private:
  template <typename Run>
  auto pass_on(Run run) -> decltype(run()) {
    at::Tensor token = at::zeros({1});
    if (comm_->rank() > 0) comm_->recv(token, comm_->rank() - 1);
    std::this_thread::sleep_for(time_);
    if (last()) return run();
    comm_->send(token, comm_->rank() + 1);
    return {};
  }
  std::shared_ptr<comm::Communicator> comm_;
  const std::chrono::microseconds time_;
  std::unique_ptr<SummingExecutor> sums_;
};

/// Rank 0 and a thread for every further stage, behind one lane.
class StagedLane {
 public:
  StagedLane(int stages, int64_t blocks, std::chrono::microseconds time = {}) {
    const auto comms = comm::in_process(stages, std::chrono::seconds(20));
    for (int stage = 0; stage < stages; ++stage) {
      auto executor = std::make_unique<StageExecutor>(comms[static_cast<size_t>(stage)], blocks, time);
      last_ = executor.get();
      ranks_.push_back(std::make_unique<Rank>(std::move(executor)));
    }
    auto results = comm::in_process_channel(std::chrono::seconds(20));
    for (int stage = 1; stage < stages; ++stage) {
      channels_.push_back(comm::in_process_channel(std::chrono::seconds(20)));
      threads_.emplace_back([rank = ranks_[static_cast<size_t>(stage)].get(), channel = channels_.back(), results = stage == stages - 1 ? results : nullptr, comm = comms[0]] {
        try {
          rank->follow(*channel, results.get());
        } catch (const std::exception& error) {
          comm->abort(error.what());
          if (results) results->abort(error.what());
        }
      });
    }
    if (stages == 1) lane_ = std::make_unique<DirectLane>(*ranks_[0], Channels{});
    else lane_ = std::make_unique<RemoteLane>(*ranks_[0], true, channels_, results, stages, std::chrono::seconds(20));
  }
  ~StagedLane() {
    lane_.reset();
    StepMessage stop;
    stop.stop = true;
    for (auto& channel : channels_) channel->send(encode(stop));
    for (auto& thread : threads_) thread.join();
  }
  Lane& lane() { return *lane_; }
  SummingExecutor& last() { return last_->sums(); }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  StageExecutor* last_ = nullptr;
  Channels channels_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace pm::engine
