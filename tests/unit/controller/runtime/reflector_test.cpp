// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/reflector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "controller/core/status_error.h"
#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;

namespace {

Json pod(const std::string& name) {
  return {{"metadata", {{"namespace", "n"}, {"name", name}, {"labels", {{"app", "x"}}}}}};
}

struct ReflectorTest : testing::Test {
  FakeCluster cluster;
  RealClock clock;
  prometheus::Registry registry;
  WatchMetrics metrics{registry, "test", "pods"};
  std::mutex mutex;
  std::vector<std::string> changes;  ///< "+a", "~a", "-a"
  std::atomic<int> syncs{0};
  Reflector reflector{{pods_resource, "", "app"},
                      {},
                      {cluster, cluster, clock, metrics, [] { return 0.0; }},
                      [this](const Change& c) { note(c); },
                      [this] { ++syncs; }};
  std::jthread thread;

  void note(const Change& change) {
    std::lock_guard lock(mutex);
    const char* sign = !change.before ? "+" : !change.after ? "-" : "~";
    changes.push_back(std::string(sign).append(key_of(change.after ? *change.after : *change.before).name));
  }
  void start() {
    thread = std::jthread([this](std::stop_token stop) { reflector.run(stop); });
  }
  template <class Condition>
  void until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(1ms);
  }
  std::vector<std::string> seen() {
    std::lock_guard lock(mutex);
    return changes;
  }
};
using Names = std::vector<std::string>;

}  // namespace

TEST_F(ReflectorTest, FollowsACollection) {
  cluster.put(pods_resource, pod("a"));
  cluster.put(pods_resource, {{"metadata", {{"namespace", "n"}, {"name", "other"}}}});
  start();
  until([&] { return syncs == 1; });
  cluster.put(pods_resource, pod("b"));
  cluster.put(pods_resource, pod("a"));
  cluster.remove(pods_resource, {"n", "b"});
  until([&] { return seen().size() == 4; });
  EXPECT_EQ(seen(), (Names{"+a", "+b", "~a", "-b"}));
  EXPECT_EQ(reflector.store().size(), 1u);
  EXPECT_EQ(cluster.count(Verb::List, pods_resource), 1u);
}

TEST_F(ReflectorTest, ListsLargeCollectionsInPages) {
  for (int i = 0; i < 1200; ++i) cluster.put(pods_resource, pod(std::to_string(i)));
  start();
  until([&] { return syncs == 1; });
  EXPECT_EQ(reflector.store().size(), 1200u);
  EXPECT_EQ(cluster.count(Verb::List, pods_resource), 12u);
}

TEST_F(ReflectorTest, CompactionBetweenPagesStillGivesAWholeList) {
  for (int i = 0; i < 1200; ++i) cluster.put(pods_resource, pod(std::to_string(i)));
  std::atomic<int> lists{0};
  cluster.fault = [&](const Request& request) -> std::optional<ApiError> {
    if (request.verb == Verb::List && !request.query.contains("watch") && ++lists == 2) cluster.compact();
    return {};
  };
  start();
  until([&] { return syncs == 1; });
  EXPECT_EQ(reflector.store().size(), 1200u);
}

TEST_F(ReflectorTest, WhatHappenedWhileTheHistoryWasLostIsFoundByListing) {
  cluster.put(pods_resource, pod("kept"));
  cluster.put(pods_resource, pod("gone"));
  start();
  until([&] { return cluster.watches_started() == 1; });
  cluster.freeze_watches(true);
  cluster.remove(pods_resource, {"n", "gone"});
  cluster.put(pods_resource, pod("new"));
  cluster.compact();
  cluster.freeze_watches(false);
  until([&] { return seen().size() == 4; });
  EXPECT_EQ(std::multiset<std::string>(changes.begin(), changes.end()),
            (std::multiset<std::string>{"+kept", "+gone", "-gone", "+new"}));
  EXPECT_EQ(syncs, 1);
}

TEST_F(ReflectorTest, AServerThatRestartsIsWatchedAgainWithoutAList) {
  start();
  until([&] { return cluster.watches_started() == 1; });
  std::this_thread::sleep_for(1s);  // a watch shorter than this would count as a failure and wait
  cluster.end_watches();
  until([&] { return cluster.watches_started() == 2; });
  cluster.put(pods_resource, pod("a"));
  until([&] { return !seen().empty(); });
  EXPECT_EQ(cluster.count(Verb::List, pods_resource), 1u);
}

TEST_F(ReflectorTest, AnExceptionInAListenerDoesNotEndTheWatch) {
  Reflector angry(
      {pods_resource, "", ""}, {}, {cluster, cluster, clock, metrics, [] { return 0.0; }},
      [](const Change&) { throw std::runtime_error("bad object"); }, [this] { ++syncs; });
  std::jthread run([&](std::stop_token stop) { angry.run(stop); });
  until([&] { return syncs == 1; });
  cluster.put(pods_resource, pod("a"));
  cluster.put(pods_resource, pod("b"));
  until([&] { return angry.store().size() == 2; });
}
