// Lanes of one clock: every step is every rank's, whoever has work, and every reply is still its request's.
#include "worker/engine/clock.h"

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

/// Sums as SummingExecutor, and meets all other ranks at the begin of each step and at its end, as ranks that gather weights do.
class MeetingExecutor final : public parallel::Executor {
 public:
  MeetingExecutor(std::shared_ptr<comm::Communicator> comm, int64_t blocks) : comm_(std::move(comm)), sums_(std::make_unique<SummingExecutor>(blocks)) {}
  void check(const Arrays& inputs) const override { sums_->check(inputs); }
  void begin(const parallel::Coming& coming) override {
    comm_->barrier();
    ++steps;
    worked += coming.tokens || !coming.inputs.empty() ? 1 : 0;
  }
  void finish() override { comm_->barrier(); }
  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::Wanted& wanted) override { return sums_->forward(requests, wanted); }
  void copy_blocks(std::span<const int32_t> pairs) override { sums_->copy_blocks(pairs); }
  at::Tensor step(models::StepRows& rows) override { return sums_->step(rows); }
  bool generates() const override { return true; }
  at::Tensor greedy(const at::Tensor& hidden) override { return sums_->greedy(hidden); }
  at::Tensor logits(const at::Tensor& hidden) override { return sums_->logits(hidden); }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  SummingExecutor& sums() { return *sums_; }
  std::atomic<int64_t> steps{0}, worked{0};

 private:
  std::shared_ptr<comm::Communicator> comm_;
  std::unique_ptr<SummingExecutor> sums_;
};

/// Rank 0 and a thread for each other, a scheduler for each lane.
struct Clocked {
  Clocked(int n, const Limits& limits) {
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
    lanes = lanes_of_one_clock(*ranks[0], out, back, std::chrono::seconds(20));
    for (const auto& lane : lanes) schedulers.push_back(std::make_unique<Scheduler>(*lane, limits));
  }
  ~Clocked() {
    schedulers.clear();
    lanes.clear();
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
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
};

Request request_of(int i, int64_t count) { return {std::to_string(i), prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), count, {i % 3 == 0, 1, 0, 1, 5}, {}, true, {}}; }

TEST(Clock, RepliesOfBusyLanesAreRightAndStepsAreOfAll) {
  for (const int n : {2, 3}) {
    Clocked clocked(n, {vocabulary, 512, 40, 10, 256, 32});
    std::vector<Stream> streams(60);
    for (int i = 0; i < 60; ++i) {
      clocked.schedulers[static_cast<size_t>(i % n)]->submit(request_of(i, 1 + i % 20), [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
    }
    for (int i = 0; i < 60; ++i) {
      EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
      EXPECT_EQ(streams[static_cast<size_t>(i)].tokens, expected(prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20)) << i;
    }
    for (const MeetingExecutor* one : clocked.executors) EXPECT_NEAR(static_cast<double>(one->steps), static_cast<double>(clocked.executors[0]->steps), 1);   // one may be under way
  }
}

TEST(Clock, LanesThatAreBusyAtOnceShareTheirSteps) {
  Clocked clocked(2, {vocabulary, 512, 40, 10, 256, 32});
  std::vector<Stream> streams(2);
  for (auto& executor : clocked.executors) executor->sums().slow = true;   // 20 ms a step: both are there before the second one
  for (int i = 0; i < 2; ++i) {
    clocked.schedulers[static_cast<size_t>(i)]->submit({std::to_string(i), prompt_of(i, 4), 30, {}, {}, true, {}}, [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  for (Stream& stream : streams) EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_LE(clocked.executors[0]->steps, 30 + 4);
  for (const MeetingExecutor* one : clocked.executors) EXPECT_GE(one->worked, 30);
}

TEST(Clock, ALaneWithoutWorkTakesPartAndHoldsNobodyUp) {
  Clocked clocked(3, {vocabulary, 512, 40, 10, 256, 32});
  Stream stream;
  clocked.schedulers[1]->submit({"one", prompt_of(1, 4), 50, {}, {}, true, {}}, [&](const Event& event) { stream(event); });
  EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_EQ(stream.tokens, expected(prompt_of(1, 4), 50));
  EXPECT_EQ(clocked.executors[0]->worked, 0);
  EXPECT_GE(clocked.executors[2]->steps, 50);
}

TEST(Clock, PassesGoThroughBesideTokens) {
  Clocked clocked(2, {vocabulary, 512, 40, 10, 256, 32});
  Stream stream;
  clocked.schedulers[0]->submit({"tokens", prompt_of(1, 4), 100, {}, {}, true, {}}, [&](const Event& event) { stream(event); });
  for (int i = 0; i < 10; ++i) {
    std::promise<ForwardResult> done;
    clocked.schedulers[1]->forward({.id = std::to_string(i), .inputs = {{"input_ids", Array{{1, 2}, std::vector<int64_t>{i, 3}}}}, .outputs = {}},
                                   [&](ForwardResult result) { done.set_value(std::move(result)); });
    const ForwardResult result = done.get_future().get();
    ASSERT_EQ(result.finish, Finish::Stop);
    EXPECT_EQ(result.outputs, (Arrays{{"logits", Array{{1, 2}, std::vector<int64_t>{2 * i, 6}}}}));
  }
  EXPECT_EQ(stream.wait(), Finish::Length);
}

TEST(Clock, ARankThatFailsFailsTheRequestsOfAllLanes) {
  for (const size_t failing : {0, 1}) {
    Clocked clocked(2, {vocabulary, 512, 60, 10, 256, 32});
    std::vector<Stream> streams(4);
    for (int i = 0; i < 4; ++i) {
      clocked.schedulers[static_cast<size_t>(i % 2)]->submit({std::to_string(i), prompt_of(i, 4), 400, {}, {}, true, {}}, [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
    }
    while (clocked.schedulers[0]->statistics().generation_tokens < 20) std::this_thread::yield();
    clocked.executors[failing]->sums().fail = true;
    for (Stream& stream : streams) EXPECT_EQ(stream.wait(), Finish::Failed);
    for (const auto& scheduler : clocked.schedulers) EXPECT_TRUE(scheduler->failed());
  }
}

}  // namespace
}  // namespace pm::engine
