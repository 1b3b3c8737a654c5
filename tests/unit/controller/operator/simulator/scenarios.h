// SPDX-License-Identifier: Apache-2.0
// Declares the scenarios: actions of users and of the cluster on a ParallelModel, between which the operator becomes
// idle.
#pragma once
#include <functional>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// Runs until the operator is idle; fails the test when it does not become idle.
using Settle = std::function<void()>;

struct Scenario {
  const char* name;
  std::function<void(FakeCluster&, const Settle&)> play;
  /// It depends on the response to a read, so an operator that never receives responses cannot complete it.
  bool learns = false;
  /// It has a child that no store has, so only the guard of own writes prevents a second creation from a stale view.
  bool unwatched = false;
  /// It asserts counts of restarts, which pods fail, or that a previous plan serves, whose pods are never created
  /// again.
  bool counts = false;
};

const std::vector<Scenario>& scenarios();

}  // namespace pm::op::test
