// SPDX-License-Identifier: Apache-2.0
// Injects every single fault at every point of every scenario: events that are delayed, lost or repeated, a crash, a
// last request that arrives late, a second process, a user who interferes. The final state must always be the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/case_runner.h"

namespace pm::op::test {
namespace {

using Kind = InjectedFault::Kind;

/// Runs every n-th case; the default 1 runs all. PM_FAULT_STEP in the environment sets n.
size_t step_of_cases() {
  const char* text = std::getenv("PM_FAULT_STEP");
  return text ? static_cast<size_t>(std::max(1, std::atoi(text))) : 1;
}

/// With PM_FAULT_WHOLE=1 every case is simulated from the begin of its scenario to the end.
Extent extent_of_cases() {
  const char* text = std::getenv("PM_FAULT_WHOLE");
  return text && std::string(text) == "1" ? Extent::Whole : Extent::Needed;
}

class Rate {
 public:
  explicit Rate(std::string what) : what_(std::move(what)) {}
  ~Rate() {
    const double seconds = std::max(1e-9, processor_time() - begin_);
    std::cout << what_ << ": " << cases << " cases, " << known_outcome << " of them reached a known state, " << requests
              << " requests, " << seconds << " s, " << static_cast<int>(static_cast<double>(cases) / seconds)
              << " cases/s\n";
    all_cases += cases, all_seconds += seconds;
    std::cout << "so far: " << all_cases << " cases, " << all_seconds << " s, "
              << static_cast<int>(static_cast<double>(all_cases) / all_seconds) << " cases/s\n";
  }
  static inline size_t all_cases = 0;
  static inline double all_seconds = 0;
  size_t cases = 0, known_outcome = 0, requests = 0;

 private:
  /// Returns the CPU time of this process in seconds.
  static double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
  const std::string what_;
  const double begin_ = processor_time();
};

/// Drops reason and message of failures: without the event of a node, the operator assesses its lost pod by the pod
/// alone and reports the same failure with another reason.
Json without_words_of_failures(Json end) {
  for (Json& object : end) {
    if (!object.is_array() || object.size() < 2 || !object[1].contains("status") ||
        !object[1]["status"].contains("lastFailure"))
      continue;
    for (const char* word : {"reason", "message"}) object[1]["status"]["lastFailure"].erase(word);
  }
  return end;
}

struct Case {
  InjectedFault fault;
  std::string what;
  bool shape_only = false;
};
using Take = std::function<void(const Case&)>;
/// Generates all cases of one kind in a scenario.
using Cases = std::function<void(const ScenarioRecord&, const Take&)>;

std::string to_string(const ScenarioRecord& record, const Case& one) {
  return std::string(record.scenario.name) + ": " + one.what + " " + one.fault.plural + " " +
         std::to_string(one.fault.at);
}

void compare(const Case& one, const Outcome& undisturbed, const Outcome& outcome) {
  Json wanted = one.shape_only ? undisturbed.shape : undisturbed.digest,
       found = one.shape_only ? outcome.shape : outcome.digest;
  if (wanted == found) return;
  if (one.fault.kind == Kind::Hold && one.fault.plural == "nodes")
    wanted = without_words_of_failures(wanted), found = without_words_of_failures(found);
  EXPECT_TRUE(found == wanted) << Json::diff(wanted, found).dump(1).substr(0, 4000);
}

/// Runs the cases until one fails.
void play_all(const char* what, const Cases& cases) {
  static size_t count = 0;
  Rate rate(what);
  for (const Scenario& scenario : scenarios()) {
    ScenarioRecord& record = ScenarioRecord::of(scenario);
    ASSERT_TRUE(record.undisturbed) << scenario.name;
    cases(record, [&](const Case& one) {
      if (count++ % step_of_cases() != 0 || testing::Test::HasFailure()) return;
      SCOPED_TRACE(to_string(record, one));
      const CaseResult played = run_case(record, one.fault, extent_of_cases());
      ++rate.cases, rate.requests += static_cast<size_t>(played.requests),
          rate.known_outcome += played.known_outcome ? 1 : 0;
      if (played.outcome) compare(one, *record.undisturbed, *played.outcome);
    });
  }
}

Cases at_every_event(Kind kind, const char* what) {
  return [=](const ScenarioRecord& record, const Take& take) {
    for (const auto& [plural, count] : record.events) {
      for (size_t at = 0; at < count; ++at) take({{.kind = kind, .plural = plural, .at = at}, what});
    }
  };
}
const Cases held = at_every_event(Kind::Hold, "held from event"), lost = at_every_event(Kind::Cut, "lost at event"),
            repeated = at_every_event(Kind::Repeat, "repeated event");

void behind(const ScenarioRecord&, const Take& take) {
  for (size_t events = 1; events <= 12; ++events) take({{.kind = Kind::Lag, .at = events}, "behind by"});
}

void crashes(const ScenarioRecord& record, const Take& take) {
  for (const CrashPoint crash_point :
       {CrashPoint::BeforeRequest, CrashPoint::AfterRequest, CrashPoint::AnswerLost, CrashPoint::AnswerLostUndone}) {
    for (size_t at = 0; at < record.requests; ++at)
      take({{.kind = Kind::Crash, .at = at, .crash_point = crash_point},
            "crash of way " + std::to_string(static_cast<int>(crash_point)) + " at request"});
  }
}

void late_landings(const ScenarioRecord& record, const Take& take) {
  for (const std::string plural : {"parallelmodels", "pods", "configmaps", "services"}) {
    for (size_t at = 0; at < record.requests; ++at)
      take({{.kind = Kind::LateLanding, .plural = plural, .at = at}, "landing after the list of"});
  }
}

/// Leader election prevents two operators at once. Should it ever fail, a pod of an old generation may appear for a
/// moment, but it must be deleted again.
void two_operators(const ScenarioRecord& record, const Take& take) {
  for (size_t at = 0; at < record.requests; ++at)
    take({{.kind = Kind::Second, .at = at}, "the first stands still at request", true});
}

struct Interference {
  const char* what;
  std::function<void(FakeCluster&)> act;
  bool costs_a_restart = false;
};

void delete_children(FakeCluster& cluster, const std::string& plural) {
  for (const Json& object : cluster.all(plural)) {
    if (!k8s::controller_of(object)) continue;
    cluster.send({.verb = k8s::Verb::Delete,
                  .resource = plural == "services" ? k8s::services_resource : k8s::pod_disruption_budgets_resource,
                  .ns = "ns",
                  .name = k8s::key_of(object).name,
                  .body = {{"preconditions", {{"uid", k8s::uid_of(object)}}}}});
  }
}

const std::vector<Interference>& interferences() {
  static const std::vector<Interference> all{
      {"deletes every Service", [](FakeCluster& c) { delete_children(c, "services"); }},
      {"deletes the disruption budget", [](FakeCluster& c) { delete_children(c, "poddisruptionbudgets"); }},
      {"annotates the model",
       [](FakeCluster& c) {
         if (c.find("parallelmodels", "m"))
           c.edit([](Json& model) { model["metadata"]["annotations"]["note"] = "seen"; });
       }},
      {"lets two seconds pass", [](FakeCluster& c) { c.tick(), c.tick(); }},
      {"takes the status away",
       [](FakeCluster& c) {
         if (!c.find("parallelmodels", "m")) return;
         c.taken = at(c.model(), "/status/replicaStatuses");
         c.edit([](Json& model) { model.erase("status"); });
       },
       true},
      {"deletes every worker pod",
       [](FakeCluster& c) {
         for (const Json& pod : c.with_role("pods", "worker")) {
           if (!k8s::being_deleted(pod)) c.delete_pod(k8s::key_of(pod).name);
         }
       },
       true},
      {"deletes the model and makes it again",
       [](FakeCluster& c) {
         if (!c.find("parallelmodels", "m")) return;
         Json again{{"apiVersion", "parallelmodel.dev/v1alpha1"},
                    {"kind", "ParallelModel"},
                    {"metadata", {{"name", "m"}, {"namespace", "ns"}}},
                    {"spec", c.model()["spec"]}};
         if (const Json& notes = c.model()["metadata"]; notes.contains("annotations"))
           again["metadata"]["annotations"] = notes["annotations"];
         c.remove_model();
         c.apply(again);
       },
       true},
  };
  return all;
}

void interference(const ScenarioRecord& record, const Take& take) {
  for (const Interference& one : interferences()) {
    if (one.costs_a_restart && record.scenario.counts) continue;
    for (size_t at = 0; at < record.requests; ++at)
      take({{.kind = Kind::User, .at = at, .act = one.act}, std::string("somebody ") + one.what + " at request", true});
  }
}

/// The undisturbed runs. All others are compared with them and begin from copies of them.
TEST(InjectedFault, NothingGoesWrong) {
  Rate rate("undisturbed");
  for (const Scenario& scenario : scenarios()) {
    ++rate.cases;
    rate.requests += ScenarioRecord::of(scenario).requests;
    EXPECT_TRUE(ScenarioRecord::of(scenario).undisturbed) << scenario.name;
  }
}

TEST(InjectedFault, ACollectionThatFallsBehindFromAnyEventOn) { play_all("held from event", held); }
TEST(InjectedFault, AnyEventLostWithAllBeforeTheNextList) { play_all("lost at event", lost); }
TEST(InjectedFault, AnyEventTwice) { play_all("repeated event", repeated); }
TEST(InjectedFault, AllCollectionsBehindByAnyNumberOfEvents) { play_all("behind by", behind); }
TEST(InjectedFault, AProcessThatDiesAtAnyRequestInAnyWay) { play_all("crash", crashes); }
TEST(InjectedFault, ALastRequestThatLandsWhileTheSuccessorLists) { play_all("late landing", late_landings); }
TEST(InjectedFault, ASecondOperatorThatTookOverInTheMiddleOfAnyReconcile) { play_all("two operators", two_operators); }
TEST(InjectedFault, SomebodyWhoInterferesInTheMiddleOfAnyReconcile) { play_all("interference", interference); }

/// The simulated part of a case must end exactly as the whole case does.
TEST(InjectedFault, CasesThatAreCutShortEndAsWholeOnes) {
  constexpr size_t every = 101;
  size_t count = 0, compared = 0, cut = 0;
  for (const Cases& cases : {held, lost, repeated, Cases(behind), Cases(crashes), Cases(late_landings),
                             Cases(two_operators), Cases(interference)}) {
    for (const Scenario& scenario : scenarios()) {
      ScenarioRecord& record = ScenarioRecord::of(scenario);
      cases(record, [&](const Case& one) {
        if (count++ % every != 0 || testing::Test::HasFailure()) return;
        SCOPED_TRACE(to_string(record, one));
        const CaseResult needed = run_case(record, one.fault, Extent::Needed),
                         whole = run_case(record, one.fault, Extent::Whole);
        ASSERT_TRUE(needed.outcome && whole.outcome);
        EXPECT_EQ(needed.outcome->digest, whole.outcome->digest);
        EXPECT_EQ(needed.outcome->shape, whole.outcome->shape);
        ++compared, cut += needed.known_outcome ? 1 : 0;
      });
    }
  }
  std::cout << compared << " cases played in both ways, " << cut << " of them cut short\n";
  EXPECT_GT(cut, compared / 2);
}

}  // namespace
}  // namespace pm::op::test
