// SPDX-License-Identifier: Apache-2.0
// Tests that the operator reaches the same state when it crashes after every write, or sees stale snapshots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "tests/unit/controller/operator/simulator/fake_operator.h"
#include "tests/unit/controller/operator/simulator/scenarios.h"

namespace pm::op::test {
namespace {

using testing::IsEmpty;

struct Outcome {
  Json end;
  int requests = 0;
};

Outcome play(const Scenario& scenario, const std::function<void(FakeOperator&)>& disturb) {
  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
  disturb(fake_operator);
  cluster.remembers = fake_operator.stale > 0;
  scenario.play(cluster, [&] { ASSERT_TRUE(fake_operator.settle()) << "did not converge"; });
  EXPECT_THAT(cluster.violations, IsEmpty());
  const int writes = cluster.writes, requests = fake_operator.requests;
  fake_operator.crash_point = CrashPoint::None, fake_operator.one_request_lives = false, fake_operator.stale = 0;
  EXPECT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.writes, writes) << "a redundant write after convergence";
  return {cluster.digest(), requests};
}

TEST(Crash, AfterEveryWriteLeadsToTheSameEnd) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.learns) continue;
    SCOPED_TRACE(scenario.name);
    const Outcome undisturbed = play(scenario, [](FakeOperator&) {}),
                  outcome = play(scenario, [](FakeOperator& fake_operator) { fake_operator.one_request_lives = true; });
    EXPECT_EQ(outcome.end, undisturbed.end) << Json::diff(undisturbed.end, outcome.end).dump(1);
  }
}

TEST(Crash, ASnapshotOfThePastMakesNothingTwice) {
  int cases = 0;
  for (const Scenario& scenario : scenarios()) {
    if (scenario.unwatched) continue;
    const Outcome undisturbed = play(scenario, [](FakeOperator&) {});
    for (size_t behind = 1; behind <= 6; ++behind, ++cases) {
      SCOPED_TRACE(std::string(scenario.name) + ", " + std::to_string(behind) + " events behind");
      const Outcome outcome = play(scenario, [&](FakeOperator& fake_operator) { fake_operator.stale = behind; });
      EXPECT_EQ(outcome.end, undisturbed.end) << Json::diff(undisturbed.end, outcome.end).dump(1);
    }
  }
  std::cout << "stale cases: " << cases << "\n";
}

}  // namespace
}  // namespace pm::op::test
