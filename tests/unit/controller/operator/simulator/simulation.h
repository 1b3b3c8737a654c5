// SPDX-License-Identifier: Apache-2.0
// Simulates a cluster and an operator process over time, with one injected fault.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "operator_process.h"

namespace pm::op::test {

/// A fault that is injected once.
struct InjectedFault {
  enum class Kind { None, Hold, Cut, Repeat, Lag, Crash, LateLanding, Second, User };
  Kind kind = Kind::None;
  std::string plural;  ///< the collection of Hold, Cut, Repeat, LateLanding
  size_t at = 0;       ///< index of the event (Hold, Cut, Repeat) or request (the others), or the lag in events (Lag)
  CrashPoint crash_point = CrashPoint::None;  ///< of Crash
  std::function<void(FakeCluster&)> act;      ///< of User
  /// Returns true for a fault at an event, not at a request.
  bool by_event() const { return kind == Kind::Hold || kind == Kind::Cut || kind == Kind::Repeat; }
};

class Simulation {
 public:
  enum class End { Rest, TooLong, Left };
  /// The position in settle().
  struct Position {
    int second = 0, still = 0, silent = 0;
    int64_t before = 0;  ///< the version of the cluster at the begin of the second
    int reconciles = 0;  ///< in this second
    bool works = false;  ///< in the middle of a second
  };
  /// Observes a run.
  class Observer {
   public:
    virtual ~Observer() = default;
    /// Called before a second or a request. The simulation can be copied here.
    virtual void moment(const Simulation&) {}
    /// Called between two reconciles. True ends settle(), for the outcome is known.
    virtual bool leave(Simulation&) { return false; }
    /// Called between two reconciles of the second process while the first is suspended. True says that the observer
    /// has advanced the simulation to its idle state.
    virtual bool skip(Simulation&) { return false; }
  };

  /// With `shares_cache`, a process that follows a crashed one takes over its cache.
  explicit Simulation(InjectedFault fault = {}, bool shares_cache = false)
      : fault_(std::move(fault)), shares_cache_(shares_cache) {
    cluster.logs = false;
    process_ = std::make_unique<OperatorProcess>(cluster);
  }
  /// Copies a simulation without fault where its observer was called, and injects this fault.
  Simulation(const Simulation& undisturbed, InjectedFault fault);
  Simulation(const Simulation&) = delete;
  /// Becomes a copy of the other, but for its own fault.
  void become(const Simulation& other);
  /// Takes the cluster and the process of an idle simulation.
  void become_idle_as(const Simulation& other);

  FakeCluster cluster;
  Observer* observer = nullptr;
  /// Runs until nothing has happened for three seconds and nothing is due. Returns TooLong when that takes more than
  /// `limit` seconds.
  End settle(int limit = max_seconds);
  /// Continues settle() in a copy.
  End go_on(int limit = max_seconds);
  static constexpr int max_seconds = 600;

  const Position& position() const { return position_; }
  OperatorProcess& process() { return *process_; }
  /// Returns true when the fault is over, so the future depends on the cluster and the process alone. A lag never ends
  /// and counts as over.
  bool over() const {
    return (injected_ || fault_.kind == InjectedFault::Kind::None || fault_.kind == InjectedFault::Kind::Lag) &&
           !holds_ && !second_;
  }
  /// Returns true while a lagging process receives all events, until something happens.
  bool flushes() const { return flush_; }
  /// Returns true once the fault has begun.
  bool injected() const { return injected_; }
  int requests = 0;                         ///< of all processes of the operator
  std::map<std::string, size_t> delivered;  ///< events delivered, by collection
  size_t max_lag = 0;                       ///< most pending events of a collection during a lag

 private:
  void deliver();
  void send_one_request(OperatorProcess&);
  void inject(OperatorProcess&);
  void fail_over(bool listed = true);
  bool is_idle();
  bool inject_event_fault(const std::string& plural);

  InjectedFault fault_;
  const bool shares_cache_;
  bool injected_ = false, holds_ = false, flush_ = false;
  Position position_;
  std::unique_ptr<OperatorProcess> process_, second_;
};

}  // namespace pm::op::test
