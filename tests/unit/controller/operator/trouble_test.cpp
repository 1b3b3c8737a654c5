// Everything that can go wrong once between the operator and its cluster, at every moment of every story: events that come late, get lost or come
// twice, a process that dies, its last request that lands late, a second process beside it, a user who interferes. The end is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "controller/operator/names.h"
#include "replica.h"
#include "scenarios.h"

namespace pm::op::test {
namespace {

using Kind = Trouble::Kind;

/// Every `step`-th case, another one of each story: 1 takes all. PM_TROUBLE_STEP in the environment, default 8.
size_t step_of_cases() {
  const char* text = std::getenv("PM_TROUBLE_STEP");
  return text ? std::max(1, std::atoi(text)) : 8;
}

/// True for the cases that are played; counts along.
bool chosen() {
  static size_t count = 0;
  return count++ % step_of_cases() == 0;
}

struct Outcome {
  Json end, shape;
  size_t requests = 0;
  std::map<std::string, size_t> events;
};

/// Plays a story with one trouble. Whatever happened: promises are kept, and once at rest nothing is written.
Outcome play(const Scenario& scenario, const Trouble& trouble) {
  World world(trouble);
  scenario.play(world.cluster, [&] { ASSERT_TRUE(world.settle()) << "did not converge"; });
  EXPECT_TRUE(trouble.kind == Kind::Second || world.cluster.violations.empty()) << testing::PrintToString(world.cluster.violations);
  const int writes = world.cluster.writes;
  EXPECT_TRUE(world.settle());
  EXPECT_EQ(world.cluster.writes, writes) << "a needless write after convergence";
  return {world.cluster.digest(), world.cluster.shape(), static_cast<size_t>(world.requests), world.heard};
}

class Rate {
 public:
  explicit Rate(const char* what) : what_(what) {}
  ~Rate() {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    std::cout << what_ << ": " << cases << " cases, " << requests << " requests, " << static_cast<int>(cases / seconds) << " cases/s, "
              << static_cast<int>(static_cast<double>(requests) / seconds) << " requests/s\n";
  }
  size_t cases = 0, requests = 0;

 private:
  const char* what_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// One case; false when it failed, and then one is enough to read.
bool same_end(const Scenario& scenario, const Outcome& calm, const Trouble& trouble, const std::string& what, Rate& rate, bool shape_only = false) {
  if (!chosen()) return true;
  SCOPED_TRACE(std::string(scenario.name) + ": " + what + " " + trouble.plural + " " + std::to_string(trouble.at));
  const Outcome outcome = play(scenario, trouble);
  ++rate.cases, rate.requests += outcome.requests;
  const Json &wanted = shape_only ? calm.shape : calm.end, &found = shape_only ? outcome.shape : outcome.end;
  EXPECT_TRUE(found == wanted) << Json::diff(wanted, found).dump(1).substr(0, 4000);
  return !testing::Test::HasFailure();
}

void at_every_event(Kind kind, const char* what) {
  Rate rate(what);
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (const auto& [plural, count] : calm.events) {
      for (size_t at = 0; at < count; ++at) {
        if (!same_end(scenario, calm, {.kind = kind, .plural = plural, .at = at}, what, rate)) return;
      }
    }
  }
}

TEST(Trouble, ACollectionThatFallsBehindFromAnyEventOn) { at_every_event(Kind::Hold, "held from event"); }
TEST(Trouble, AnyEventLostWithAllBeforeTheNextList) { at_every_event(Kind::Cut, "lost at event"); }
TEST(Trouble, AnyEventTwice) { at_every_event(Kind::Repeat, "repeated event"); }

TEST(Trouble, AllCollectionsBehindByAnyNumberOfEvents) {
  Rate rate("behind by");
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (size_t behind = 1; behind <= 12; ++behind) {
      if (!same_end(scenario, calm, {.kind = Kind::Lag, .at = behind}, "behind by", rate)) return;
    }
  }
}

TEST(Trouble, AProcessThatDiesAtAnyRequestInAnyWay) {
  Rate rate("crash");
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (const Fault fault : {Fault::BeforeRequest, Fault::AfterRequest, Fault::AnswerLost, Fault::AnswerLostUndone}) {
      for (size_t at = 0; at < calm.requests; ++at) {
        if (!same_end(scenario, calm, {.kind = Kind::Crash, .at = at, .fault = fault}, "crash of way " + std::to_string(static_cast<int>(fault)) + " at request", rate)) return;
      }
    }
  }
}

TEST(Trouble, ALastRequestThatLandsWhileTheSuccessorLists) {
  Rate rate("late landing");
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (const std::string plural : {"parallelmodels", "pods", "configmaps", "services"}) {
      for (size_t at = 0; at < calm.requests; ++at) {
        if (!same_end(scenario, calm, {.kind = Kind::LateLanding, .plural = plural, .at = at}, "landing after the list of", rate)) return;
      }
    }
  }
}

/// Two at once is what leader election prevents; should it ever fail, a pod of an old incarnation may appear for a moment, and then it must go again.
TEST(Trouble, ASecondOperatorThatTookOverInTheMiddleOfAnyPass) {
  Rate rate("two operators");
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (size_t at = 0; at < calm.requests; ++at) {
      if (!same_end(scenario, calm, {.kind = Kind::Second, .at = at}, "the first stands still at request", rate, true)) return;
    }
  }
}

struct Interference {
  const char* what;
  std::function<void(FakeCluster&)> act;
  bool costs_a_restart = false;
};

void delete_children(FakeCluster& cluster, const std::string& plural) {
  for (const Json& object : cluster.all(plural)) {
    if (!k8s::controller_of(object)) continue;
    cluster.send({.verb = k8s::Verb::Delete, .resource = plural == "services" ? k8s::Services : k8s::PodDisruptionBudgets, .ns = "ns", .name = k8s::key_of(object).name,
                  .body = {{"preconditions", {{"uid", k8s::uid_of(object)}}}}});
  }
}

const std::vector<Interference>& interferences() {
  static const std::vector<Interference> all{
      {"deletes every Service", [](FakeCluster& c) { delete_children(c, "services"); }},
      {"deletes the disruption budget", [](FakeCluster& c) { delete_children(c, "poddisruptionbudgets"); }},
      {"annotates the model", [](FakeCluster& c) {
         if (c.find("parallelmodels", "m")) c.edit([](Json& model) { model["metadata"]["annotations"]["note"] = "seen"; });
       }},
      {"lets two seconds pass", [](FakeCluster& c) { c.tick(), c.tick(); }},
      {"deletes every worker pod", [](FakeCluster& c) {
         for (const Json& pod : c.with_role("pods", "worker")) {
           if (!k8s::being_deleted(pod)) c.delete_pod(k8s::key_of(pod).name);
         }
       }, true},
      {"deletes the model and makes it again", [](FakeCluster& c) {
         if (!c.find("parallelmodels", "m")) return;
         Json again{{"apiVersion", "parallelmodel.dev/v1alpha1"}, {"kind", "ParallelModel"}, {"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", c.model()["spec"]}};
         if (const Json& notes = c.model()["metadata"]; notes.contains("annotations")) again["metadata"]["annotations"] = notes["annotations"];
         c.remove_model();
         c.apply(again);
       }, true},
  };
  return all;
}

TEST(Trouble, SomebodyWhoInterferesInTheMiddleOfAnyPass) {
  Rate rate("interference");
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, {});
    for (const Interference& one : interferences()) {
      if (one.costs_a_restart && scenario.counts) continue;
      for (size_t at = 0; at < calm.requests; ++at) {
        if (!same_end(scenario, calm, {.kind = Kind::User, .at = at, .act = one.act}, std::string("somebody ") + one.what + " at request", rate, true)) return;
      }
    }
  }
}

}  // namespace
}  // namespace pm::op::test
