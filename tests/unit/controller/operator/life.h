// A ParallelModel and its operator, against the model of a cluster.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/text.h"
#include "fake_operator.h"

namespace pm::op::test {

class Life : public testing::Test {
 protected:
  ~Life() override { EXPECT_THAT(cluster.violations, testing::IsEmpty()); }
  void start(int replicas = 1, int devices = 2) {
    cluster.apply(model_named("m", devices, replicas));
    ASSERT_TRUE(brain.settle());
  }
  Json group(int index) const { return at(cluster.model(), "/status/groups/" + std::to_string(index)); }
  bool told(const std::string& reason) const {
    return std::any_of(brain.events.begin(), brain.events.end(), [&](const Event& event) { return event.reason == reason; });
  }
  Json words(const char* reason, const char* message = "why") const { return {{"rank", 1}, {"reason", reason}, {"exitCode", 5}, {"message", message}}; }

  FakeCluster cluster;
  Operator brain{cluster};
};

}  // namespace pm::op::test
