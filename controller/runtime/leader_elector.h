// Which of several processes may write: the holder of a Lease (coordination.k8s.io/v1), as client-go elects.
#pragma once
#include <atomic>
#include <chrono>
#include <string>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/runtime/backoff.h"

namespace pm::k8s {

struct Election {
  std::string ns, name;                 ///< of the Lease
  std::string identity;                 ///< of this process; no two may share it
  std::chrono::milliseconds duration{15'000};     ///< others wait for so long after the last sign of life
  std::chrono::milliseconds deadline{10'000};     ///< a holder that could not renew for so long stops; below `duration`, so that no two write at once
  std::chrono::milliseconds retry{2'000};         ///< between renewals; others look every `retry` / 2, stretched by up to half
};

/// Time is judged by the local monotonic clock from the moment a change of the Lease was seen, never by the times inside it: clocks of hosts differ.
/// attempt() and release() are for one thread; holds() for any.
class LeaderElector {
 public:
  LeaderElector(Api& api, const Clock& clock, Uniform uniform, Election election)
      : api_(api), clock_(clock), uniform_(std::move(uniform)), election_(std::move(election)) {}

  /// Reads the Lease and takes or renews it when that may be done. True when this process holds it now.
  bool attempt();
  /// It holds the Lease, and nobody else can before holds() turns false by itself: what a process that was stopped and continued asks before it writes.
  bool holds() const;
  /// It held the Lease and could not renew it in time, or another took it: this process must end, for its pass may be half done.
  bool lost() const { return held_ && !holds(); }
  /// When to try again.
  std::chrono::milliseconds pause() const;
  /// Gives the Lease up, so that another need not wait for it to expire.
  void release();

 private:
  bool create();
  bool take(const Json& lease);
  bool won(const Response&, Clock::Steady asked);
  bool may_take(const Json& lease);
  Json spec(const Json& old) const;

  Api& api_;
  const Clock& clock_;
  const Uniform uniform_;
  const Election election_;
  Json seen_;                                     ///< spec of the Lease as last seen
  Clock::Steady seen_at_{};
  std::atomic<bool> held_{false};
  std::atomic<Clock::Steady::duration::rep> until_{0};   ///< end of the right to write
};

}  // namespace pm::k8s
