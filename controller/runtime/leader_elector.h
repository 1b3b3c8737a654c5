// SPDX-License-Identifier: Apache-2.0
// Leader election with a Lease (coordination.k8s.io/v1), as in client-go: only the holder may write.
#pragma once
#include <atomic>
#include <chrono>
#include <string>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/runtime/watch_backoff.h"

namespace pm::k8s {

struct Election {
  std::string ns, name;                        ///< of the Lease
  std::string identity;                        ///< of this process; no two may share it
  std::chrono::milliseconds duration{15'000};  ///< others wait this long after the last renewal
  std::chrono::milliseconds deadline{
      10'000};  ///< a holder that could not renew for this long stops; below `duration`, so that no two write at once
  std::chrono::milliseconds retry{2'000};  ///< between renewals; others look every `retry` / 2, stretched by up to half
};

/// Time is judged by the local monotonic clock from the moment a change of the Lease was seen, never by the times
/// inside it: clocks of hosts differ. attempt() and release() are for one thread; holds() for any.
class LeaderElector {
 public:
  LeaderElector(Api& api, const Clock& clock, Uniform uniform, Election election)
      : api_(api), clock_(clock), uniform_(std::move(uniform)), election_(std::move(election)) {}

  /// Reads the Lease and takes or renews it when that may be done. True when this process holds it now.
  bool attempt();
  /// Returns whether this process holds the Lease. No other process can hold it before holds() becomes false, even if
  /// this process was stopped and continued.
  bool holds() const;
  /// Returns whether the Lease was held and lost: it was not renewed in time, or another process took it. This process
  /// must exit, because a reconcile may be incomplete.
  bool lost() const { return held_ && !holds(); }
  /// Returns the delay until the next attempt().
  std::chrono::milliseconds pause() const;
  /// Releases the Lease, so that another process need not wait for its expiry.
  void release();

 private:
  bool create();
  bool take(const Json& lease);
  bool won(const Response&, Clock::Steady sent_at);
  bool may_take(const Json& lease);
  Json spec(const Json& old) const;

  Api& api_;
  const Clock& clock_;
  const Uniform uniform_;
  const Election election_;
  Json seen_;  ///< spec of the Lease as last seen
  Clock::Steady seen_at_{};
  std::atomic<bool> held_{false};
  std::atomic<Clock::Steady::duration::rep> until_{0};  ///< end of the permission to write
};

}  // namespace pm::k8s
