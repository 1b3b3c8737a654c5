// SPDX-License-Identifier: Apache-2.0
// Assigns ids to object states: two objects that are equal in all that the future depends on have the same id.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// Objects are compared by value, without resourceVersions and without uids other than that of the ParallelModel. Times
/// are returned beside the id, for callers compare them by age. Times that the operator never reads do not count:
/// creation, transitions of conditions of a ParallelModel, readiness of pods of a replica on one node, and load
/// seconds.
class StateIds {
 public:
  /// Returns the id, from 1 on. Appends the times that count in seconds since the epoch, equally many for each id.
  uint32_t of(const std::string& plural, const k8s::ObjectPtr&, std::vector<int64_t>& times);

 private:
  struct One {
    std::string plural;
    k8s::ObjectPtr object;
  };
  std::vector<One> ones_;
  std::unordered_multimap<size_t, uint32_t> by_hash_;
};

}  // namespace pm::op::test
