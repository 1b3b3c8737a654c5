// SPDX-License-Identifier: Apache-2.0
// Runs reconciles of the state machine against a FakeCluster, without stores or queue.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// The point at which the operator process crashes.
enum class CrashPoint { None, BeforeRequest, AfterRequest, AnswerLost, AnswerLostUndone };

/// Runs the operator against the cluster, with at most one crash at its n-th request, or a crash after every request.
class FakeOperator {
 public:
  explicit FakeOperator(FakeCluster& cluster) : cluster_(cluster) {}
  CrashPoint crash_point = CrashPoint::None;
  int at = -1;                     ///< index of the faulty request
  bool one_request_lives = false;  ///< it crashes after each request that changes something
  size_t stale = 0;                ///< every other reconcile sees a snapshot of so many writes ago
  std::vector<Event> events;
  std::optional<std::chrono::milliseconds> requeue;
  std::shared_ptr<ModelCache> cache;  ///< null: a process without a cache
  int requests = 0;

  /// Runs one reconcile. Returns true when it ended without error or crash.
  bool reconcile();
  /// Runs reconciles and seconds of the cluster until nothing changes for `quiet` seconds in a row. Returns false when
  /// that takes more than `limit` seconds.
  bool settle(int limit = 400, int quiet = 3);

 private:
  bool run(const Snapshot&);
  FakeCluster& cluster_;
  int passes_ = 0;
};

}  // namespace pm::op::test
