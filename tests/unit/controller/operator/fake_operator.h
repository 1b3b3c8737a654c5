// Passes of the step machine over a FakeCluster, without stores or queue.
#pragma once
#include <chrono>
#include <optional>
#include <vector>

#include "fake_cluster.h"

namespace pm::op::test {

/// How the process of the operator dies.
enum class Fault { None, BeforeRequest, AfterRequest, AnswerLost, AnswerLostUndone };

/// The operator: passes against the cluster, with at most one fault at the n-th request of its life, or one after every request.
class Operator {
 public:
  explicit Operator(FakeCluster& cluster) : cluster_(cluster) {}
  Fault fault = Fault::None;
  int at = -1;                          ///< index of the faulty request
  bool one_request_lives = false;       ///< dies after each request that changes something
  size_t stale = 0;                     ///< every other pass sees the past
  std::vector<Event> events;
  std::optional<std::chrono::milliseconds> requeue;
  std::shared_ptr<Memo> memo;           ///< null: a process that remembers nothing from pass to pass
  int requests = 0;

  /// One pass. True when it ended by itself and without error.
  bool pass();
  /// Passes and seconds of the cluster until nothing changes for `quiet` seconds in a row; false when that takes more than `limit` seconds.
  bool settle(int limit = 400, int quiet = 3);

 private:
  bool run(const Snapshot&);
  FakeCluster& cluster_;
  int passes_ = 0;
};

}  // namespace pm::op::test
