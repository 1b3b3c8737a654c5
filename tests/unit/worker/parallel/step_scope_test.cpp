// SPDX-License-Identifier: Apache-2.0
// Tests that a step is finished where its scope ends, and what errors do to it.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/parallel/executor.h"

namespace pm::parallel {
namespace {

/// Records the begin and the end of steps. `failing` is the one that throws.
class RecordingExecutor final : public Executor {
 public:
  void check(const Arrays&) const override {}
  std::vector<Arrays> forward(std::span<const Arrays>, const models::OutputSelection&) override {
    calls.emplace_back("forward");
    return {};
  }
  GenerationExecutor* generation() override { return nullptr; }
  SamplingExecutor* sampling() override { return nullptr; }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  std::vector<std::string> calls;
  std::string failing;

 private:
  void begin_step(const StepRequirements& requirements) override {
    call("begin " + std::to_string(requirements.bucket));
  }
  void finish_step() override { call("finish"); }
  void abandon_step() noexcept override { calls.emplace_back("abandon"); }
  void call(const std::string& name) {
    calls.push_back(name);
    if (name == failing) throw std::runtime_error("failed: " + name);
  }
  std::shared_ptr<comm::Communicator> comm_ = comm::in_process(1, std::chrono::seconds(1))[0];
};

void run_step(Executor& executor) {
  const StepScope step = executor.begin({.bucket = 8, .inputs = {}, .wanted = {}});
  executor.forward({}, {});
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

using Calls = std::vector<std::string>;

TEST(StepScope, FinishesTheStepAtItsEnd) {
  RecordingExecutor executor;
  run_step(executor);
  run_step(executor);
  EXPECT_EQ(executor.calls, (Calls{"begin 8", "forward", "finish", "begin 8", "forward", "finish"}));
}

TEST(StepScope, ThrowsWhatFinishingThrows) {
  RecordingExecutor executor;
  executor.failing = "finish";
  EXPECT_EQ(error_of([&] { run_step(executor); }), "failed: finish");
}

TEST(StepScope, AbandonsAStepThatThrowsOrDoesNotBegin) {
  RecordingExecutor executor;
  EXPECT_EQ(error_of([&] {
              const StepScope step = executor.begin({});
              throw std::runtime_error("out of memory");
            }),
            "out of memory");
  EXPECT_EQ(executor.calls, (Calls{"begin 0", "abandon"}));
  executor.failing = "begin 0";
  EXPECT_EQ(error_of([&] { const StepScope step = executor.begin({}); }), "failed: begin 0");
  EXPECT_EQ(executor.calls, (Calls{"begin 0", "abandon", "begin 0", "abandon"}));
}

TEST(StepScope, FinishesAStepThatIsRunWhileAnotherErrorUnwinds) {
  RecordingExecutor executor;
  struct RunsAtEnd {
    Executor& executor;
    ~RunsAtEnd() { run_step(executor); }
  };
  EXPECT_EQ(error_of([&] {
              const RunsAtEnd last{executor};
              throw std::runtime_error("unrelated");
            }),
            "unrelated");
  EXPECT_EQ(executor.calls, (Calls{"begin 8", "forward", "finish"}));
}

}  // namespace
}  // namespace pm::parallel
