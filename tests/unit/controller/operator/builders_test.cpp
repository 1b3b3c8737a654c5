// SPDX-License-Identifier: Apache-2.0
// Tests the builders of children field by field, including replicas over two nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/object_text.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/children/pod_parts.h"
#include "tests/unit/controller/operator/built_pods.h"

namespace pm::op::test {
namespace {

using testing::Contains;
using testing::Not;

TEST(Builders, AReplicaPodIsExactlyThis) {
  const Made made(owned_model());
  Json wanted = Json::parse(R"({
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
      "name": "m-1-0-7", "namespace": "ns",
      "annotations": {"parallelmodel.dev/nodes": "1"},
      "labels": {"app.kubernetes.io/component": "worker", "app.kubernetes.io/instance": "m", "app.kubernetes.io/managed-by": "parallelmodel-controller",
                 "app.kubernetes.io/name": "parallelmodel", "parallelmodel.dev/replica": "1", "parallelmodel.dev/replica-generation": "7", "parallelmodel.dev/name": "m",
                 "parallelmodel.dev/node-rank": "0", "parallelmodel.dev/pod-hash": "hash", "parallelmodel.dev/role": "worker"},
      "ownerReferences": [{"apiVersion": "parallelmodel.dev/v1alpha1", "kind": "ParallelModel", "name": "m", "uid": "uid-1", "controller": true, "blockOwnerDeletion": true}]},
    "spec": {
      "restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 75,
      "hostname": "m-1-0-7", "subdomain": "m-ranks",
      "topologySpreadConstraints": [
        {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"parallelmodel.dev/name": "m", "parallelmodel.dev/node-rank": "0"}}},
        {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"parallelmodel.dev/name": "m", "parallelmodel.dev/node-rank": "0"}}}],
      "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
      "containers": [{
        "name": "worker", "image": "parallelmodel-worker:1", "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": ["serve", "--plan", "/etc/parallelmodel/plan.json", "--model", "/model/gpt2", "--served-model-name", "m", "--nodes", "1", "--node-rank", "0",
                 "--rendezvous", "m-1-0-7.m-ranks.ns.svc:29500", "--replica-generation", "7", "--port", "8000", "--admin-port", "8001",
                 "--max-sequence-length", "256", "--max-concurrency", "4", "--max-queue", "16", "--hang-timeout", "60", "--drain-seconds", "60"],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "ports": [{"name": "admin", "containerPort": 8001}, {"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "admin"}, "periodSeconds": 10, "failureThreshold": 3, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "nvidia.com/gpu": "2"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "model", "mountPath": "/model", "readOnly": true}, {"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"},
                         {"name": "plan", "mountPath": "/etc/parallelmodel", "readOnly": true}]}],
      "volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": true}}, {"name": "tmp", "emptyDir": {}},
                  {"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "plan", "configMap": {}}]}})");
  const std::string shm = std::to_string(made.layout.shm >> 20) + "Mi",
                    memory = std::to_string(4096 + (made.layout.shm >> 20)) + "Mi";
  wanted["metadata"]["annotations"]["parallelmodel.dev/plan"] = made.stored.name;
  wanted["spec"]["volumes"][2]["emptyDir"]["sizeLimit"] = shm;
  wanted["spec"]["volumes"][3]["configMap"]["name"] = made.stored.name;
  for (const char* kind : {"requests", "limits"}) wanted["spec"]["containers"][0]["resources"][kind]["memory"] = memory;
  EXPECT_EQ(made.pod(1, 0, 7), wanted) << Json::diff(wanted, made.pod(1, 0, 7)).dump(1);
  EXPECT_GE(made.layout.shm, made.stored.plan.shm_bytes);
}

TEST(Builders, AReplicaOverTwoNodesHasOnePodEachAndOneMeetingPlace) {
  auto model = owned_model(3);
  model["spec"]["resources"] = Json::object();
  const Made made(model, 2);
  EXPECT_THAT(made.layout.ranks, testing::ElementsAre(2, 1)) << "the last node may hold fewer";
  EXPECT_EQ(made.layout.node_of(1), 0);
  EXPECT_EQ(made.layout.node_of(2), 1);
  const Json first = made.pod(0, 0, 4), second = made.pod(0, 1, 4);
  EXPECT_EQ(first["metadata"]["name"], "m-0-0-4");
  EXPECT_EQ(second["metadata"]["name"], "m-0-1-4");
  const auto arguments = [](const Json& pod) {
    return pod["spec"]["containers"][0]["args"].get<std::vector<std::string>>();
  };
  const auto value = [&](const Json& pod, const std::string& name) {
    const auto all = arguments(pod);
    return *(std::find(all.begin(), all.end(), name) + 1);
  };
  for (const Json& pod : {first, second}) {
    EXPECT_EQ(value(pod, "--nodes"), "2");
    EXPECT_EQ(value(pod, "--rendezvous"), "m-0-0-4.m-ranks.ns.svc:29500")
        << "the hostname of node-rank 0 under the headless Service";
    EXPECT_EQ(pod["spec"]["subdomain"], "m-ranks");
    EXPECT_EQ(pod["spec"]["hostname"], pod["metadata"]["name"]);
    EXPECT_EQ(annotation_of(pod, annotation::nodes), "2");
    EXPECT_EQ(pod["spec"]["affinity"]["podAntiAffinity"],
              Json::parse(R"({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"parallelmodel.dev/name": "m", "parallelmodel.dev/replica": "0", "parallelmodel.dev/replica-generation": "4"}}}}]})"));
    EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1")
        << "half a core for each of the two ranks of the fuller pod";
  }
  EXPECT_EQ(first["spec"]["topologySpreadConstraints"].size(), 2u) << "replicas are spread by their first pods";
  EXPECT_FALSE(first["spec"]["affinity"].contains("podAffinity"));
  EXPECT_FALSE(second["spec"].contains("topologySpreadConstraints"));
  EXPECT_EQ(at(second,
               "/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/"
               "topologyKey"),
            "topology.kubernetes.io/zone")
      << "and the other pods follow theirs";
  EXPECT_EQ(value(first, "--node-rank"), "0");
  EXPECT_EQ(value(second, "--node-rank"), "1");
  EXPECT_EQ(first["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "2");
  EXPECT_EQ(second["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");
  EXPECT_EQ(first["spec"]["containers"][0]["ports"].size(), 2u);
  EXPECT_EQ(second["spec"]["containers"][0]["ports"].size(), 1u) << "only node-rank 0 serves HTTP";
  EXPECT_EQ(disruption_budget(made.owner, parse_spec(owned_model(3, 2)), 2, false).value()["spec"]["minAvailable"], 3);
}

Json model_on_gpus(int devices) {
  Json model = owned_model(devices);
  model["spec"]["devices"] = {{"count", devices}, {"type", "GPU"}};
  model["spec"]["resources"] = Json::object();
  return model;
}

TEST(Builders, APodWithGpusAsksForOnePerRankAndForNoPrivilege) {
  const Made made(model_on_gpus(2));
  const Json pod = made.pod();
  const Json& container = pod["spec"]["containers"][0];
  const auto args = container["args"].get<std::vector<std::string>>();
  const auto device = std::find(args.begin(), args.end(), "--device");
  ASSERT_NE(device, args.end());
  EXPECT_EQ(*(device + 1), "cuda");
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], "2");
  EXPECT_EQ(container["resources"]["limits"]["memory"], std::to_string(10 * 1024 + (made.layout.shm >> 20)) + "Mi")
      << "4 GiB of the host for each rank's CUDA, 2 for the pod, and /dev/shm";
  EXPECT_THAT(container["env"].get<std::vector<Json>>(), Not(Contains(Contains(Json("NVIDIA_VISIBLE_DEVICES")))))
      << "the device plugin says which";
  EXPECT_EQ(container["securityContext"], Json({{"allowPrivilegeEscalation", false},
                                                {"readOnlyRootFilesystem", true},
                                                {"capabilities", {{"drop", {"ALL"}}}}}));
  EXPECT_EQ(made.layout.shm, made.stored.plan.shm_bytes + (256 << 20)) << "room for NCCL";
  EXPECT_EQ(Made(model_on_gpus(1)).layout.shm, Made(model_on_gpus(1)).stored.plan.shm_bytes)
      << "one rank has nobody to talk to";
}

TEST(Builders, WeightsThatStayInTheHostsMemoryAreInWhatAPodAsksFor) {
  const Made made(model_on_gpus(3), 2);
  const auto memory = [&](Residency from, int64_t host) {
    Plan plan = made.stored.plan;
    plan.gathering = Gathering{from, 1 << 20, host};
    return make_pod_layout(made.spec, plan).memory;
  };
  EXPECT_EQ(memory(Residency::HostMemory, 5 << 20) - made.layout.memory, 2 * (5 << 20))
      << "of each rank of the fuller pod";
  EXPECT_EQ(memory(Residency::HostMemory, (5 << 20) + 1) - made.layout.memory, 2 * (6 << 20)) << "in whole MiB";
  EXPECT_EQ(memory(Residency::File, 0), made.layout.memory);
}

TEST(Builders, AResourceOfAnotherNameIsAskedForInItsPlace) {
  Json model = model_on_gpus(2);
  model["spec"]["devices"]["resource"] = "nvidia.com/mig-3g.40gb";
  const Json limits = Made(model).pod()["spec"]["containers"][0]["resources"]["limits"];
  EXPECT_EQ(limits["nvidia.com/mig-3g.40gb"], "2");
  EXPECT_FALSE(limits.contains("nvidia.com/gpu"));
}

TEST(Builders, ReplicasOnGpusRunTheCudaImageAndWhatTakesNoDeviceTheOther) {
  Settings both = settings();
  both.worker_cuda_image = "parallelmodel-worker-cuda:1";
  const Spec gpus = parse_spec(model_on_gpus(2)), cpus = parse_spec(owned_model());
  EXPECT_EQ(default_replica_image(gpus, both), "parallelmodel-worker-cuda:1");
  EXPECT_EQ(default_replica_image(gpus, settings()), "parallelmodel-worker:1") << "where there is one image for all";
  EXPECT_EQ(default_replica_image(cpus, both), "parallelmodel-worker:1");
  EXPECT_EQ(inspect_pod(parse_owner(model_on_gpus(2)), gpus, both, std::nullopt)["spec"]["containers"][0]["image"],
            "parallelmodel-worker:1");
  Json own = model_on_gpus(2);
  own["spec"]["worker"]["image"] = "mine:2";
  EXPECT_EQ(default_replica_image(parse_spec(own), both), "parallelmodel-worker-cuda:1")
      << "what a plan keeps for the day when the spec names none any more";
  EXPECT_EQ(Made(own).pod()["spec"]["containers"][0]["image"], "mine:2");
}

TEST(Builders, TheInspectPodTakesNoDevice) {
  const Made made(owned_model());
  const Json pod = inspect_pod(made.owner, made.spec, made.worker, std::nullopt);
  const Json& container = pod["spec"]["containers"][0];
  EXPECT_EQ(pod["metadata"]["name"], "m-inspect-3");
  EXPECT_EQ(container["args"],
            Json({"inspect", "--model", "/model/gpt2", "--termination-message", "/dev/termination-log"}));
  EXPECT_FALSE(container["resources"]["limits"].contains("nvidia.com/gpu"));
  EXPECT_THAT(container["env"].get<std::vector<Json>>(),
              Contains(Json{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}}));
  EXPECT_EQ(pod["spec"]["securityContext"]["runAsNonRoot"], true);
  EXPECT_FALSE(pod["metadata"]["labels"].contains(label::replica)) << "Services and budgets must not count it";
}

TEST(Builders, WhatPeopleAddReachesBothKindsOfPods) {
  auto model = owned_model();
  model["metadata"]["annotations"][annotation::restarted_at] = "today";
  model["spec"]["scheduling"] = {{"nodeSelector", {{"a", "b"}}},
                                 {"tolerations", {{{"key", "k"}, {"operator", "Exists"}}}},
                                 {"schedulerName", "s"},
                                 {"priorityClassName", "p"},
                                 {"runtimeClassName", "r"}};
  model["spec"]["worker"] = {
      {"image", "mine"},
      {"imagePullPolicy", "Never"},
      {"imagePullSecrets", {{{"name", "x"}}}},
      {"serviceAccountName", "sa"},
      {"labels", {{"team", "t"}, {"parallelmodel.dev/role", "evil"}}},
      {"annotations", {{"n", "v"}}},
      {"env", {{{"name", "A"}, {"value", "1"}}, {{"name", "B"}, {"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}},
      {"extraResources", {{"rdma/hca", 1}}},
      {"extraArgs", {"--verbose"}}};
  const Made made(model);
  for (const Json& pod : {made.pod(), inspect_pod(made.owner, made.spec, made.worker, std::nullopt)}) {
    const Json& spec = pod["spec"];
    EXPECT_EQ(spec["nodeSelector"], Json({{"a", "b"}}));
    EXPECT_EQ(spec["tolerations"][0]["key"], "k");
    EXPECT_EQ(spec["schedulerName"], "s");
    EXPECT_EQ(spec["priorityClassName"], "p");
    EXPECT_EQ(spec["runtimeClassName"], "r");
    EXPECT_EQ(spec["serviceAccountName"], "sa");
    EXPECT_EQ(spec["automountServiceAccountToken"], false);
    EXPECT_EQ(spec["containers"][0]["image"], "mine");
    EXPECT_EQ(spec["containers"][0]["imagePullPolicy"], "Never");
    EXPECT_EQ(spec["imagePullSecrets"][0]["name"], "x");
    EXPECT_EQ(spec["containers"][0]["env"][2]["valueFrom"]["secretKeyRef"]["key"], "k");
    EXPECT_NE(pod["metadata"]["labels"]["parallelmodel.dev/role"], "evil");
    EXPECT_EQ(annotation_of(pod, annotation::restarted_at), "today");
  }
  EXPECT_EQ(made.pod()["metadata"]["labels"]["team"], "t");
  EXPECT_EQ(made.pod()["metadata"]["annotations"]["n"], "v");
  const Json inspects = inspect_pod(made.owner, made.spec, made.worker, std::nullopt);
  EXPECT_FALSE(inspects["metadata"]["labels"].contains("team")) << "a queue that counts the pods would miscount";
  EXPECT_FALSE(inspects["metadata"]["annotations"].contains("n"));
  EXPECT_EQ(made.pod()["spec"]["containers"][0]["args"].back(), "--verbose");
  EXPECT_EQ(made.pod()["spec"]["containers"][0]["resources"]["limits"]["rdma/hca"], 1);
}

TEST(Builders, TheSecretsOfTheApiAreMountedByNameWhereItIsServed) {
  auto model = owned_model(3);
  model["spec"]["resources"] = Json::object();
  model["spec"]["service"] = {{"apiKeySecretRef", {{"name", "keys"}}}, {"tlsSecretRef", {{"name", "cert"}}}};
  const Made made(model, 2);
  const Json pod = made.pod(0, 0);
  const auto& container = pod["spec"]["containers"][0];
  const auto args = container["args"].get<std::vector<std::string>>();
  const auto value = [&](const std::string& flag) { return *(std::find(args.begin(), args.end(), flag) + 1); };
  EXPECT_EQ(value("--api-keys-dir"), "/etc/parallelmodel-keys");
  EXPECT_EQ(value("--tls-cert"), "/etc/parallelmodel-tls/tls.crt");
  EXPECT_EQ(value("--tls-key"), "/etc/parallelmodel-tls/tls.key");
  const Json keys = Json::parse(R"({"name": "api-keys", "secret": {"secretName": "keys", "optional": false}})");
  const Json cert = Json::parse(
      R"({"name": "tls", "secret": {"secretName": "cert", "optional": false, "items": [{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]}})");
  EXPECT_THAT(pod["spec"]["volumes"].get<std::vector<Json>>(), testing::AllOf(Contains(keys), Contains(cert)));
  EXPECT_THAT(
      container["volumeMounts"].get<std::vector<Json>>(),
      Contains(Json::parse(R"({"name": "api-keys", "mountPath": "/etc/parallelmodel-keys", "readOnly": true})")));
  EXPECT_THAT(container["volumeMounts"].get<std::vector<Json>>(),
              Contains(Json::parse(R"({"name": "tls", "mountPath": "/etc/parallelmodel-tls", "readOnly": true})")));
  for (const char* probe : {"readinessProbe", "livenessProbe"}) {
    EXPECT_EQ(container[probe]["httpGet"]["port"], "admin") << "plain HTTP without a key";
    EXPECT_FALSE(container[probe]["httpGet"].contains("scheme"));
  }
  for (const Json& other : {made.pod(0, 1), inspect_pod(made.owner, made.spec, made.worker, std::nullopt)}) {
    EXPECT_EQ(other.dump().find("secretName"), std::string::npos) << "no API, no Secret";
    EXPECT_EQ(other.dump().find("--api-keys-dir"), std::string::npos);
  }
  EXPECT_EQ(endpoint_of(made.owner.key, 8000, true), "https://m.ns.svc:8000");
  EXPECT_EQ(endpoint_of(made.owner.key, 8000, false), "http://m.ns.svc:8000");
}

TEST(Builders, OnlyWhatPodsAreMadeOfMovesTheirHash) {
  const auto hash = [](const std::function<void(Json&)>& change) {
    Json model = owned_model();
    change(model);
    const Made made(model);
    return pod_hash_of(made.inputs());
  };
  const std::string usual = hash([](Json&) {});
  EXPECT_EQ(usual.size(), 10u);
  const std::vector<std::function<void(Json&)>> silent{
      [](Json& m) { m["spec"]["replicas"] = 5; },
      [](Json& m) { m["spec"]["update"]["maxUnavailable"] = 3; },
      [](Json& m) {
        m["spec"]["failure"] = {{"maxRestarts", 1},
                                {"windowSeconds", 5},
                                {"backoffBaseSeconds", 1},
                                {"backoffMaxSeconds", 2},
                                {"startSeconds", 9}};
      },
      [](Json& m) { m["spec"]["service"] = {{"port", 80}, {"type", "NodePort"}}; },
      [](Json& m) { m["metadata"]["generation"] = 99; },
      [](Json& m) { m["metadata"]["uid"] = "other"; }};
  for (const auto& change : silent) EXPECT_EQ(hash(change), usual);
  const std::vector<std::function<void(Json&)>> loud{
      [](Json& m) { m["spec"]["worker"]["image"] = "b"; },
      [](Json& m) { m["spec"]["failure"]["hangTimeoutSeconds"] = 5; },
      [](Json& m) { m["spec"]["update"]["drainSeconds"] = 5; },
      [](Json& m) { m["spec"]["resources"]["memory"] = "5Gi"; },
      [](Json& m) { m["spec"]["devices"]["count"] = 4; },
      [](Json& m) { m["spec"]["serving"]["maxQueue"] = 5; },
      [](Json& m) { m["spec"]["shmSize"] = "1Gi"; },
      [](Json& m) { m["spec"]["service"]["apiKeySecretRef"]["name"] = "keys"; },
      [](Json& m) { m["spec"]["service"]["tlsSecretRef"]["name"] = "cert"; },
      [](Json& m) { m["metadata"]["annotations"][annotation::restarted_at] = "x"; }};
  for (const auto& change : loud) EXPECT_NE(hash(change), usual);
}

TEST(Builders, AConfigMapGivesFactsAndPlanBack) {
  const Made made(owned_model());
  const ModelMetadata metadata = metadata_from_json(small_metadata());
  const Json map = plan_config_map(made.owner, made.spec, metadata, made.stored.plan, "image:1", std::nullopt);
  EXPECT_EQ(map["immutable"], true);
  EXPECT_EQ(map["metadata"]["name"], "m-plan-" + made.stored.hash);
  EXPECT_EQ(stored_metadata(map), metadata);
  EXPECT_EQ(to_json(stored_plan(map).plan), to_json(made.stored.plan));
  EXPECT_EQ(stored_plan(map).image, "image:1");
  Json broken = map;
  broken["data"]["plan.json"] = "{";
  EXPECT_THROW((void)stored_plan(broken), std::invalid_argument);
}

/// Returns the ConfigMap that a policyRef names.
k8s::Response user_map(const Json& data) {
  return Json{{"metadata", {{"name", "mine"}, {"namespace", "ns"}}}, {"data", data}};
}

TEST(Builders, AUsersPolicyIsCopiedAndBothKindsOfPodsReadTheCopy) {
  const Owner owner = parse_owner(owned_model());
  const PolicyAnswer answer = parse_policy(owner, {"mine", ""}, user_map({{"story.yaml", "model_type: story"}}));
  ASSERT_TRUE(answer.policy);
  EXPECT_EQ(answer.policy->file, "story.yaml");
  const Json copy = policy_copy(owner, answer);
  EXPECT_EQ(copy["metadata"]["name"], answer.policy->copy);
  EXPECT_EQ(copy["immutable"], true);
  EXPECT_EQ(copy["data"], Json({{"story.yaml", "model_type: story"}}));
  EXPECT_EQ(copy["metadata"]["ownerReferences"][0]["uid"], "uid-1");

  const Made made(owned_model(), 1, answer.policy), plain(owned_model());
  for (const Json& pod : {made.pod(), inspect_pod(made.owner, made.spec, made.worker, answer.policy)}) {
    const auto args = pod["spec"]["containers"][0]["args"].get<std::vector<std::string>>();
    const auto flag = std::find(args.begin(), args.end(), "--policy");
    ASSERT_NE(flag, args.end());
    EXPECT_EQ(*(flag + 1), "/policy/story.yaml");
    EXPECT_THAT(pod["spec"]["volumes"].get<std::vector<Json>>(),
                Contains(Json{{"name", "policy"}, {"configMap", {{"name", answer.policy->copy}}}}));
    EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"].get<std::vector<Json>>(),
                Contains(Json{{"name", "policy"}, {"mountPath", "/policy"}, {"readOnly", true}}));
    EXPECT_EQ(annotation_of(pod, annotation::policy), answer.policy->copy);
  }
  EXPECT_EQ(made.stored.policy->copy, answer.policy->copy);
  EXPECT_NE(made.stored.name, plain.stored.name) << "the same plan by another policy is another plan";
  EXPECT_NE(pod_hash_of(made.inputs()), pod_hash_of(plain.inputs()));
  EXPECT_THAT(plain.pod().dump(), Not(testing::HasSubstr("policy"))) << "a model without one is rendered as ever";
}

TEST(Builders, OnlyFileAndContentsNameTheCopyOfAPolicy) {
  const Owner owner = parse_owner(owned_model());
  const auto name = [&](const PolicyRef& ref, const Json& data) {
    return parse_policy(owner, ref, user_map(data)).policy->copy;
  };
  const std::string usual = name({"mine", ""}, {{"a.yaml", "x"}});
  EXPECT_EQ(name({"other", "a.yaml"}, {{"a.yaml", "x"}, {"b.yaml", "y"}}), usual);
  EXPECT_NE(name({"mine", ""}, {{"a.yaml", "x "}}), usual);
  EXPECT_NE(name({"mine", ""}, {{"b.yaml", "x"}}), usual);
}

TEST(Builders, WhatIsMissingOfAPolicyIsNamed) {
  const Owner owner = parse_owner(owned_model());
  const auto missing = [&](const PolicyRef& ref, const k8s::Response& answer) {
    const PolicyAnswer found = parse_policy(owner, ref, answer);
    EXPECT_FALSE(found.policy);
    return found.missing;
  };
  const auto error = [](k8s::Failure failure, const char* message) {
    return k8s::ApiError{failure, 400, "", message, 0};
  };
  using testing::HasSubstr;
  EXPECT_THAT(missing({"mine", ""}, error(k8s::Failure::NotFound, "")),
              HasSubstr("ConfigMap mine of spec.model.policyRef is not in namespace ns"));
  EXPECT_THAT(missing({"mine", ""}, error(k8s::Failure::Forbidden, "not yours")),
              HasSubstr("cannot be read: not yours"));
  EXPECT_THAT(missing({"mine", "c"}, user_map({{"a", "x"}, {"b", "y"}})),
              HasSubstr("ConfigMap mine has no key c (spec.model.policyRef.key); it has a, b"));
  EXPECT_THAT(missing({"mine", ""}, user_map({{"a", "x"}, {"b", "y"}})),
              HasSubstr("has the keys a, b; set spec.model.policyRef.key"));
  EXPECT_THAT(missing({"mine", ""}, user_map(Json::object())), HasSubstr("holds no text"));
  EXPECT_THAT(missing({"mine", ""}, user_map(nullptr)), HasSubstr("holds no text"));
  EXPECT_THAT(missing({"mine", "a"}, user_map({{"a", ""}})), HasSubstr("key a is empty"));
  EXPECT_THAT(missing({"mine", "a"}, user_map({{"a", std::string(200 << 10, 'x')}})),
              HasSubstr("a policy has at most 128.0 KiB"));
}

TEST(Builders, MemoryIsWhatThePlanNeedsWhenNobodySays) {
  auto model = owned_model(2);
  model["spec"].erase("resources");
  const Made made(model);
  int64_t predicted = 0;
  for (const RankPlan& rank : made.stored.plan.ranks) predicted += rank.predicted.total();
  EXPECT_GE(made.layout.memory, predicted + made.layout.shm);
  EXPECT_LE(made.layout.memory, predicted + made.layout.shm + (int64_t{600} << 20));
  EXPECT_FALSE(made.layout.cpu_limit_milli);
}

TEST(Builders, ServicesAndBudgetSelectWorkersOnly) {
  const Made made(owned_model(2, 3));
  const Json http = http_service(made.owner, made.spec), ranks = ranks_service(made.owner),
             budget = disruption_budget(made.owner, made.spec, 1, false).value();
  EXPECT_EQ(http["spec"]["selector"], Json({{"parallelmodel.dev/name", "m"},
                                            {"parallelmodel.dev/role", "worker"},
                                            {"parallelmodel.dev/node-rank", "0"}}));
  EXPECT_EQ(http["spec"]["ports"], Json::array({{{"name", "http"}, {"port", 8000}, {"targetPort", "http"}}}));
  EXPECT_EQ(ranks["metadata"]["name"], "m-ranks");
  EXPECT_EQ(ranks["spec"]["clusterIP"], "None");
  EXPECT_EQ(ranks["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(budget["spec"]["minAvailable"], 2);
  EXPECT_EQ(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
  EXPECT_EQ(budget["spec"]["selector"]["matchLabels"]["parallelmodel.dev/role"], "worker");
}

TEST(Builders, NamesOfTheModelTakeThePlaceOfTheObjectsName) {
  auto model = owned_model();
  model["spec"]["serving"]["modelNames"] = {"stories", "org/stories:v2"};
  const auto arguments = Made(model).pod()["spec"]["containers"][0]["args"].get<std::vector<std::string>>();
  std::vector<std::string> names;
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--served-model-name") names.push_back(arguments[i + 1]);
  }
  EXPECT_THAT(names, testing::ElementsAre("stories", "org/stories:v2"));
}

TEST(Builders, AServiceTakesWhatLoadBalancersNeed) {
  auto model = owned_model();
  EXPECT_FALSE(http_service(parse_owner(model), parse_spec(model))["metadata"].contains("annotations"));
  model["spec"]["service"] = {{"type", "LoadBalancer"},
                              {"loadBalancerClass", "internal"},
                              {"externalTrafficPolicy", "Local"},
                              {"annotations", {{"cloud/lb", "x"}}}};
  const Json service = http_service(parse_owner(model), parse_spec(model));
  EXPECT_EQ(service["spec"]["loadBalancerClass"], "internal");
  EXPECT_EQ(service["spec"]["externalTrafficPolicy"], "Local");
  EXPECT_EQ(service["metadata"]["annotations"]["cloud/lb"], "x");
}

TEST(Builders, ABudgetThatProtectsNothingIsNone) {
  const Made made(owned_model(2, 1));
  bool protects = false;
  const auto budget = [&](int replicas, int unavailable, int nodes) {
    Json model = owned_model(2, replicas);
    model["spec"]["update"]["maxUnavailable"] = unavailable;
    return disruption_budget(made.owner, parse_spec(model), nodes, protects);
  };
  EXPECT_FALSE(budget(0, 1, 1));
  EXPECT_FALSE(budget(1, 1, 1));
  EXPECT_FALSE(budget(1, 0, 1)) << "a drain must be able to go on";
  EXPECT_FALSE(budget(3, 3, 1));
  EXPECT_EQ(budget(3, 2, 1).value()["spec"]["minAvailable"], 1);
  EXPECT_EQ(budget(1, 1, 2).value()["spec"]["minAvailable"], 1);
  protects = true;
  EXPECT_FALSE(budget(0, 1, 1));
  EXPECT_EQ(budget(1, 1, 1).value()["spec"]["minAvailable"], 1);
  EXPECT_EQ(budget(3, 2, 2).value()["spec"]["minAvailable"], 6);
}

}  // namespace
}  // namespace pm::op::test
