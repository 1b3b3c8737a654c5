// SPDX-License-Identifier: Apache-2.0
// Tests the poller of /status: silent pods delay no reconcile, and pods are polled no more often than needed.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "controller/operator/shell/cost_limiter.h"
#include "controller/operator/shell/status_poller.h"

namespace pm::op {
namespace {

using namespace std::chrono_literals;
using k8s::Json;

class FixedClock final : public k8s::Clock {
 public:
  Steady now() const override { return Steady(std::chrono::milliseconds(milliseconds.load())); }
  Wall wall() const override { return {}; }
  std::atomic<int> milliseconds = 1000;
};

/// Simulates pods by address: some respond, some stay silent until the end.
class Pods final : public StatusProbe {
 public:
  std::optional<Json> fetch_status(const std::string& ip) override {
    std::unique_lock lock(mutex_);
    ++asked[ip];
    if (silent.contains(ip)) changed_.wait(lock, [this] { return ended; });
    const auto found = says.find(ip);
    return found == says.end() ? std::nullopt : std::optional<Json>(found->second);
  }
  void say(const std::string& ip, Json words) {
    const std::lock_guard lock(mutex_);
    says[ip] = std::move(words);
  }
  void hush(const std::string& ip) {
    const std::lock_guard lock(mutex_);
    says.erase(ip);
  }
  int times(const std::string& ip) {
    const std::lock_guard lock(mutex_);
    return asked[ip];
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended = true;
    changed_.notify_all();
  }
  std::map<std::string, Json> says;
  std::map<std::string, int> asked;
  std::set<std::string> silent;
  bool ended = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

Json pod(const std::string& ip) { return {{"metadata", {{"uid", "uid-" + ip}}}, {"status", {{"podIP", ip}}}}; }

template <typename Predicate>
bool eventually(Predicate predicate) {
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(1ms)) {
    if (predicate()) return true;
  }
  return false;
}

struct StatusPollerTest : testing::Test {
  ~StatusPollerTest() override { pods.end(); }

  std::optional<Json> latest(const std::string& ip, bool ready = false) {
    return poller.latest(pod(ip), ready, {"ns", "model-of-" + ip});
  }
  /// Polls and waits for the response.
  void settle(const std::string& ip, int times) {
    latest(ip);
    ASSERT_TRUE(eventually([&] { return pods.times(ip) == times && news == times; }));
  }

  FixedClock clock;
  Pods pods;
  std::atomic<int> news = 0;
  std::string changed_model;
  StatusPoller poller{pods, clock,
                      [this](const k8s::Key& model) {
                        changed_model = model.name;
                        ++news;
                      },
                      2};
};

TEST_F(StatusPollerTest, TellsTheAnswerLaterAndAtMostOncePerPause) {
  pods.say("a", {{"state", "Loading"}});
  EXPECT_FALSE(latest("a"));
  ASSERT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_EQ(changed_model, "model-of-a");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(latest("a"), Json({{"state", "Loading"}}));
  EXPECT_EQ(pods.times("a"), 1);
  clock.milliseconds += 2000;
  EXPECT_EQ(latest("a"), Json({{"state", "Loading"}}));
  ASSERT_TRUE(eventually([&] { return pods.times("a") == 2; }));
  pods.say("a", {{"state", "Ready"}});
  clock.milliseconds += 2000;
  ASSERT_TRUE(eventually([&] { return latest("a") == Json({{"state", "Ready"}}); }));
  EXPECT_EQ(news, 2) << "the same words twice are no news";
}

TEST_F(StatusPollerTest, SilentPodsHoldUpNeitherReconcilesNorOthers) {
  pods.silent = {"s"};
  pods.say("a", {{"state", "Loading"}});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(latest("s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  latest("a");
  EXPECT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_LE(pods.times("s"), 1) << "one question at a time";
}

TEST_F(StatusPollerTest, AnAnswerFromBeforeReadinessDoesNotCountAfterIt) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  pods.say("a", {{"bytes", 2}});
  ASSERT_TRUE(eventually([&] { return latest("a", true) == Json({{"bytes", 2}}); }));
  EXPECT_EQ(pods.times("a"), 2);
  latest("a", true);
  EXPECT_EQ(pods.times("a"), 2) << "only the turn is worth a question at once";
}

TEST_F(StatusPollerTest, AReadinessDuringAQuestionIsAskedAboutAgain) {
  pods.silent = {"a"};
  EXPECT_FALSE(latest("a"));
  ASSERT_TRUE(eventually([&] { return pods.times("a") == 1; }));
  EXPECT_FALSE(latest("a", true));
  pods.say("a", {{"bytes", 2}});
  pods.end();
  ASSERT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_EQ(pods.times("a"), 2);
  EXPECT_EQ(latest("a", true), Json({{"bytes", 2}}));
}

TEST_F(StatusPollerTest, WhatNobodyAsksForAnyMoreIsForgotten) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  const k8s::Key model{"ns", "model-of-a"};
  poller.forget_others(model, {std::make_shared<const Json>(pod("a"))});
  EXPECT_EQ(latest("a"), Json({{"bytes", 1}}));
  poller.forget_others({"ns", "another"}, {});
  EXPECT_EQ(latest("a"), Json({{"bytes", 1}}));
  poller.forget_others(model, {std::make_shared<const Json>(pod("b"))});
  EXPECT_FALSE(latest("a")) << "asked again";
  EXPECT_TRUE(eventually([&] { return pods.times("a") == 2; }));
}

TEST_F(StatusPollerTest, AnAnswerThatNobodyWaitsForIsNoNews) {
  pods.silent = {"a"};
  pods.say("a", {{"bytes", 1}});
  pods.say("b", {{"bytes", 1}});
  EXPECT_FALSE(latest("a"));
  ASSERT_TRUE(eventually([&] { return pods.times("a") == 1; }));
  poller.forget_others({"ns", "model-of-a"}, {});
  pods.end();
  latest("b");
  ASSERT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_EQ(changed_model, "model-of-b");
}

TEST_F(StatusPollerTest, AnAnswerThatEndsIsNews) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  pods.hush("a");
  clock.milliseconds += 2000;
  latest("a");
  ASSERT_TRUE(eventually([&] { return news == 2; }));
  EXPECT_FALSE(latest("a"));
}

TEST(CostLimiter, IsATwentiethOfTheTimeForOneAtOnce) {
  FixedClock clock;
  CostLimiter limiter(clock, 200ms);
  EXPECT_TRUE(limiter.allows());
  EXPECT_EQ(limiter.run([&] {
    EXPECT_FALSE(limiter.allows()) << "a call is running";
    clock.milliseconds += 100;
    return 7;
  }),
            7);
  clock.milliseconds += 1899;
  EXPECT_FALSE(limiter.allows());
  clock.milliseconds += 1;
  EXPECT_TRUE(limiter.allows());
  limiter.run([] { return 0; });
  EXPECT_FALSE(limiter.allows()) << "calls that take no time are limited, too";
  clock.milliseconds += 200;
  EXPECT_TRUE(limiter.allows());
}

}  // namespace
}  // namespace pm::op
