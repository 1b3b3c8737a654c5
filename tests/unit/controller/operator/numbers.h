// Objects by numbers: two that are equal in everything that the future depends on have the same one, found by comparing values.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// Not compared are resourceVersions, and uids but the ParallelModel's own: those name objects, and nothing follows from which name one has. Times are compared by how long ago they
/// are, which is not the number's business but of who asks for it; those that nobody reads (when an object was made, when a condition of a ParallelModel changed, when the pods of a
/// group on one node came to be ready) not at all, nor how many seconds a group loaded.
class Numbers {
 public:
  /// From 1 on. Appends the times that count, in seconds since the epoch: as many for each object of a number.
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
