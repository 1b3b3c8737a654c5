// SPDX-License-Identifier: Apache-2.0
// Tests children of APIs that a cluster may lack: PodMonitor, InferencePool and HTTPRoute with its canaries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/desired.h"
#include "tests/unit/controller/operator/simulator/simulation.h"

namespace pm::op::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class OptionalChildren : public testing::Test {
 protected:
  ~OptionalChildren() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  void start() {
    cluster.apply(model_named("m", 2));
    settle();
  }
  void settle() { ASSERT_TRUE(fake_operator.settle()); }
  void edit(const char* pointer, const Json& value) {
    cluster.edit([&](Json& model) { model[Json::json_pointer(pointer)] = value; });
    settle();
  }
  void change(const char* plural, const std::function<void(Json&)>& with) {
    Json object = *cluster.find(plural, "m");
    with(object);
    cluster.put(plural, std::move(object), false);
    settle();
  }
  std::string planned_message() const { return k8s::string_at(*cluster.condition("Planned"), "/message"); }
  Json backends() const { return cluster.find("httproutes", "m")->at("spec").at("rules")[0].at("backendRefs"); }
  /// Sets the ParallelModel `name`, which serves or not, and reconciles as its event makes the operator do.
  void set_canary(const std::string& name, bool serves, const Json& spec = Json::object()) {
    Json canary = model_named(name);
    canary["spec"].merge_patch(spec);
    canary["status"]["conditions"] = Json::array({{{"type", "Ready"}, {"status", serves ? "True" : "False"}}});
    cluster.put("parallelmodels", std::move(canary), false);
    fake_operator.reconcile();
    settle();
  }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(OptionalChildren, APodMonitorIsMadeWhenAskedForAndRemovedWhenNotAnyMore) {
  cluster.serves_optional = true;
  start();
  EXPECT_THAT(cluster.all("podmonitors"), IsEmpty());
  const auto pods = cluster.pod_names();
  edit("/spec/metrics/podMonitor", true);
  const Json* monitor = cluster.find("podmonitors", "m");
  ASSERT_TRUE(monitor);
  EXPECT_EQ((*monitor)["spec"]["podMetricsEndpoints"][0]["port"], "admin");
  EXPECT_EQ((*monitor)["spec"]["selector"]["matchLabels"][label::role], "worker");
  EXPECT_EQ(k8s::controller_of(*monitor)->name, "m");
  EXPECT_EQ(cluster.pod_names(), pods) << "no pod is made again for it";
  EXPECT_EQ(cluster.model()["status"]["podMonitor"], true);
  const int writes = cluster.writes;
  settle();
  EXPECT_EQ(cluster.writes, writes);
  change("podmonitors", [](Json& object) { object["spec"]["selector"]["matchLabels"][label::role] = "x"; });
  fake_operator.reconcile();
  EXPECT_EQ(cluster.find("podmonitors", "m")->at("spec").at("selector").at("matchLabels").at(label::role), "worker");
  edit("/spec/metrics/podMonitor", false);
  EXPECT_THAT(cluster.all("podmonitors"), IsEmpty());
  EXPECT_FALSE(cluster.model()["status"].contains("podMonitor"));
}

TEST_F(OptionalChildren, WithoutThePrometheusOperatorAMessageSaysSoAndNothingIsTriedInALoop) {
  start();
  edit("/spec/metrics/podMonitor", true);
  EXPECT_TRUE(cluster.is_true("Ready") && !cluster.is_true("Reconciling"));
  EXPECT_THAT(planned_message(), HasSubstr("the Prometheus operator is not installed"));
  cluster.advance(std::chrono::minutes(2));  // the memory of the worker is no longer polled
  fake_operator.reconcile();
  EXPECT_GE(fake_operator.requeue.value(), std::chrono::minutes(1));
  const int writes = cluster.writes;
  settle();
  EXPECT_EQ(cluster.writes, writes);
  cluster.serves_optional = true;
  settle();
  EXPECT_TRUE(cluster.find("podmonitors", "m"));
  EXPECT_THAT(planned_message(), Not(HasSubstr("PodMonitor")));
}

TEST_F(OptionalChildren, WithoutTheRightToPodMonitorsAMessageNamesTheChartValue) {
  start();
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.resource != pod_monitors_resource) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "podmonitors is forbidden", 0};
  };
  edit("/spec/metrics/podMonitor", true);
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(planned_message(), HasSubstr("podMonitors.enabled=true"));
}

TEST_F(OptionalChildren, AForeignPodMonitorOfOurNameIsAConflict) {
  cluster.serves_optional = true;
  start();
  cluster.put("podmonitors", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}});
  edit("/spec/metrics/podMonitor", true);
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
}

TEST_F(OptionalChildren, APoolAndARouteAreMadeWhenAskedForAndRemovedWhenNotAnyMore) {
  cluster.serves_optional = true;
  start();
  const auto pods = cluster.pod_names();
  edit("/spec/router", router_to("canary"));
  const Json* pool = cluster.find("inferencepools", "m");
  ASSERT_TRUE(pool);
  EXPECT_EQ((*pool)["spec"]["selector"]["matchLabels"],
            (Json{{label::name, "m"}, {label::role, "worker"}, {label::node_rank, "0"}}));
  EXPECT_EQ((*pool)["spec"]["targetPorts"], Json::array({{{"number", 8000}}}));
  EXPECT_EQ((*pool)["spec"]["endpointPickerRef"]["name"], "m-epp");
  const Json* route = cluster.find("httproutes", "m");
  ASSERT_TRUE(route);
  EXPECT_EQ(k8s::controller_of(*route)->name, "m");
  EXPECT_EQ((*route)["spec"]["parentRefs"][0]["name"], "front");
  EXPECT_EQ((*route)["spec"]["parentRefs"][0]["namespace"], "infra");
  EXPECT_EQ((*route)["spec"]["hostnames"], Json::array({"chat.example.com"}));
  EXPECT_EQ(backends()[0],
            (Json{{"group", "inference.networking.k8s.io"}, {"kind", "InferencePool"}, {"name", "m"}, {"weight", 90}}));
  EXPECT_EQ(cluster.pod_names(), pods) << "no pod is made again for it";
  EXPECT_EQ(cluster.model()["status"]["httpRoute"], true);
  const int writes = cluster.writes;
  settle();
  EXPECT_EQ(cluster.writes, writes);
  edit("/spec/router", Json{{"httpRoute", router_to("canary")["httpRoute"]}});
  EXPECT_THAT(cluster.all("inferencepools"), IsEmpty());
  EXPECT_LT(std::ranges::find(cluster.log, "Apply httproutes m"),
            std::ranges::find(cluster.log, "Delete inferencepools m"))
      << "requests go to the Service before the pool goes";
  EXPECT_EQ(backends()[0], (Json{{"group", ""}, {"kind", "Service"}, {"name", "m"}, {"port", 8000}, {"weight", 90}}))
      << "without a pool the Service is the backend";
  edit("/spec/router", Json::object());
  EXPECT_THAT(cluster.all("httproutes"), IsEmpty());
  EXPECT_FALSE(cluster.model()["status"].contains("httpRoute"));
}

TEST_F(OptionalChildren, ANetworkPolicyAdmitsRanksTheControllerAndWhomTheSpecNames) {
  start();
  edit("/spec/networkPolicy", Json::object());
  const auto rules = [&] { return cluster.find("networkpolicies", "m")->at("spec").at("ingress"); };
  const Json ranks{{"matchLabels", {{label::name, "m"}, {label::role, "worker"}}}};
  EXPECT_EQ(cluster.find("networkpolicies", "m")->at("spec").at("podSelector"), ranks);
  ASSERT_EQ(rules().size(), 3u);
  EXPECT_EQ(rules()[0], (Json{{"from", Json::array({{{"podSelector", ranks}}})}}));
  EXPECT_FALSE(rules()[1].contains("from")) << "everybody may call the API";
  EXPECT_EQ(rules()[1]["ports"][0]["port"], 8000);
  EXPECT_EQ(rules()[2]["ports"][0]["port"], 8001);
  EXPECT_EQ(rules()[2]["from"],
            Json::array({{{"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", "system"}}}}},
                          {"podSelector", {{"matchLabels", {{"app.kubernetes.io/component", "controller"}}}}}}}));
  edit("/spec/networkPolicy", {{"apiFrom", Json::array({{{"podLabels", {{"app", "chat"}}}}, {{"cidr", "10.0.0.0/8"}}})},
                               {"adminFrom", Json::array({{{"namespaceLabels", {{"team", "metrics"}}}}})}});
  EXPECT_EQ(rules()[1]["from"], Json::array({{{"podSelector", {{"matchLabels", {{"app", "chat"}}}}}},
                                             {{"ipBlock", {{"cidr", "10.0.0.0/8"}}}}}));
  EXPECT_EQ(rules()[2]["from"].size(), 2u);
  edit("/spec/networkPolicy", Json::object());
  EXPECT_FALSE(rules()[1].contains("from")) << "what the spec drops is dropped";
  edit("/spec/networkPolicy", Json());
  EXPECT_THAT(cluster.all("networkpolicies"), IsEmpty());
}

TEST(NetworkPolicy, AControllerOutsideOfTheClusterOpensTheAdminPortForNobody) {
  Json model = model_named("m");
  model["metadata"]["uid"] = "u";
  const Json policy = network_policy(parse_owner(model), parse_spec(model), {.worker_image = "w"});
  EXPECT_EQ(policy["spec"]["ingress"].size(), 2u) << "a rule without peers would admit everybody";
}

TEST_F(OptionalChildren, ACanaryTakesItsShareOnlyWhileItServes) {
  cluster.serves_optional = true;
  start();
  edit("/spec/router", router_to("canary"));
  EXPECT_EQ(backends().size(), 1u);
  EXPECT_THAT(planned_message(), HasSubstr("canary canary takes no requests: there is no ParallelModel of this name"));
  set_canary("canary", false);
  EXPECT_EQ(backends().size(), 1u);
  EXPECT_THAT(planned_message(), HasSubstr("canary canary takes no requests: it does not serve"));
  set_canary("canary", true, {{"service", {{"port", 80}}}});
  ASSERT_EQ(backends().size(), 2u);
  EXPECT_EQ(backends()[1],
            (Json{{"group", ""}, {"kind", "Service"}, {"name", "canary"}, {"port", 80}, {"weight", 10}}));
  EXPECT_THAT(planned_message(), Not(HasSubstr("canary")));
  set_canary("canary", true, {{"router", {{"inferencePool", {{"endpointPicker", {{"name", "other"}}}}}}}});
  EXPECT_EQ(backends()[1]["kind"], "InferencePool");
  set_canary("canary", false);
  EXPECT_EQ(backends().size(), 1u) << "a canary that stops to serve";
}

TEST_F(OptionalChildren, WeightsAndPartsThatTheSpecDropsFollowInOneWrite) {
  cluster.serves_optional = true;
  start();
  set_canary("canary", true);
  edit("/spec/router", router_to("canary"));
  edit("/spec/router/httpRoute/canaries/0/weight", 50);
  EXPECT_EQ(backends()[1]["weight"], 50);
  edit("/spec/router/httpRoute/gateways/0/sectionName", "https");
  const int applies = static_cast<int>(std::ranges::count(cluster.log, "Apply httproutes m"));
  edit("/spec/router/httpRoute", {{"gateways", Json::array({{{"name", "front"}, {"namespace", "infra"}}})}});
  EXPECT_EQ(std::ranges::count(cluster.log, "Apply httproutes m"), applies + 1);
  EXPECT_EQ(backends().size(), 1u);
  EXPECT_EQ(backends()[0]["weight"], 100);
  EXPECT_FALSE(cluster.find("httproutes", "m")->at("spec").at("parentRefs")[0].contains("sectionName"));
  EXPECT_EQ(cluster.find("httproutes", "m")->at("spec").at("hostnames"), Json::array());
}

TEST_F(OptionalChildren, WithoutTheGatewayApiAMessageSaysSoUntilItIsInstalled) {
  start();
  edit("/spec/router", router_to("canary"));
  EXPECT_TRUE(cluster.is_true("Ready") && !cluster.is_true("Reconciling"));
  EXPECT_THAT(planned_message(), HasSubstr("no HTTPRoute (router.httpRoute): the cluster has no HTTPRoute: the Gateway "
                                           "API is not installed"));
  EXPECT_THAT(planned_message(), HasSubstr("no InferencePool (router.inferencePool)"));
  cluster.serves_optional = true;
  settle();
  EXPECT_TRUE(cluster.find("httproutes", "m") && cluster.find("inferencepools", "m"));
  EXPECT_THAT(planned_message(), Not(HasSubstr("no HTTPRoute")));
}

TEST_F(OptionalChildren, WithoutPoolsARouteLeadsToTheService) {
  cluster.serves_optional = true;
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.resource != inference_pools_resource) return std::nullopt;
    return k8s::ApiError{k8s::Failure::NotFound, 404, "NotFound", "the server could not find the requested resource",
                         0};
  };
  start();
  edit("/spec/router", router_to("canary"));
  EXPECT_EQ(backends()[0]["kind"], "Service");
  cluster.refuse = nullptr;
  settle();
  EXPECT_EQ(backends()[0]["kind"], "InferencePool");
}

TEST_F(OptionalChildren, WhatAGatewayHasAgainstTheRouteIsReported) {
  cluster.serves_optional = true;
  start();
  edit("/spec/router", router_to("canary"));
  change("httproutes", [](Json& route) {
    route["status"]["parents"] =
        Json::array({{{"parentRef", {{"name", "front"}}},
                      {"conditions", Json::array({{{"type", "Accepted"},
                                                   {"status", "False"},
                                                   {"reason", "NoMatchingListenerHostname"},
                                                   {"message", "no listener has chat.example.com"}}})}}});
  });
  fake_operator.reconcile();
  EXPECT_THAT(planned_message(),
              HasSubstr("Gateway front: Accepted=False, NoMatchingListenerHostname: no listener has chat.example.com"));
  cluster.advance(std::chrono::minutes(2));
  fake_operator.reconcile();
  EXPECT_LE(fake_operator.requeue.value(), std::chrono::minutes(1)) << "no event tells that a Gateway accepts it";
  change("httproutes", [](Json& route) { route["status"]["parents"][0]["conditions"][0]["status"] = "True"; });
  fake_operator.reconcile();
  EXPECT_THAT(planned_message(), Not(HasSubstr("Gateway front")));
}

}  // namespace
}  // namespace pm::op::test
