// Questions to pods beside the passes: who does not answer holds up nobody, who answers is asked as seldom as it may be.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "controller/operator/allowance.h"
#include "controller/operator/asker.h"

namespace pm::op {
namespace {

using namespace std::chrono_literals;
using k8s::Json;

class StillClock final : public k8s::Clock {
 public:
  Steady now() const override { return Steady(std::chrono::milliseconds(milliseconds.load())); }
  Wall wall() const override { return {}; }
  std::atomic<int> milliseconds = 1000;
};

/// Pods by their address: some say something, some keep silent until the end.
class Pods final : public StatusProbe {
 public:
  std::optional<Json> ask(const std::string& ip) override {
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

template <typename Predicate> bool eventually(Predicate predicate) {
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (predicate()) return true;
  }
  return false;
}

struct Asking : testing::Test {
  ~Asking() override { pods.end(); }

  std::optional<Json> latest(const std::string& ip, bool ready = false) { return asker.latest(pod(ip), ready, {"ns", "model-of-" + ip}); }
  /// Asks and waits for the answer.
  void settle(const std::string& ip, int times) {
    latest(ip);
    ASSERT_TRUE(eventually([&] { return pods.times(ip) == times && news == times; }));
  }

  StillClock clock;
  Pods pods;
  std::atomic<int> news = 0;
  std::string told;
  Asker asker{pods, clock, [this](const k8s::Key& model) { told = model.name; ++news; }, 2};
};

TEST_F(Asking, TellsTheAnswerLaterAndAtMostOncePerPause) {
  pods.say("a", {{"state", "Loading"}});
  EXPECT_FALSE(latest("a"));
  ASSERT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_EQ(told, "model-of-a");
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

TEST_F(Asking, SilentPodsHoldUpNeitherPassesNorOthers) {
  pods.silent = {"s"};
  pods.say("a", {{"state", "Loading"}});
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(latest("s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  latest("a");
  EXPECT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_LE(pods.times("s"), 1) << "one question at a time";
}

TEST_F(Asking, AnAnswerFromBeforeReadinessDoesNotCountAfterIt) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  pods.say("a", {{"bytes", 2}});
  ASSERT_TRUE(eventually([&] { return latest("a", true) == Json({{"bytes", 2}}); }));
  EXPECT_EQ(pods.times("a"), 2);
  latest("a", true);
  EXPECT_EQ(pods.times("a"), 2) << "only the turn is worth a question at once";
}

TEST_F(Asking, AReadinessDuringAQuestionIsAskedAboutAgain) {
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

TEST_F(Asking, WhatNobodyAsksForAnyMoreIsForgotten) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  const k8s::Key model{"ns", "model-of-a"};
  asker.forget_others(model, {std::make_shared<const Json>(pod("a"))});
  EXPECT_EQ(latest("a"), Json({{"bytes", 1}}));
  asker.forget_others({"ns", "another"}, {});
  EXPECT_EQ(latest("a"), Json({{"bytes", 1}}));
  asker.forget_others(model, {std::make_shared<const Json>(pod("b"))});
  EXPECT_FALSE(latest("a")) << "asked anew";
  EXPECT_TRUE(eventually([&] { return pods.times("a") == 2; }));
}

TEST_F(Asking, AnAnswerThatNobodyWaitsForIsNoNews) {
  pods.silent = {"a"};
  pods.say("a", {{"bytes", 1}});
  pods.say("b", {{"bytes", 1}});
  EXPECT_FALSE(latest("a"));
  ASSERT_TRUE(eventually([&] { return pods.times("a") == 1; }));
  asker.forget_others({"ns", "model-of-a"}, {});
  pods.end();
  latest("b");
  ASSERT_TRUE(eventually([&] { return news == 1; }));
  EXPECT_EQ(told, "model-of-b");
}

TEST_F(Asking, AnAnswerThatEndsIsNews) {
  pods.say("a", {{"bytes", 1}});
  settle("a", 1);
  pods.hush("a");
  clock.milliseconds += 2000;
  latest("a");
  ASSERT_TRUE(eventually([&] { return news == 2; }));
  EXPECT_FALSE(latest("a"));
}

TEST(Allowance, IsATwentiethOfTheTimeForOneAtOnce) {
  StillClock clock;
  Allowance allowance(clock, 200ms);
  EXPECT_TRUE(allowance.free());
  EXPECT_EQ(allowance.spend([&] {
    EXPECT_FALSE(allowance.free()) << "somebody is at it";
    clock.milliseconds += 100;
    return 7;
  }), 7);
  clock.milliseconds += 1899;
  EXPECT_FALSE(allowance.free());
  clock.milliseconds += 1;
  EXPECT_TRUE(allowance.free());
  allowance.spend([] { return 0; });
  EXPECT_FALSE(allowance.free()) << "what takes no time is not done without end";
  clock.milliseconds += 200;
  EXPECT_TRUE(allowance.free());
}

}  // namespace
}  // namespace pm::op
