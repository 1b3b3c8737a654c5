// Objects by numbers: two that are equal in everything that the future depends on have the same one, found by comparing values.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// Not compared are resourceVersions, and uids but the ParallelModel's own: those name objects, and nothing follows from which name one has.
class Numbers {
 public:
  /// From 1 on.
  uint32_t of(const std::string& plural, const k8s::ObjectPtr&);

 private:
  struct One {
    std::string plural;
    k8s::ObjectPtr object;
  };
  std::vector<One> ones_;
  std::unordered_multimap<size_t, uint32_t> by_hash_;
};

}  // namespace pm::op::test
