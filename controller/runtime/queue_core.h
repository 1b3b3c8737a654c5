// SPDX-License-Identifier: Apache-2.0
// A queue of keys without threads and without a clock: a key waits once however often it is added, and is never handed
// out twice at once.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "controller/core/clock.h"
#include "controller/core/object.h"

namespace pm::k8s {

/// Source of the rules: client-go util/workqueue. Every key is in at most one of these places: waiting, running,
/// running and wanted again; and beside that it may have one delayed addition.
class QueueCore {
 public:
  using Time = Clock::Steady;

  /// Adds the key now. A key that is running is queued again after done(). Returns false when it was already queued.
  bool add(const Key&, Time now);
  /// Adds the key at `due`, or earlier if an earlier addition is pending.
  void add_at(const Key&, Time due);
  /// Moves due keys into the queue; returns how many keys became queued.
  int advance(Time now);
  /// The earliest delayed addition.
  std::optional<Time> next_due() const;

  struct Taken {
    Key key;
    Time since;  ///< when it was added
  };
  /// The longest waiting key, now running. A delayed addition of it is dropped, because the run itself
  /// requests the next one.
  std::optional<Taken> take(Time now);
  /// The run ended.
  void done(const Key&, Time now);

  /// Counts a failure of the key and returns how many came before it since the last forget().
  int fail(const Key& key) { return failures_[key]++; }
  void forget(const Key& key) { failures_.erase(key); }

  size_t waiting() const { return order_.size(); }
  const std::map<Key, Time>& running() const { return running_; }

 private:
  std::deque<Key> order_;
  std::map<Key, Time> wanted_;   ///< in order_, or running and wanted again; when it was added
  std::map<Key, Time> running_;  ///< since when
  std::map<Key, Time> delayed_;
  std::set<std::pair<Time, Key>> due_;  ///< delayed_, by time
  std::map<Key, int> failures_;
};

}  // namespace pm::k8s
