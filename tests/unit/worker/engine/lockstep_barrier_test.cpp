// SPDX-License-Identifier: Apache-2.0
// Tests of data-parallel ranks in lockstep: every rank runs every step, whichever has work.
#include "worker/engine/ranks/lockstep_barrier.h"

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

/// Sums as SummingExecutor does and waits for all other ranks at the begin and the end of each step, as ranks do that
/// all-gather weights.
class MeetingExecutor final : public parallel::Executor {
 public:
  MeetingExecutor(std::shared_ptr<comm::Communicator> comm, int64_t blocks)
      : comm_(std::move(comm)), sums_(std::make_unique<SummingExecutor>(blocks)) {}
  void check(const Arrays& inputs) const override { sums_->check(inputs); }
  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::OutputSelection& wanted) override {
    return sums_->forward(requests, wanted);
  }
  parallel::GenerationExecutor* generation() override { return sums_.get(); }
  parallel::SamplingExecutor* sampling() override { return sums_.get(); }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  SummingExecutor& sums() { return *sums_; }
  std::atomic<int64_t> steps{0}, worked{0};

 private:
  void begin_step(const parallel::StepRequirements& step_requirements) override {
    comm_->barrier();
    ++steps;
    worked += step_requirements.tokens || !step_requirements.inputs.empty() ? 1 : 0;
  }
  void finish_step() override { comm_->barrier(); }
  std::shared_ptr<comm::Communicator> comm_;
  std::unique_ptr<SummingExecutor> sums_;
};

/// Rank 0, a thread for each other rank, and a scheduler for each data-parallel rank.
struct Lockstep {
  Lockstep(int n, const Limits& limits) {
    const auto comms = comm::in_process(n, std::chrono::seconds(20));
    Channels out, back;
    for (int r = 0; r < n; ++r) {
      executors.push_back(new MeetingExecutor(comms[static_cast<size_t>(r)], limits.kv_blocks));
      ranks.push_back(std::make_unique<Rank>(std::unique_ptr<parallel::Executor>(executors.back())));
      if (r == 0) continue;
      out.push_back(comm::in_process_channel(std::chrono::seconds(20)));
      back.push_back(comm::in_process_channel(std::chrono::seconds(20)));
      threads.emplace_back([rank = ranks.back().get(), channel = out.back(), results = back.back(), comm = comms[0]] {
        try {
          rank->follow(*channel, results.get());
        } catch (const std::exception& error) {
          comm->abort(error.what());
          results->abort(error.what());
        }
      });
    }
    channels = out;
    dp_ranks = lockstep_dp_ranks(*ranks[0], out, back, std::chrono::seconds(20));
    for (const auto& dp_rank : dp_ranks) schedulers.push_back(std::make_unique<Scheduler>(*dp_rank, limits));
  }
  ~Lockstep() {
    schedulers.clear();
    dp_ranks.clear();
    StepMessage stop;
    stop.stop = true;
    for (auto& channel : channels) {
      try {
        channel->send(encode(stop));
      } catch (const std::exception&) {
      }
    }
    for (auto& thread : threads) thread.join();
  }
  std::vector<MeetingExecutor*> executors;
  std::vector<std::unique_ptr<Rank>> ranks;
  Channels channels;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<DpRank>> dp_ranks;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
};

Request request_of(int i, int64_t count) {
  return {std::to_string(i),
          prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)),
          count,
          {i % 3 == 0, 1, 0, 1, 5},
          {},
          true,
          {}};
}

TEST(LockstepBarrier, AnswersAreCorrectAndEveryRankRunsEveryStep) {
  for (const int n : {2, 3}) {
    Lockstep lockstep(n, {.vocabulary = vocabulary,
                          .positions = 512,
                          .kv_blocks = 40,
                          .max_concurrency = 10,
                          .max_queue = 256,
                          .step_tokens = 32});
    std::vector<Stream> streams(60);
    for (int i = 0; i < 60; ++i) {
      lockstep.schedulers[static_cast<size_t>(i % n)]->submit(
          request_of(i, 1 + i % 20),
          [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
    }
    for (int i = 0; i < 60; ++i) {
      EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
      EXPECT_EQ(streams[static_cast<size_t>(i)].tokens,
                expected(prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20))
          << i;
    }
    for (const MeetingExecutor* one : lockstep.executors)
      EXPECT_NEAR(static_cast<double>(one->steps), static_cast<double>(lockstep.executors[0]->steps),
                  1);  // one step may be in flight
  }
}

TEST(LockstepBarrier, BusyDpRanksShareTheirSteps) {
  Lockstep lockstep(2, {.vocabulary = vocabulary,
                        .positions = 512,
                        .kv_blocks = 40,
                        .max_concurrency = 10,
                        .max_queue = 256,
                        .step_tokens = 32});
  std::vector<Stream> streams(2);
  for (auto& executor : lockstep.executors)
    executor->sums().slow = true;  // 20 ms per step: both requests are there before the second step
  for (int i = 0; i < 2; ++i) {
    lockstep.schedulers[static_cast<size_t>(i)]->submit(
        {std::to_string(i), prompt_of(i, 4), 30, {}, {}, true, {}},
        [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  for (Stream& stream : streams) EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_LE(lockstep.executors[0]->steps, 30 + 4);
  for (const MeetingExecutor* one : lockstep.executors) EXPECT_GE(one->worked, 30);
}

TEST(LockstepBarrier, AnIdleDpRankTakesPartAndDelaysNoOther) {
  Lockstep lockstep(3, {.vocabulary = vocabulary,
                        .positions = 512,
                        .kv_blocks = 40,
                        .max_concurrency = 10,
                        .max_queue = 256,
                        .step_tokens = 32});
  Stream stream;
  lockstep.schedulers[1]->submit({"one", prompt_of(1, 4), 50, {}, {}, true, {}},
                                 [&](const Event& event) { stream(event); });
  EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_EQ(stream.tokens, expected(prompt_of(1, 4), 50));
  EXPECT_EQ(lockstep.executors[0]->worked, 0);
  EXPECT_GE(lockstep.executors[2]->steps, 50);
}

TEST(LockstepBarrier, ForwardRequestsRunBesideGeneration) {
  Lockstep lockstep(2, {.vocabulary = vocabulary,
                        .positions = 512,
                        .kv_blocks = 40,
                        .max_concurrency = 10,
                        .max_queue = 256,
                        .step_tokens = 32});
  Stream stream;
  lockstep.schedulers[0]->submit({"tokens", prompt_of(1, 4), 100, {}, {}, true, {}},
                                 [&](const Event& event) { stream(event); });
  for (int i = 0; i < 10; ++i) {
    std::promise<ForwardResult> done;
    lockstep.schedulers[1]->forward(
        {.id = std::to_string(i), .inputs = {{"input_ids", Array{{1, 2}, std::vector<int64_t>{i, 3}}}}, .outputs = {}},
        [&](ForwardResult result) { done.set_value(std::move(result)); });
    const ForwardResult result = done.get_future().get();
    ASSERT_EQ(result.finish, Finish::Stop);
    EXPECT_EQ(result.outputs, (Arrays{{"logits", Array{{1, 2}, std::vector<int64_t>{2 * i, 6}}}}));
  }
  EXPECT_EQ(stream.wait(), Finish::Length);
}

TEST(LockstepBarrier, AFailedRankFailsTheRequestsOfAllDpRanks) {
  for (const size_t failing : {0, 1}) {
    Lockstep lockstep(2, {.vocabulary = vocabulary,
                          .positions = 512,
                          .kv_blocks = 60,
                          .max_concurrency = 10,
                          .max_queue = 256,
                          .step_tokens = 32});
    std::vector<Stream> streams(4);
    for (int i = 0; i < 4; ++i) {
      lockstep.schedulers[static_cast<size_t>(i % 2)]->submit(
          {std::to_string(i), prompt_of(i, 4), 400, {}, {}, true, {}},
          [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
    }
    while (lockstep.schedulers[0]->statistics().generation_tokens < 20) std::this_thread::yield();
    lockstep.executors[failing]->sums().fail = true;
    for (Stream& stream : streams) EXPECT_EQ(stream.wait(), Finish::Failed);
    for (const auto& scheduler : lockstep.schedulers) EXPECT_TRUE(scheduler->failed());
  }
}

}  // namespace
}  // namespace pm::engine
