// Everything that can go wrong once between the operator and its cluster, at every moment of every story: events that come late, get lost or come
// twice, a process that dies, its last request that lands late, a second process beside it, a user who interferes. The end is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
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
  std::vector<World::Rest> rests;       ///< after each part of the story; of the calm one only
};

/// Plays a story with one trouble. Whatever happened: promises are kept, and once at rest nothing is written. Parts of the story that are those of the calm one are
/// not played again: all before the trouble, and all after a rest at which the world is the calm one's in everything that its future depends on.
class Player {
 public:
  Player(const Scenario& scenario, const Trouble& trouble, const Outcome* calm) : scenario_(scenario), trouble_(trouble), calm_(calm), world_(trouble), same_(calm != nullptr) {}

  Outcome play() {
    scenario_.play(world_.cluster, [&] { settle(); });
    check(!same_);
    Outcome out{world_.cluster.digest(), world_.cluster.shape(), static_cast<size_t>(requests_), world_.heard, std::move(rests_)};
    return out;
  }

 private:
  void settle() {
    const World::Rest* rest = same_ ? &calm_->rests.at(part_++) : nullptr;
    if (rest && (world_.met() || !in_this_part(*rest))) return world_.resume(*rest);
    const int before = world_.requests;
    ASSERT_TRUE(world_.settle()) << "did not converge";
    requests_ += world_.requests - before;
    if (!calm_) rests_.push_back(world_.rest());
    if (!rest) return;
    same_ = world_.met() && world_.state() == rest->state;
    if (same_) check(true);
  }

  bool in_this_part(const World::Rest& rest) const {
    if (trouble_.kind == Kind::Lag) return true;
    const bool events = trouble_.kind == Kind::Hold || trouble_.kind == Kind::Cut || trouble_.kind == Kind::Repeat;
    const auto heard = rest.heard.find(trouble_.plural);
    return events ? heard != rest.heard.end() && heard->second > trouble_.at : static_cast<size_t>(rest.requests) > trouble_.at;
  }

  void check(bool rests) {
    EXPECT_TRUE(trouble_.kind == Kind::Second || world_.cluster.violations.empty()) << testing::PrintToString(world_.cluster.violations);
    if (!rests) return;
    const int writes = world_.cluster.writes;
    EXPECT_TRUE(world_.settle());
    EXPECT_EQ(world_.cluster.writes, writes) << "a needless write after convergence";
  }

  const Scenario& scenario_;
  const Trouble& trouble_;
  const Outcome* calm_;
  World world_;
  bool same_;                           ///< the world is the calm one's until here
  size_t part_ = 0;
  int requests_ = 0;
  std::vector<World::Rest> rests_;
};

Outcome play(const Scenario& scenario, const Trouble& trouble, const Outcome* calm = nullptr) { return Player(scenario, trouble, calm).play(); }

class Rate {
 public:
  explicit Rate(const char* what) : what_(what) {}
  ~Rate() {
    const double seconds = std::max(1e-9, processor_time() - begin_);
    std::cout << what_ << ": " << cases << " cases, " << requests << " requests, " << seconds << " s, " << static_cast<int>(cases / seconds) << " cases/s, "
              << static_cast<int>(static_cast<double>(requests) / seconds) << " requests/s\n";
  }
  size_t cases = 0, requests = 0;

 private:
  /// Of one core, whatever else the machine does.
  static double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
  const char* what_;
  const double begin_ = processor_time();
};

/// Who has not heard of a node yet judges its lost pod by the pod alone, and tells the same failure in other words.
Json without_words_of_failures(Json end) {
  for (Json& object : end) {
    if (!object.is_array() || object.size() < 2 || !object[1].contains("status") || !object[1]["status"].contains("lastFailure")) continue;
    for (const char* word : {"reason", "message"}) object[1]["status"]["lastFailure"].erase(word);
  }
  return end;
}

/// One case; false when it failed, and then one is enough to read.
bool same_end(const Scenario& scenario, const Outcome& calm, const Trouble& trouble, const std::string& what, Rate& rate, bool shape_only = false) {
  if (!chosen()) return true;
  SCOPED_TRACE(std::string(scenario.name) + ": " + what + " " + trouble.plural + " " + std::to_string(trouble.at));
  const Outcome outcome = play(scenario, trouble, &calm);
  ++rate.cases, rate.requests += outcome.requests;
  Json wanted = shape_only ? calm.shape : calm.end, found = shape_only ? outcome.shape : outcome.end;
  if (trouble.kind == Kind::Hold && trouble.plural == "nodes") wanted = without_words_of_failures(wanted), found = without_words_of_failures(found);
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
