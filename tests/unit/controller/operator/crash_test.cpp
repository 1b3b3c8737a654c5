// The operator dies after every single write, or sees the past in every other pass, and always ends up in the same place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "fake_operator.h"
#include "scenarios.h"

namespace pm::op::test {
namespace {

using testing::IsEmpty;

struct Outcome {
  Json end;
  int requests = 0;
};

Outcome play(const Scenario& scenario, const std::function<void(Operator&)>& disturb) {
  FakeCluster cluster;
  Operator brain{cluster};
  disturb(brain);
  cluster.remembers = brain.stale > 0;
  scenario.play(cluster, [&] { ASSERT_TRUE(brain.settle()) << "did not converge"; });
  EXPECT_THAT(cluster.violations, IsEmpty());
  const int writes = cluster.writes, requests = brain.requests;
  brain.fault = Fault::None, brain.one_request_lives = false, brain.stale = 0;
  EXPECT_TRUE(brain.settle());
  EXPECT_EQ(cluster.writes, writes) << "a needless write after convergence";
  return {cluster.digest(), requests};
}

TEST(Crash, AfterEveryWriteLeadsToTheSameEnd) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.learns) continue;
    SCOPED_TRACE(scenario.name);
    const Outcome calm = play(scenario, [](Operator&) {}), outcome = play(scenario, [](Operator& brain) { brain.one_request_lives = true; });
    EXPECT_EQ(outcome.end, calm.end) << Json::diff(calm.end, outcome.end).dump(1);
  }
}

TEST(Crash, ASnapshotOfThePastMakesNothingTwice) {
  int cases = 0;
  for (const Scenario& scenario : scenarios()) {
    if (scenario.unwatched) continue;
    const Outcome calm = play(scenario, [](Operator&) {});
    for (size_t behind = 1; behind <= 6; ++behind, ++cases) {
      SCOPED_TRACE(std::string(scenario.name) + ", " + std::to_string(behind) + " events behind");
      const Outcome outcome = play(scenario, [&](Operator& brain) { brain.stale = behind; });
      EXPECT_EQ(outcome.end, calm.end) << Json::diff(calm.end, outcome.end).dump(1);
    }
  }
  std::cout << "stale cases: " << cases << "\n";
}

}  // namespace
}  // namespace pm::op::test
