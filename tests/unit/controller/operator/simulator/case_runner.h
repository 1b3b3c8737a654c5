// SPDX-License-Identifier: Apache-2.0
// Runs a scenario with one injected fault. Only the part whose outcome is not known from earlier runs is simulated.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "scenarios.h"
#include "simulation.h"
#include "state_ids.h"

namespace pm::op::test {

/// The final state of a scenario. Violated invariants are reported to the test at once.
struct Outcome {
  Json digest, shape;
  int redundant_writes = 0;  ///< writes after the operator had become idle
};

/// The whole state that the future of a simulation depends on, once its fault is over, the operator is between two
/// reconciles, and its stores match the cluster. Times count by their age, not by the clock.
struct StateKey {
  size_t part = 0;  ///< of the scenario: how often the operator became idle
  int still = 0, silent = 0;
  bool changed = false;                         ///< something changed in this second
  bool flushes = false;                         ///< Simulation::flushes()
  bool wanted = false;                          ///< a reconcile is due
  std::optional<k8s::WallTime::duration> wake;  ///< from now; nullopt when a reconcile is due, which clears it
  std::string gone;                             ///< ModelCache::gone
  std::vector<uint32_t> objects;                ///< by StateIds
  std::vector<int64_t> ages;                    ///< of the times in them, in seconds
  bool operator==(const StateKey&) const = default;
};

struct StateKeyHash {
  size_t operator()(const StateKey&) const;
};

/// The known future of a state.
struct Future {
  std::shared_ptr<const Outcome> outcome;
  int seconds = 0;    ///< until the operator is idle
  size_t broken = 0;  ///< violated invariants
  /// The lag of the simulation in events, and the most events of a collection that waited at once. If they were never
  /// more than `lag`, a longer lag changes nothing.
  size_t lag = 0, max_lag = 0;

  /// Returns true when it is also the future of a simulation that lags by so many events.
  bool holds_for(size_t events) const { return lag == events || (max_lag <= lag && max_lag <= events); }
};

/// The run of a scenario without a fault, and all known futures of its states.
class ScenarioRecord {
 public:
  /// Runs the scenario. Expects no write once the operator is idle, after each part.
  explicit ScenarioRecord(const Scenario&);
  /// Returns the record of this process.
  static ScenarioRecord& of(const Scenario&);

  struct Checkpoint {
    size_t part = 0;
    Simulation simulation;  ///< before a second or a request
    explicit Checkpoint(size_t part_, const Simulation& from) : part(part_), simulation(from, InjectedFault{}) {}
  };
  /// Returns the last checkpoint before the fault.
  const Checkpoint& before(const InjectedFault&) const;

  const Scenario& scenario;
  std::shared_ptr<const Outcome> undisturbed;
  size_t requests = 0;
  std::map<std::string, size_t> events;
  std::vector<std::unique_ptr<Checkpoint>> checkpoints;
  std::vector<std::unique_ptr<Simulation>> rests;  ///< after each part
  std::unordered_map<StateKey, FakeCluster, StateKeyHash> undisturbed_states;
  std::unordered_multimap<StateKey, Future, StateKeyHash> futures;
  StateIds numbers;
};

/// How much of a case is simulated.
enum class Extent {
  Needed,  ///< from just before its fault to a state with a known future
  Whole,   ///< everything, with processes that start without a cache
};

struct CaseResult {
  std::shared_ptr<const Outcome> outcome;  ///< null: the operator did not become idle
  int requests = 0;                        ///< sent for it
  bool known_outcome = false;              ///< it reached a state with a known future
};

/// Adds failures to the test for an operator that does not become idle, for violated invariants (unless two operators
/// run at once), and for redundant writes.
CaseResult run_case(ScenarioRecord&, const InjectedFault&, Extent);

}  // namespace pm::op::test
