// Stories of a ParallelModel: what the user and the machine do, with the operator coming to rest in between.
#pragma once
#include <functional>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// Lets the operator come to rest; a failed test when it does not.
using Settle = std::function<void()>;

struct Scenario {
  const char* name;
  std::function<void(FakeCluster&, const Settle&)> play;
  bool learns = false;   ///< needs the answer to a request that changes nothing, so an operator that never hears answers cannot end it
  bool unwatched = false;   ///< has a child that no store shows, so that the guard of own writes alone keeps an old view from making it again
  bool counts = false;   ///< asserts how many restarts there were, which pods fail, or that a former plan serves, whose pods nobody makes anew
};

const std::vector<Scenario>& scenarios();

}  // namespace pm::op::test
