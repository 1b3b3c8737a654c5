// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/leader_elector.h"

#include <gtest/gtest.h>

#include "controller/core/status_error.h"
#include "fake_cluster.h"

namespace pm::k8s::test {
namespace {

using namespace std::chrono_literals;

class Leader : public testing::Test {
 protected:
  Election election(const std::string& identity) { return {.ns = "system", .name = "pm", .identity = identity}; }
  void pass(std::chrono::milliseconds time) { clock.ms += time.count(); }
  Json lease() {
    return object_of(
        cluster.send({.verb = Verb::Get, .resource = leases_resource, .ns = "system", .name = "pm"}))["spec"];
  }
  FakeCluster cluster;
  ManualClock clock;
  LeaderElector a{cluster, clock, [] { return 0.5; }, election("a")},
      b{cluster, clock, [] { return 0.5; }, election("b")};
};

TEST_F(Leader, TheFirstMakesTheLeaseAndTheOtherWaits) {
  EXPECT_TRUE(a.attempt());
  EXPECT_FALSE(b.attempt());
  EXPECT_TRUE(a.holds() && !b.holds());
  EXPECT_EQ(lease()["holderIdentity"], "a");
  EXPECT_EQ(lease()["leaseDurationSeconds"], 15);
}

TEST_F(Leader, AHolderThatRenewsKeepsIt) {
  for (int i = 0; i < 60; ++i, pass(2s)) {
    EXPECT_TRUE(a.attempt());
    EXPECT_FALSE(b.attempt());
  }
  EXPECT_EQ(lease()["leaseTransitions"], 0);
}

TEST_F(Leader, ADeadHolderIsFollowedAfterFifteenSecondsAndNeverTwoHoldAtOnce) {
  a.attempt();
  std::chrono::milliseconds since{0};
  for (; !b.attempt(); pass(500ms), since += 500ms) ASSERT_LT(since, 20s);
  EXPECT_GE(since, 15s);
  EXPECT_FALSE(a.holds());
  EXPECT_TRUE(a.lost());
  EXPECT_EQ(lease()["leaseTransitions"], 1);
}

TEST_F(Leader, AReleasedLeaseIsTakenAtOnce) {
  a.attempt();
  b.attempt();
  a.release();
  EXPECT_FALSE(a.holds());
  EXPECT_TRUE(b.attempt());
}

TEST_F(Leader, WithoutAServerTheHolderStopsAfterTenSeconds) {
  a.attempt();
  cluster.fault = [](const Request&) { return std::optional(no_answer("down")); };
  pass(9s);
  EXPECT_TRUE(a.attempt());
  pass(2s);
  EXPECT_FALSE(a.attempt());
  EXPECT_TRUE(a.lost());
}

TEST_F(Leader, TimesInsideTheLeaseDoNotMatter) {
  a.attempt();
  Json other = object_of(cluster.send({.verb = Verb::Get, .resource = leases_resource, .ns = "system", .name = "pm"}));
  other["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z";
  cluster.put(leases_resource, other);
  EXPECT_FALSE(b.attempt()) << "a clock that is behind is no dead holder";
  pass(14s);
  EXPECT_FALSE(b.attempt());
}

TEST_F(Leader, AStolenLeaseEndsTheHolder) {
  a.attempt();
  Json other = object_of(cluster.send({.verb = Verb::Get, .resource = leases_resource, .ns = "system", .name = "pm"}));
  other["spec"]["holderIdentity"] = "thief";
  cluster.put(leases_resource, other);
  EXPECT_FALSE(a.attempt());
  EXPECT_TRUE(a.lost());
}

TEST_F(Leader, OfTwoThatTakeAnExpiredLeaseOneWins) {
  LeaderElector c{cluster, clock, [] { return 0.5; }, election("c")};
  a.attempt(), b.attempt(), c.attempt();
  pass(16s);
  bool stolen = false;
  cluster.fault = [&](const Request& request) -> std::optional<ApiError> {
    if (request.verb == Verb::MergePatch && !stolen) {  // between b's reading and its writing
      stolen = true;
      EXPECT_TRUE(c.attempt());
    }
    return std::nullopt;
  };
  EXPECT_FALSE(b.attempt());
  EXPECT_TRUE(c.holds() && !b.holds());
}

TEST_F(Leader, AProcessThatWasStoppedAndContinuedKnowsWithoutAskingThatItLost) {
  a.attempt();
  const size_t asked = cluster.sent().size();
  pass(10s);
  EXPECT_TRUE(!a.holds() && a.lost());
  EXPECT_EQ(cluster.sent().size(), asked);
}

}  // namespace
}  // namespace pm::k8s::test
