// SPDX-License-Identifier: Apache-2.0
// Tests models whose devices come from dynamic resource allocation: plans from ResourceSlices, ResourceClaimTemplates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/observed/pod_state.h"
#include "tests/unit/controller/operator/simulator/simulation.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

const char* const templates = "resourceclaimtemplates";

Json claiming(int devices, int replicas = 1) {
  Json model = model_named("m", devices, replicas);
  model["spec"]["devices"].erase("resource");
  model["spec"]["devices"]["claim"] = {{"deviceClassName", "gpus"}};
  return model;
}

class DeviceClaims : public testing::Test {
 protected:
  ~DeviceClaims() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  void start(const Json& model) {
    cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                           {"spec", {{"accessModes", {"ReadOnlyMany"}}}}});
    cluster.apply(model);
    ASSERT_TRUE(fake_operator.settle());
  }
  void edit(const char* pointer, const Json& value) {
    cluster.edit([&](Json& model) { model[Json::json_pointer(pointer)] = value; });
    ASSERT_TRUE(fake_operator.settle());
  }
  void refuse(const char* plural, k8s::Failure failure, int code, const std::string& message) {
    cluster.refuse = [=](const k8s::Request& request) -> std::optional<k8s::ApiError> {
      if (request.resource.plural != plural) return std::nullopt;
      return k8s::ApiError{failure, code, "", message, 0};
    };
  }
  std::string message(const char* type) const { return k8s::string_at(*cluster.condition(type), "/message"); }
  size_t logged(const std::string& begin) const {
    return std::ranges::count_if(cluster.log, [&](const std::string& line) { return line.starts_with(begin); });
  }
  size_t line(const std::string& begin) const {
    return std::ranges::find_if(cluster.log, [&](const std::string& one) { return one.starts_with(begin); }) -
           cluster.log.begin();
  }
  static Json count_of(const Json& made) { return at(made, "/spec/spec/devices/requests/0/exactly/count"); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(DeviceClaims, PodsClaimTheirDevicesByATemplateThatIsMadeBefore) {
  cluster.serves_devices = true;
  Json model = claiming(2);
  model["spec"]["devices"]["claim"]["selectors"] = {"device.attributes['gpu.io'].type == 'gpu'", "true"};
  model["spec"]["devices"]["claim"]["matchAttribute"] = "resource.kubernetes.io/pcieRoot";
  start(model);
  EXPECT_TRUE(cluster.is_true("Ready"));
  ASSERT_THAT(cluster.all(templates), SizeIs(1));
  const Json made = cluster.all(templates)[0];
  const std::string name = k8s::key_of(made).name;
  EXPECT_THAT(name, StartsWith("m-devices-"));
  EXPECT_EQ(k8s::controller_of(made)->uid, k8s::uid_of(cluster.model()));
  EXPECT_EQ(
      made["spec"]["spec"]["devices"],
      (Json{{"requests",
             Json::array({{{"name", "devices"},
                           {"exactly",
                            {{"deviceClassName", "gpus"},
                             {"selectors",
                              Json::array({{{"cel", {{"expression", "device.attributes['gpu.io'].type == 'gpu'"}}}},
                                           {{"cel", {{"expression", "true"}}}}})},
                             {"allocationMode", "ExactCount"},
                             {"count", 2}}}}})},
            {"constraints",
             Json::array({{{"requests", {"devices"}}, {"matchAttribute", "resource.kubernetes.io/pcieRoot"}}})}}));
  const Json pod = *cluster.find("pods", "m-0-0-1");
  EXPECT_EQ(pod["spec"]["resourceClaims"], Json::array({{{"name", "devices"}, {"resourceClaimTemplateName", name}}}));
  const Json& resources = pod["spec"]["containers"][0]["resources"];
  EXPECT_EQ(resources["claims"], Json::array({{{"name", "devices"}}}));
  EXPECT_FALSE(resources["limits"].contains("nvidia.com/gpu"));
  EXPECT_LT(line("Create " + std::string(templates)), line("Create pods m-0-0-1"));
  EXPECT_EQ(cluster.model()["status"]["resourceClaimTemplates"], Json::array({name}));
  cluster.log.clear();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(logged("Get resource"), 0u) << "nothing is read once every pod has a node";
  EXPECT_EQ(logged("List"), 0u) << "the memory of CPU ranks does not follow from slices";
}

TEST_F(DeviceClaims, WithoutTheFieldNothingOfTheApiIsRead) {
  cluster.serves_devices = true;
  start(model_named("m", 2));
  edit("/spec/worker/env", Json::array({{{"name", "A"}, {"value", "1"}}}));
  for (const std::string& line : cluster.log) EXPECT_THAT(line, Not(HasSubstr("resourceclaim")));
  EXPECT_EQ(logged("List"), 0u);
  EXPECT_FALSE(cluster.model()["status"].contains("resourceClaimTemplates"));
}

TEST_F(DeviceClaims, UnevenPodsHaveATemplateForEachNumberOfRanks) {
  cluster.serves_devices = true;
  cluster.devices = 2;
  cluster.add_node("node-b", 2);
  Json model = claiming(3);
  model["spec"]["devices"]["perNode"] = 2;
  model["spec"]["parallelism"]["strategy"] = "Data";
  start(model);
  EXPECT_TRUE(cluster.is_true("Ready")) << message("Planned") << message("Scheduled");
  ASSERT_THAT(cluster.all(templates), SizeIs(2));
  const auto ranks_of_pod = [&](const char* pod) {
    return count_of(
        *cluster.find(templates, at(*cluster.find("pods", pod), "/spec/resourceClaims/0/resourceClaimTemplateName")));
  };
  EXPECT_EQ(ranks_of_pod("m-0-0-1"), 2);
  EXPECT_EQ(ranks_of_pod("m-0-1-1"), 1);
}

TEST_F(DeviceClaims, AnotherClaimReplacesPodsAndThenItsTemplate) {
  cluster.serves_devices = true;
  start(claiming(2));
  const std::string first = k8s::key_of(cluster.all(templates)[0]).name;
  cluster.drain_seconds = 2;
  cluster.log.clear();
  edit("/spec/devices/claim/selectors", {"device.driver == 'gpu.io'"});
  EXPECT_TRUE(cluster.find("pods", "m-0-0-2")) << "the claim is part of the pod hash";
  ASSERT_THAT(cluster.all(templates), SizeIs(1));
  EXPECT_NE(k8s::key_of(cluster.all(templates)[0]).name, first);
  EXPECT_LT(line("Create pods m-0-0-2"), line("Delete " + std::string(templates)));
  EXPECT_LT(line("Delete pods m-0-0-1"), line("Delete " + std::string(templates)));
  edit("/spec/devices/claim", Json());
  EXPECT_THAT(cluster.all(templates), IsEmpty());
  EXPECT_FALSE(cluster.model()["status"].contains("resourceClaimTemplates"));
  EXPECT_FALSE(cluster.find("pods", "m-0-0-3")->at("spec").contains("resourceClaims"));
}

TEST_F(DeviceClaims, ATemplateThatSomebodyDeletesIsMadeAgainForTheNextPods) {
  cluster.serves_devices = true;
  start(claiming(2));
  const Json made = cluster.all(templates)[0];
  cluster.send({.verb = k8s::Verb::Delete,
                .resource = claim_templates_resource,
                .ns = "ns",
                .name = k8s::key_of(made).name,
                .body = {{"preconditions", {{"uid", k8s::uid_of(made)}}}}});
  edit("/spec/replicas", 2);
  EXPECT_EQ(cluster.model()["status"]["readyReplicas"], 2);
  EXPECT_THAT(cluster.all(templates), SizeIs(1));
}

TEST_F(DeviceClaims, WithoutTheApiNoPodIsMadeUntilTheClusterServesIt) {
  start(claiming(2));
  EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
  EXPECT_THAT(message("Planned"), HasSubstr("no ResourceClaimTemplate (devices.claim): the cluster does not serve"));
  EXPECT_THAT(message("Scheduled"), HasSubstr("no pod is created without ResourceClaimTemplate m-devices-"));
  ASSERT_TRUE(fake_operator.requeue);
  const int writes = cluster.writes;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.writes, writes);
  cluster.serves_devices = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(message("Planned"), Not(HasSubstr("ResourceClaimTemplate")));
}

TEST_F(DeviceClaims, WithoutTheRightAMessageNamesTheChartValue) {
  cluster.serves_devices = true;
  refuse(templates, k8s::Failure::Forbidden, 403, "resourceclaimtemplates is forbidden");
  start(claiming(2));
  EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
  EXPECT_THAT(message("Planned"), HasSubstr("dra.enabled=true"));
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(DeviceClaims, ARightThatIsTakenAwayStopsNoModelWithoutAClaim) {
  cluster.serves_devices = true;
  start(claiming(2));
  refuse(templates, k8s::Failure::Forbidden, 403, "resourceclaimtemplates is forbidden");
  edit("/spec/devices/claim", Json());
  EXPECT_TRUE(cluster.is_true("Ready") && cluster.find("pods", "m-0-0-2"));
  EXPECT_THAT(cluster.model()["status"]["resourceClaimTemplates"], SizeIs(1)) << "it is removed once it may be";
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.all(templates), IsEmpty());
}

TEST_F(DeviceClaims, ASelectorThatTheApiServerRefusesIsReported) {
  cluster.serves_devices = true;
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.resource != claim_templates_resource || request.verb != k8s::Verb::Create) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Invalid, 422, "Invalid", "expression: compilation failed", 0};
  };
  start(claiming(2));
  EXPECT_THAT(message("Scheduled"), HasSubstr("the API server refuses it: expression: compilation failed"));
  EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
}

TEST_F(DeviceClaims, AConflictOrAFailureEndsTheReconcileAndTheNextOneGoesOn) {
  cluster.serves_devices = true;
  for (const auto failure : {k8s::Failure::Conflict, k8s::Failure::Transient}) {
    refuse(templates, failure, failure == k8s::Failure::Conflict ? 409 : 503, "try again");
    cluster.apply(claiming(2));
    for (int i = 0; i < 8; ++i) fake_operator.reconcile(), cluster.tick();
    EXPECT_FALSE(fake_operator.reconcile());
    EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
    cluster.refuse = nullptr;
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Ready"));
    cluster.remove_model();
    ASSERT_TRUE(fake_operator.settle());
  }
}

TEST_F(DeviceClaims, AForeignTemplateOfTheNameIsAConflictUntilItIsGone) {
  cluster.serves_devices = true;
  const DeviceClaim claim{"gpus", {}, ""};
  const std::string name = claim_template_of("m", claim, 2);
  cluster.put(templates, {{"metadata", {{"name", name}, {"namespace", "ns"}}}, {"spec", Json::object()}});
  start(claiming(2));
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_THAT(message("Stalled"), HasSubstr("ResourceClaimTemplate " + name + " exists"));
  EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
  edit("/spec/devices/claim", Json());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_TRUE(cluster.find(templates, name)) << "it is not removed, for it belongs to somebody else";
  EXPECT_FALSE(cluster.model()["status"].contains("resourceClaimTemplates"));
}

TEST_F(DeviceClaims, NamesInTheStatusThatAreNotOursAreDropped) {
  cluster.serves_devices = true;
  start(model_named("m", 2));
  cluster.edit([](Json& model) { model["status"]["resourceClaimTemplates"] = {"../pods", "other", 3, "m-devices-/"}; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.model()["status"].contains("resourceClaimTemplates"));
}

TEST_F(DeviceClaims, DevicesThatAreLackingAreKnownToTheSchedulerOnly) {
  cluster.serves_devices = true;
  cluster.devices = 1;
  start(claiming(2));
  EXPECT_EQ(cluster.reason("Scheduled"), "InsufficientDevices");
  EXPECT_THAT(message("Scheduled"),
              HasSubstr("needs 2 devices of DeviceClass gpus on one node; which devices of a "
                        "DeviceClass are free only the scheduler knows: see the events of pod m-0"));
  EXPECT_THAT(message("Scheduled"), HasSubstr("cannot allocate all claims"));
}

TEST_F(DeviceClaims, AnExtendedResourceOfADeviceClassIsNoLackOfADevicePlugin) {
  cluster.serves_devices = true;
  cluster.show_devices(0);
  cluster.devices = 1;
  start(model_named("m", 2));
  EXPECT_THAT(message("Scheduled"), HasSubstr("only the scheduler knows: see the events of pod m-0-0-1"));
  cluster.show_devices(1);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(message("Scheduled"), HasSubstr("free 1 of 1 on node-a"));
}

/// A model on GPUs whose nodes have no label and no device plugin.
class SlicePlans : public DeviceClaims {
 protected:
  SlicePlans() {
    Json node = *cluster.find("nodes", "node-a");
    node["metadata"]["labels"].erase("nvidia.com/gpu.memory");
    node["status"]["allocatable"].erase("nvidia.com/gpu");
    cluster.put("nodes", node, false);
  }
  static Json on_gpus(bool claims) {
    Json model = claims ? claiming(2) : model_named("m", 2);
    model["spec"]["devices"]["type"] = "GPU";
    model["spec"].erase("resources");
    return model;
  }
  std::string memory_source() const {
    const Json map = cluster.with_role("configmaps", "plan").at(0);
    return Json::parse(k8s::string_at(map, "/data/plan.json")).value("memorySource", "");
  }
};

TEST_F(SlicePlans, AnExtendedResourceNeedsNoClaim) {
  cluster.publish_devices(4, "80Gi");
  start(on_gpus(false));
  EXPECT_TRUE(cluster.is_true("Ready")) << message("Planned");
  EXPECT_EQ(memory_source(), "ResourceSlice");
  EXPECT_THAT(cluster.all(templates), IsEmpty());
  EXPECT_EQ(cluster.find("pods", "m-0-0-1")->at("spec")["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "2");
  EXPECT_EQ(logged("List deviceclasses"), 1u);
  EXPECT_EQ(logged("List resourceslices"), 1u) << "once per plan";
  edit("/spec/replicas", 2);
  EXPECT_EQ(logged("List"), 2u) << "a stored plan needs no inventory";
}

TEST_F(SlicePlans, AClaimNamesItsClassAndAChangeOfItPlansAgain) {
  cluster.publish_devices(4, "80Gi");
  cluster.publish_devices(4, "1Mi", "small");
  start(on_gpus(true));
  EXPECT_EQ(cluster.reason("Planned"), "DoesNotFit") << "both classes select both kinds of devices";
  edit("/spec/devices/claim/selectors", {"device.capacity['gpu.example.com'].memory.compareTo(quantity('1Gi')) >= 0"});
  EXPECT_TRUE(cluster.is_true("Ready")) << message("Planned");
  EXPECT_EQ(logged("List deviceclasses"), 0u);
  const std::string plan = cluster.model()["status"]["plan"]["planHash"];
  edit("/spec/devices/claim/deviceClassName", "small");
  EXPECT_GE(logged("Get deviceclasses small"), 1u);
  EXPECT_EQ(cluster.model()["status"]["plan"]["planHash"], plan) << "its selectors find the same devices";
}

TEST_F(SlicePlans, AnApiThatAppearsLaterIsSeenByThePeriod) {
  for (const bool claims : {false, true}) {
    SCOPED_TRACE(claims);
    start(on_gpus(claims));
    EXPECT_EQ(cluster.reason("Planned"), "DeviceMemoryUnknown");
    EXPECT_THAT(message("Planned"), HasSubstr("does not serve resource.k8s.io/v1"));
    EXPECT_LE(fake_operator.requeue.value(), std::chrono::seconds(60)) << "nothing of it is watched";
    const int writes = cluster.writes;
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_EQ(cluster.writes, writes);
    refuse("resourceslices", k8s::Failure::Forbidden, 403, "resourceslices is forbidden");
    cluster.publish_devices(4, "80Gi");
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_THAT(message("Planned"), HasSubstr("the controller may not list them; install the chart with dra.enabled"));
    cluster.refuse = nullptr;
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Ready")) << message("Planned");
    cluster.remove_model();
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_THAT(cluster.all(templates), IsEmpty());
    cluster.serves_devices = false;
  }
}

TEST_F(SlicePlans, AServerThatFailsIsAskedAgain) {
  cluster.publish_devices(4, "80Gi");
  refuse("resourceslices", k8s::Failure::Transient, 503, "try later");
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}}});
  cluster.apply(on_gpus(true));
  for (int i = 0; i < 8; ++i) fake_operator.reconcile(), cluster.tick();
  EXPECT_FALSE(fake_operator.reconcile()) << "an error, after which the queue tries again";
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(SlicePlans, AClassWithoutDevicesIsNamedInTheRefusal) {
  cluster.publish_devices(0, "80Gi");
  start(on_gpus(true));
  EXPECT_THAT(message("Planned"),
              HasSubstr("DeviceClass gpus selects no device of any ResourceSlice on admitted nodes"));
  edit("/spec/devices/claim/deviceClassName", "nowhere");
  EXPECT_THAT(message("Planned"), HasSubstr("there is no DeviceClass nowhere"));
}

TEST(ClaimSpec, ABadClaimIsNamed) {
  const auto parse = [](const Json& devices) {
    Json model = model_named("m");
    model["spec"]["devices"] = devices;
    return parse_spec(model);
  };
  const Json claim{{"deviceClassName", "gpus"}};
  EXPECT_EQ(parse({{"count", 1}, {"claim", claim}}).devices.resource, "") << "a claimed device is no extended resource";
  EXPECT_THROW((void)parse({{"count", 1}, {"resource", "a.io/b"}, {"claim", claim}}), std::invalid_argument);
  for (const Json& bad : {Json{{"selectors", {"true"}}}, Json{{"deviceClassName", "a/b"}}})
    EXPECT_THROW((void)parse({{"count", 1}, {"claim", bad}}), std::invalid_argument);
}

TEST(ClaimSpec, NamesOfTemplatesFitAndFollowTheirContent) {
  const DeviceClaim claim{"gpus", {}, ""};
  std::set<std::string> names;
  for (const DeviceClaim& one : {claim, DeviceClaim{"other", {}, ""}, DeviceClaim{"gpus", {"true"}, ""},
                                 DeviceClaim{"gpus", {}, "resource.kubernetes.io/pcieRoot"}}) {
    for (const int ranks : {1, 2}) names.insert(claim_template_of(std::string(40, 'm'), one, ranks));
  }
  EXPECT_THAT(names, SizeIs(8));
  for (const std::string& name : names) EXPECT_LE(name.size(), 63u);
}

TEST(ClaimSpec, ThePlanFollowsFromAClaimOnlyWhereItsDevicesAreTheMemory) {
  const auto hash = [](const Json& devices) {
    Json model = model_named("m");
    model["metadata"]["uid"] = "u";
    model["spec"]["devices"] = devices;
    return inputs_hash(parse_spec(model), parse_owner(model), "");
  };
  const Json one{{"deviceClassName", "a"}}, other{{"deviceClassName", "b"}},
      match{{"deviceClassName", "a"}, {"matchAttribute", "a/b"}};
  EXPECT_NE(hash({{"count", 1}, {"claim", one}}), hash({{"count", 1}, {"claim", other}}));
  EXPECT_EQ(hash({{"count", 1}, {"claim", one}}), hash({{"count", 1}, {"claim", match}}));
  EXPECT_EQ(hash({{"count", 1}, {"memory", 8}, {"claim", one}}), hash({{"count", 1}, {"memory", 8}}));
  EXPECT_EQ(hash({{"count", 1}, {"type", "CPU"}, {"claim", one}}), hash({{"count", 1}, {"type", "CPU"}}));
}

TEST(ClaimSpec, AStoreRetainsTheTemplateOfAPod) {
  Json pod{{"metadata", {{"name", "p"}}},
           {"spec", {{"resourceClaims", Json::array({{{"name", "devices"}, {"resourceClaimTemplateName", "t"}}})}}}};
  prune_pod(pod);
  EXPECT_EQ(pod_state(std::make_shared<const Json>(pod), Snapshot{}).claim_template, "t");
}

}  // namespace
}  // namespace pm::op::test
