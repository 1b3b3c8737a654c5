// SPDX-License-Identifier: Apache-2.0
// The fixture of tests of one ParallelModel and its operator on a FakeCluster.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/object_text.h"
#include "fake_operator.h"

namespace pm::op::test {

class Lifecycle : public testing::Test {
 protected:
  ~Lifecycle() override { EXPECT_THAT(cluster.violations, testing::IsEmpty()); }
  void start(int replicas = 1, int devices = 2) {
    cluster.apply(model_named("m", devices, replicas));
    ASSERT_TRUE(fake_operator.settle());
  }
  Json replica(int index) const { return at(cluster.model(), "/status/replicaStatuses/" + std::to_string(index)); }
  bool has_event(const std::string& reason) const {
    return std::any_of(fake_operator.events.begin(), fake_operator.events.end(),
                       [&](const Event& event) { return event.reason == reason; });
  }
  Json words(const char* reason, const char* message = "why") const {
    return {{"rank", 1}, {"reason", reason}, {"exitCode", 5}, {"message", message}};
  }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

}  // namespace pm::op::test
