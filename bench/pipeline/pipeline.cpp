// SPDX-License-Identifier: Apache-2.0
// Measures the utilisation of pipeline stages under the engine's schedule, with stages that only sleep for a known
// time.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "worker/engine/scheduling/scheduler.h"

namespace pm::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr int64_t rows = 16, vocabulary = 100;
constexpr double row_seconds = 2e-3;  // of one row of a forward pass in one stage
constexpr double step_seconds =
    5e-3;  // of one decode step in one stage, independent of rows: decoding reads the weights

/// Sleeps for most of the time and spins for the rest, so that the error is a few microseconds.
void take(double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  std::this_thread::sleep_until(end - std::chrono::microseconds(300));
  while (Clock::now() < end) std::this_thread::yield();
}

/// One stage: it waits for the previous stage, takes its time, and wakes the next.
class NullStage final : public parallel::Executor,
                        private parallel::GenerationExecutor,
                        private parallel::SamplingExecutor {
 public:
  NullStage(std::shared_ptr<comm::Communicator> comm, double slowness) : comm_(std::move(comm)), slowness_(slowness) {}
  void check(const Arrays&) const override {}
  std::vector<Arrays> forward(std::span<const Arrays> inputs, const models::OutputSelection&) override {
    int64_t count = 0;
    for (const Arrays& one : inputs) count += one.at("input_ids").shape[0];
    relay([&] { take(row_seconds * slowness_ * static_cast<double>(count)); });
    return is_last() ? std::vector<Arrays>(inputs.begin(), inputs.end()) : std::vector<Arrays>();
  }
  parallel::GenerationExecutor* generation() override { return this; }
  parallel::SamplingExecutor* sampling() override { return is_last() ? this : nullptr; }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }

 private:
  bool is_last() const { return comm_->rank() == comm_->size() - 1; }
  void make_blocks(int64_t) override {}
  void copy_blocks(std::span<const int32_t>) override {}
  at::Tensor step(models::StepRows& step_rows) override {
    relay([&] { take(step_seconds * slowness_); });
    return is_last() ? at::empty({step_rows.batch.tokens.size(0), 1}) : at::Tensor();
  }
  parallel::Tokens greedy(const at::Tensor& hidden) override { return at::ones({hidden.size(0)}, at::kLong); }
  at::Tensor logits(const at::Tensor& hidden) override { return at::zeros({hidden.size(0), vocabulary}); }

  template <typename Work>
  void relay(Work work) {
    at::Tensor token = at::zeros({1});
    if (comm_->rank() > 0) comm_->recv(token, comm_->rank() - 1);
    work();
    if (!is_last()) comm_->send(token, comm_->rank() + 1);
  }
  const std::shared_ptr<comm::Communicator> comm_;
  const double slowness_;
};

/// Runs the stages of one data-parallel rank in threads, each with its `slowness`.
class Pipeline {
 public:
  explicit Pipeline(const std::vector<double>& slowness) {
    const auto stages = static_cast<int>(slowness.size());
    constexpr auto deadline = std::chrono::seconds(60);
    const auto comms = comm::in_process(stages, deadline);
    for (int stage = 0; stage < stages; ++stage)
      ranks_.push_back(std::make_unique<engine::Rank>(
          std::make_unique<NullStage>(comms[static_cast<size_t>(stage)], slowness[static_cast<size_t>(stage)])));
    const auto results = comm::in_process_channel(deadline);
    for (int stage = 1; stage < stages; ++stage) {
      channels_.push_back(comm::in_process_channel(deadline));
      threads_.emplace_back([rank = ranks_[static_cast<size_t>(stage)].get(), channel = channels_.back(),
                             out = stage == stages - 1 ? results : nullptr] { rank->follow(*channel, out.get()); });
    }
    if (stages == 1)
      dp_rank_ = std::make_unique<engine::DirectDpRank>(*ranks_[0], engine::Channels{});
    else
      dp_rank_ = std::make_unique<engine::RemoteDpRank>(*ranks_[0], true, channels_, results, stages, deadline);
  }
  ~Pipeline() {
    dp_rank_.reset();
    engine::StepMessage stop;
    stop.stop = true;
    for (auto& channel : channels_) channel->send(encode(stop));
    for (auto& thread : threads_) thread.join();
  }
  engine::DpRank& dp_rank() { return *dp_rank_; }

 private:
  std::vector<std::unique_ptr<engine::Rank>> ranks_;
  engine::Channels channels_;
  std::vector<std::thread> threads_;
  std::unique_ptr<engine::DpRank> dp_rank_;
};

engine::Limits limits_of(int64_t stages, int64_t micro_batches) {
  engine::Limits limits{.vocabulary = vocabulary, .positions = 4096, .kv_blocks = 4096, .max_concurrency = 64};
  limits.pipeline_batches = stages;
  limits.micro_batches = micro_batches;
  return limits;
}

/// Returns the work of one stage for a forward pass of `rows` rows, over the time of the pass.
double pass_utilisation(int stages, int64_t micro_batches) {
  Pipeline pipeline(std::vector<double>(static_cast<size_t>(stages), 1));
  engine::Scheduler scheduler(pipeline.dp_rank(), limits_of(stages, micro_batches));
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    std::promise<void> done;
    const auto begin = Clock::now();
    scheduler.forward({.id = "pass", .inputs = {{"input_ids", {{rows, 1}, std::vector<int64_t>(rows)}}}, .outputs = {}},
                      [&](const engine::ForwardResult&) { done.set_value(); });
    done.get_future().wait();
    best = std::max(best, row_seconds * static_cast<double>(rows) / Seconds(Clock::now() - begin).count());
  }
  return best;
}

/// Returns the tokens per second of `sequences` concurrent sequences, over those of the slowest stage without waits.
double decode_utilisation(const std::vector<double>& slowness, int64_t sequences, int64_t tokens) {
  const auto stages = static_cast<int64_t>(slowness.size());
  Pipeline pipeline(slowness);
  engine::Scheduler scheduler(pipeline.dp_rank(), limits_of(stages, 1));
  std::latch ended(sequences);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < sequences; ++i) {
    engine::Request request;
    request.id = std::to_string(i);
    request.prompt = {1};
    request.max_new_tokens = tokens;
    request.ignore_eos = true;
    scheduler.submit(request, [&](const engine::Event& event) {
      if (event.finish != engine::Finish::None) ended.count_down();
    });
  }
  ended.wait();
  const double rate = static_cast<double>(sequences * tokens) / Seconds(Clock::now() - begin).count();
  const double group = static_cast<double>((sequences + stages - 1) / stages),
               slowest = *std::max_element(slowness.begin(), slowness.end());
  return rate / (group / (step_seconds * slowest));
}

int measure() {
  std::printf(
      "a pass of %lld rows in m micro-batches through p stages: work of a stage / time of the pass, best of 5 (and m / "
      "(m + p - 1))\n%4s",
      static_cast<long long>(rows), "p");
  for (const int m : {1, 2, 4, 8, 16}) std::printf("         m = %2d", m);
  for (const int p : {2, 3, 4}) {
    std::printf("\n%4d", p);
    for (const int m : {1, 2, 4, 8, 16})
      std::printf("  %.3f (%.3f)", pass_utilisation(p, m), static_cast<double>(m) / (m + p - 1));
  }
  std::printf("\n\ndecoding, 100 tokens: tokens per second / those of the slowest stage at work all the time\n");
  for (const auto& [name, slowness] : {std::pair{"2 equal stages", std::vector<double>{1, 1}},
                                       {"3 equal stages", {1, 1, 1}},
                                       {"4 equal stages", {1, 1, 1, 1}},
                                       {"3 stages, the last twice as slow", {1, 1, 2}},
                                       {"3 stages, the first twice as slow", {2, 1, 1}}}) {
    const auto stages = static_cast<int64_t>(slowness.size());
    std::printf(
        "%-36s %2lld sequences %.3f, %2lld sequences %.3f, one sequence %.3f (a stage in turn: %.3f)\n", name,
        static_cast<long long>(stages), decode_utilisation(slowness, stages, 100), static_cast<long long>(4 * stages),
        decode_utilisation(slowness, 4 * stages, 100), decode_utilisation(slowness, 1, 100),
        *std::max_element(slowness.begin(), slowness.end()) / [&] {
          double sum = 0;
          for (const double one : slowness) sum += one;
          return sum;
        }());
  }
  return 0;
}

}  // namespace
}  // namespace pm::bench

int main() { return pm::bench::measure(); }
