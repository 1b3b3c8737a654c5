// SPDX-License-Identifier: Apache-2.0
#include "case_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace pm::op::test {

namespace {

/// Thrown to end a scenario early, once its outcome is known.
struct Known {};

class CaseRunner final : public Simulation::Observer {
 public:
  /// With `recording` the scenario runs without a fault to fill its record.
  CaseRunner(ScenarioRecord& record, const InjectedFault& fault, Extent extent, bool recording = false)
      : record_(record), fault_(fault), extent_(extent), recording_(recording) {}

  CaseResult run_case() {
    const bool cut = extent_ == Extent::Needed && !recording_;
    try {
      if (cut && fault_.kind != InjectedFault::Kind::Lag) branch();
      simulation_ = std::make_unique<Simulation>(fault_, cut);
      simulation_->observer = this;
      record_.scenario.play(simulation_->cluster, [&] { settle(); });
      finish();
    } catch (const Known&) {
      out_.known_outcome = true;
    }
    if (testing::Test::HasFailure()) return {};
    if (extent_ == Extent::Needed) learn();
    return out_;
  }

  void moment(const Simulation& simulation) override {
    if (recording_) record_.checkpoints.push_back(std::make_unique<ScenarioRecord::Checkpoint>(part_, simulation));
  }

  bool leave(Simulation& simulation) override {
    if (extent_ == Extent::Whole || !simulation.over() || !sees(simulation)) return false;
    StateKey moment = state_key(simulation);
    const Future* future = recording_ ? nullptr : known(moment);
    if (!future) {
      if (recording_) record_.undisturbed_states.emplace(moment, simulation.cluster);
      passed_.push_back({std::move(moment), simulation.position().second, simulation.cluster.violations.size(),
                         std::exchange(simulation.max_lag, 0)});
      return false;
    }
    if (simulation.position().second + future->seconds > Simulation::max_seconds) return false;
    out_.outcome = future->outcome, broken_after_ = future->broken;
    simulation.max_lag = std::max(simulation.max_lag, future->max_lag);
    rest_seconds_.resize(part_, 0);
    rest_seconds_.push_back(simulation.position().second + future->seconds);
    check_outcome(simulation);
    return true;
  }

  /// Returns true in a state of the undisturbed run with the same versions, for the other process depends on versions.
  bool skip(Simulation& simulation) override {
    if (extent_ == Extent::Whole || !sees(simulation)) return false;
    const auto found = record_.undisturbed_states.find(state_key(simulation));
    if (found == record_.undisturbed_states.end() || !found->second.same_versions(simulation.cluster)) return false;
    simulation.become_idle_as(*record_.rests.at(part_));
    return true;
  }

 private:
  struct Passed {
    StateKey moment;
    int second;
    size_t broken;
    size_t max_lag;  ///< since the state before
  };

  /// Returns true when the stores match the cluster and the limit of reconciles is not near.
  static bool sees(Simulation& simulation) {
    return simulation.position().reconciles <= 50 && simulation.process().knows_all();
  }

  StateKey state_key(Simulation& simulation) const {
    const OperatorProcess& process = simulation.process();
    EXPECT_TRUE(process.cache().mount_events.empty())
        << "states do not include Events: no scenario has pods whose volumes cannot be mounted";
    StateKey out{part_,
                 simulation.position().still,
                 simulation.position().silent,
                 simulation.cluster.version() != simulation.position().before,
                 simulation.flushes(),
                 process.wanted(),
                 std::nullopt,
                 process.cache().gone,
                 {},
                 {}};
    if (!out.wanted && process.wake()) out.wake = *process.wake() - simulation.cluster.now();
    out.objects = simulation.cluster.numbers(record_.numbers, out.ages);
    return out;
  }

  const Future* known(const StateKey& moment) const {
    const auto [begin, end] = record_.futures.equal_range(moment);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second.holds_for(lag()); });
    return found == end ? nullptr : &found->second;
  }

  size_t lag() const { return fault_.kind == InjectedFault::Kind::Lag ? fault_.at : 0; }

  /// Simulates from the last checkpoint to the end of its part, from where the scenario itself continues.
  void branch() {
    const ScenarioRecord::Checkpoint& mark = record_.before(fault_);
    first_part_ = part_ = mark.part;
    branch_ = std::make_unique<Simulation>(mark.simulation, fault_);
    branch_->observer = this;
    const int before = branch_->requests;
    const Simulation::End end = branch_->go_on();
    out_.requests += branch_->requests - before;
    if (end == Simulation::End::Left) throw Known{};
    EXPECT_TRUE(end == Simulation::End::Rest) << "did not converge";
    rest_seconds_.resize(part_, 0);
    rest_seconds_.push_back(branch_->position().second);
    part_ = 0;
  }

  void settle() {
    if (testing::Test::HasFailure()) return;
    const size_t part = part_++;
    if (branch_ && part < first_part_) {
      simulation_->cluster = record_.rests.at(part)->cluster;
      return;
    }
    if (branch_ && part == first_part_) return simulation_->become(*branch_);
    --part_;
    const int before = simulation_->requests;
    const Simulation::End end = simulation_->settle();
    out_.requests += simulation_->requests - before;
    ++part_;
    if (end == Simulation::End::Left) throw Known{};
    ASSERT_TRUE(end == Simulation::End::Rest) << "did not converge";
    rest_seconds_.push_back(simulation_->position().second);
    if (recording_) {
      record_.rests.push_back(std::make_unique<Simulation>(*simulation_, InjectedFault{}));
      Simulation copy(*simulation_, InjectedFault{});
      EXPECT_EQ(redundant_writes(copy), 0) << "a redundant write after part " << part;
    }
  }

  static int redundant_writes(Simulation& simulation) {
    const int writes = simulation.cluster.writes;
    EXPECT_TRUE(simulation.settle() == Simulation::End::Rest);
    return simulation.cluster.writes - writes;
  }

  void finish() {
    if (testing::Test::HasFailure()) return;
    Outcome outcome{simulation_->cluster.digest(), simulation_->cluster.shape(), 0};
    if (recording_)
      record_.requests = static_cast<size_t>(simulation_->requests), record_.events = simulation_->delivered;
    simulation_->observer = nullptr;
    const int before = simulation_->requests;
    outcome.redundant_writes = redundant_writes(*simulation_);
    out_.requests += simulation_->requests - before;
    out_.outcome = std::make_shared<const Outcome>(std::move(outcome));
    check_outcome(*simulation_);
  }

  void check_outcome(const Simulation& simulation) {
    broken_ = simulation.cluster.violations.size() + broken_after_;
    EXPECT_TRUE(fault_.kind == InjectedFault::Kind::Second || broken_ == 0)
        << broken_after_ << " violated invariants, known from another case, and "
        << testing::PrintToString(simulation.cluster.violations);
    EXPECT_EQ(out_.outcome->redundant_writes, 0) << "a redundant write after convergence";
  }

  /// Records the futures of the states that this case visited.
  void learn() {
    size_t most = lag() ? simulation_->max_lag : SIZE_MAX;
    for (auto one = passed_.rbegin(); one != passed_.rend(); ++one) {
      const int seconds = rest_seconds_.at(one->moment.part) - one->second;
      if (!known(one->moment))
        record_.futures.emplace(std::move(one->moment),
                                Future{out_.outcome, seconds, broken_ - one->broken, lag(), most});
      most = std::max(most, one->max_lag);
    }
  }

  ScenarioRecord& record_;
  const InjectedFault& fault_;
  const Extent extent_;
  const bool recording_;
  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<Simulation> branch_;  ///< the first part that differs from the undisturbed run
  size_t part_ = 0, first_part_ = 0;
  size_t broken_ = 0, broken_after_ = 0;
  std::vector<int> rest_seconds_;  ///< by part: seconds until the operator was idle
  std::vector<Passed> passed_;
  CaseResult out_;
};

}  // namespace

size_t StateKeyHash::operator()(const StateKey& moment) const {
  size_t out = moment.part * 31 + static_cast<size_t>(moment.wake.value_or(k8s::WallTime::duration(-1)).count());
  const auto mix = [&](size_t value) { out = (out ^ value) * 1099511628211u; };
  mix(static_cast<size_t>(moment.silent) << 8 | static_cast<size_t>(moment.changed) << 1 |
      static_cast<size_t>(moment.wanted));
  for (uint32_t number : moment.objects) mix(number);
  for (int64_t age : moment.ages) mix(static_cast<size_t>(age));
  return out;
}

ScenarioRecord::ScenarioRecord(const Scenario& of) : scenario(of) {
  undisturbed = CaseRunner(*this, InjectedFault{}, Extent::Needed, true).run_case().outcome;
}

ScenarioRecord& ScenarioRecord::of(const Scenario& scenario) {
  static std::map<std::string, std::unique_ptr<ScenarioRecord>> records;
  auto& record = records[scenario.name];
  if (!record) record = std::make_unique<ScenarioRecord>(scenario);
  return *record;
}

const ScenarioRecord::Checkpoint& ScenarioRecord::before(const InjectedFault& fault) const {
  const auto passed = [&](const Simulation& simulation) {
    const auto delivered = simulation.delivered.find(fault.plural);
    return fault.by_event() ? delivered != simulation.delivered.end() && delivered->second > fault.at
                            : static_cast<size_t>(simulation.requests) > fault.at;
  };
  const auto end = std::partition_point(checkpoints.begin(), checkpoints.end(),
                                        [&](const auto& mark) { return !passed(mark->simulation); });
  return **std::prev(end);
}

CaseResult run_case(ScenarioRecord& record, const InjectedFault& fault, Extent extent) {
  return CaseRunner(record, fault, extent).run_case();
}

}  // namespace pm::op::test
