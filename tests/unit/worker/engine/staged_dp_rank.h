// SPDX-License-Identifier: Apache-2.0
// A data-parallel rank whose pipeline stages are threads. All stages but the last send a token on; the last one
// computes the expected answer.
#pragma once
#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {

/// One stage: waits for the previous stage, sleeps for its step time, and wakes the next stage.
class StageExecutor final : public parallel::Executor, public parallel::GenerationExecutor {
 public:
  StageExecutor(std::shared_ptr<comm::Communicator> comm, int64_t blocks, std::chrono::microseconds time)
      : comm_(std::move(comm)), time_(time), sums_(std::make_unique<SummingExecutor>(blocks)) {}
  void check(const Arrays& inputs) const override { sums_->check(inputs); }
  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::OutputSelection& wanted) override {
    return run_stage([&] { return sums_->forward(requests, wanted); });
  }
  void make_blocks(int64_t blocks) override { sums_->make_blocks(blocks); }
  void copy_blocks(std::span<const int32_t> pairs) override { sums_->copy_blocks(pairs); }
  at::Tensor step(models::StepRows& rows) override {
    return run_stage([&] { return sums_->step(rows); });
  }
  parallel::GenerationExecutor* generation() override { return this; }
  parallel::SamplingExecutor* sampling() override { return is_last() ? sums_.get() : nullptr; }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  SummingExecutor& sums() { return *sums_; }

 private:
  bool is_last() const { return comm_->rank() == comm_->size() - 1; }
  template <typename Run>
  auto run_stage(Run run) -> decltype(run()) {
    at::Tensor token = at::zeros({1});
    if (comm_->rank() > 0) comm_->recv(token, comm_->rank() - 1);
    std::this_thread::sleep_for(time_);
    if (is_last()) return run();
    comm_->send(token, comm_->rank() + 1);
    return {};
  }
  std::shared_ptr<comm::Communicator> comm_;
  const std::chrono::microseconds time_;
  std::unique_ptr<SummingExecutor> sums_;
};

/// Rank 0 and a thread for each further stage, behind one data-parallel rank.
class StagedDpRank {
 public:
  StagedDpRank(int stages, int64_t blocks, std::chrono::microseconds time = {}) {
    const auto comms = comm::in_process(stages, std::chrono::seconds(20));
    for (int stage = 0; stage < stages; ++stage) {
      auto executor = std::make_unique<StageExecutor>(comms[static_cast<size_t>(stage)], blocks, time);
      last_ = executor.get();
      ranks_.push_back(std::make_unique<Rank>(std::move(executor)));
    }
    auto results = comm::in_process_channel(std::chrono::seconds(20));
    for (int stage = 1; stage < stages; ++stage) {
      channels_.push_back(comm::in_process_channel(std::chrono::seconds(20)));
      threads_.emplace_back([rank = ranks_[static_cast<size_t>(stage)].get(), channel = channels_.back(),
                             results = stage == stages - 1 ? results : nullptr, comm = comms[0]] {
        try {
          rank->follow(*channel, results.get());
        } catch (const std::exception& error) {
          comm->abort(error.what());
          if (results) results->abort(error.what());
        }
      });
    }
    if (stages == 1)
      dp_rank_ = std::make_unique<DirectDpRank>(*ranks_[0], Channels{});
    else
      dp_rank_ = std::make_unique<RemoteDpRank>(*ranks_[0], true, channels_, results, stages, std::chrono::seconds(20));
  }
  ~StagedDpRank() {
    dp_rank_.reset();
    StepMessage stop;
    stop.stop = true;
    for (auto& channel : channels_) channel->send(encode(stop));
    for (auto& thread : threads_) thread.join();
  }
  DpRank& dp_rank() { return *dp_rank_; }
  SummingExecutor& last() { return last_->sums(); }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  StageExecutor* last_ = nullptr;
  Channels channels_;
  std::vector<std::thread> threads_;
  std::unique_ptr<DpRank> dp_rank_;
};

}  // namespace pm::engine
