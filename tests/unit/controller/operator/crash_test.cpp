// The operator dies at every request of every scenario, in every way, and always ends up in the same place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "controller/operator/names.h"
#include "fake_cluster.h"

namespace pm::op::test {
namespace {

using testing::IsEmpty;

/// A story: what the user and the machine do, with the operator settling in between.
struct Scenario {
  const char* name;
  std::function<void(FakeCluster&, Operator&)> play;
  bool learns = false;   ///< needs the answer to a request that changes nothing, so an operator that never hears answers cannot end it
};

void settle(Operator& brain) { ASSERT_TRUE(brain.settle()) << "did not converge"; }

void apply(FakeCluster& cluster, Operator& brain, int replicas = 1) {
  cluster.apply(model_named("m", 2, replicas));
  settle(brain);
}

void fail(FakeCluster& cluster, int group) {
  for (const std::string& name : cluster.pod_names()) {
    if (name.rfind("m-" + std::to_string(group) + "-0-", 0) == 0) return cluster.end_worker(name, 5, {{"rank", 0}, {"reason", "RankLost"}, {"message", "gone"}});
  }
  FAIL() << "group " << group << " has no pod";
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all{
      {"create", [](FakeCluster& c, Operator& o) { apply(c, o, 2); }},
      {"failures and back-off", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         for (int i = 0; i < 3; ++i) fail(c, 0), settle(o);
       }},
      {"budget spent, then restarted by hand", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         c.edit([](Json& model) { model["spec"]["failure"]["maxRestarts"] = 1; });
         settle(o);
         fail(c, 0), settle(o);
         fail(c, 0), settle(o);
         EXPECT_EQ(c.reason("Stalled"), "RestartBudgetExhausted");
         c.edit([](Json& model) { model["metadata"]["annotations"][annotation::restarted_at] = "1"; });
         settle(o);
       }},
      {"scale 1 -> 2 -> 1", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         for (int replicas : {2, 1}) {
           c.edit([&](Json& model) { model["spec"]["replicas"] = replicas; });
           settle(o);
         }
       }},
      {"edit of the pods", [](FakeCluster& c, Operator& o) {
         apply(c, o, 2);
         c.edit([](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
         settle(o);
       }},
      {"edit of the plan, and of the Service", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         c.edit([](Json& model) {
           model["spec"]["devices"]["count"] = 4;
           model["spec"]["service"]["port"] = 80;
         });
         settle(o);
       }},
      {"edit that changes the wishes and not the plan", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         c.edit([](Json& model) { model["spec"]["resources"]["memory"] = "4096Mi"; });
         settle(o);
       }},
      {"refused, then mended", [](FakeCluster& c, Operator& o) {
         auto model = model_named("m");
         model["spec"]["resources"]["memory"] = "64Mi";
         c.apply(model);
         settle(o);
         EXPECT_EQ(c.reason("Planned"), "DoesNotFit");
         c.edit([](Json& model) { model["spec"]["resources"]["memory"] = "2Gi"; });
         settle(o);
       }},
      {"name conflict, then mended", [](FakeCluster& c, Operator& o) {
         c.put("services", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", Json::object()}});
         apply(c, o);
         EXPECT_EQ(c.reason("Stalled"), "NameConflict");
         c.send({.verb = k8s::Verb::Delete, .resource = k8s::Services, .ns = "ns", .name = "m",
                 .body = {{"preconditions", {{"uid", c.find("services", "m")->at("metadata").at("uid")}}}}});
         settle(o);
       }, true},
      {"a user's policy: missing, there, changed, gone, and no longer named", [](FakeCluster& c, Operator& o) {
         auto model = model_named("m");
         model["spec"]["model"]["policyRef"] = {{"name", "mine"}};
         c.apply(model);
         settle(o);
         EXPECT_EQ(c.reason("Planned"), "PolicyNotFound");
         for (const char* text : {"one", "two"}) c.put_map("mine", {{"p.yaml", text}}), settle(o);
         c.remove_map("mine");
         fail(c, 0), settle(o);
         EXPECT_TRUE(c.is_true("Ready"));
         c.edit([](Json& m) { m["spec"]["model"].erase("policyRef"); });
         settle(o);
       }, true},
      {"delete and create again", [](FakeCluster& c, Operator& o) {
         apply(c, o);
         c.remove_model();
         settle(o);
         EXPECT_TRUE(c.all("pods").empty() && c.all("services").empty() && c.all("configmaps").empty());
         apply(c, o);
       }},
  };
  return all;
}

struct Outcome {
  Json end;
  int requests = 0;
};

Outcome play(const Scenario& scenario, const std::function<void(Operator&)>& disturb) {
  FakeCluster cluster;
  Operator brain{cluster};
  disturb(brain);
  cluster.remembers = brain.stale > 0;
  scenario.play(cluster, brain);
  EXPECT_THAT(cluster.violations, IsEmpty());
  const int writes = cluster.writes, requests = brain.requests;
  brain.fault = Fault::None, brain.one_request_lives = false, brain.stale = 0;
  EXPECT_TRUE(brain.settle());
  EXPECT_EQ(cluster.writes, writes) << "a needless write after convergence";
  return {cluster.digest(), requests};
}

TEST(Crash, AtAnyRequestInAnyWayLeadsToTheSameEnd) {
  int cases = 0;
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, [](Operator&) {});
    for (Fault fault : {Fault::BeforeRequest, Fault::AfterRequest, Fault::AnswerLost, Fault::AnswerLostUndone}) {
      for (int at = 0; at < calm.requests; ++at, ++cases) {
        SCOPED_TRACE(std::string(scenario.name) + ", request " + std::to_string(at) + ", way " + std::to_string(static_cast<int>(fault)));
        const Outcome outcome = play(scenario, [&](Operator& brain) { brain.fault = fault, brain.at = at; });
        ASSERT_EQ(outcome.end, calm.end) << Json::diff(calm.end, outcome.end).dump(1);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  std::cout << "crash cases: " << cases << "\n";
}

TEST(Crash, AfterEveryRequestLeadsToTheSameEnd) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.learns) continue;
    SCOPED_TRACE(scenario.name);
    const Outcome calm = play(scenario, [](Operator&) {}), outcome = play(scenario, [](Operator& brain) { brain.one_request_lives = true; });
    EXPECT_EQ(outcome.end, calm.end) << Json::diff(calm.end, outcome.end).dump(1);
  }
}

TEST(Crash, ASnapshotOfThePastMakesNothingTwice) {
  int cases = 0;
  for (const Scenario& scenario : scenarios()) {
    const Outcome calm = play(scenario, [](Operator&) {});
    for (size_t behind = 1; behind <= 6; ++behind, ++cases) {
      SCOPED_TRACE(std::string(scenario.name) + ", " + std::to_string(behind) + " events behind");
      const Outcome outcome = play(scenario, [&](Operator& brain) { brain.stale = behind; });
      EXPECT_EQ(outcome.end, calm.end) << Json::diff(calm.end, outcome.end).dump(1);
    }
  }
  std::cout << "stale cases: " << cases << "\n";
}

}  // namespace
}  // namespace pm::op::test
