// SPDX-License-Identifier: Apache-2.0
// Tests that an upgrade neither replaces running replicas nor plans again: pod hashes and input hashes of released
// versions must stay the same. An intended change needs a note in docs/tasks/operate.md and a new released.json, which
// PM_RELEASED_WRITE=1 writes with the current builders.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "controller/operator/api/object_text.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/children/pod_layout.h"
#include "controller/operator/planning/hardware.h"
#include "planner/model_metadata.h"
#include "tests/unit/controller/operator/simulator/fake_cluster.h"
#include "tests/unit/support/repository.h"

namespace pm::op::test {
namespace {

const std::string commit(40, 'c');

/// Returns specs that together set every part of a pod.
std::map<std::string, Json> specs() {
  std::map<std::string, Json> out;
  const Json plain = model_named("m")["spec"];
  Json left_out = plain;
  left_out.erase("resources"), left_out.erase("serving");
  out["little said"] = left_out;
  out["two ranks"] = plain;
  Json nodes = plain;
  nodes["devices"]["perNode"] = 1, nodes["replicas"] = 3;
  out["over two nodes"] = nodes;
  Json hub = plain;
  hub["model"] = {{"source", "hf://org/name"},
                  {"revision", commit},
                  {"tokenSecretRef", {{"name", "hf"}, {"key", "token"}}},
                  {"cache", {{"size", "3Gi"}, {"storageClassName", "fast"}, {"retain", true}}}};
  out["of the hub"] = hub;
  Json policy = plain;
  policy["model"]["policyRef"] = {{"name", "mine"}};
  out["with a user's policy"] = policy;
  Json spec = plain;
  spec["parallelism"] = {{"strategy", "Pipeline"}, {"microBatches", 4}};
  spec["precision"] = "F32", spec["objective"] = "Throughput", spec["shmSize"] = "1Gi";
  out["with wishes"] = spec;
  Json much = plain;
  much["scheduling"] = {
      {"nodeSelector", {{"zone", "a"}}},
      {"tolerations", Json::array({{{"operator", "Exists"}}})},
      {"schedulerName", "gang"},
      {"priorityClassName", "high"},
      {"runtimeClassName", "nvidia"},
      {"nodeAffinity",
       {{"requiredDuringSchedulingIgnoredDuringExecution",
         {{"nodeSelectorTerms",
           Json::array(
               {{{"matchExpressions", Json::array({{{"key", "a"}, {"operator", "In"}, {"values", {"b"}}}})}}})}}}}}};
  much["service"] = {{"port", 80}, {"apiKeySecretRef", {{"name", "keys"}}}, {"tlsSecretRef", {{"name", "tls"}}}};
  much["update"] = {{"drainSeconds", 30}}, much["failure"] = {{"hangTimeoutSeconds", 20}};
  much["worker"] = {
      {"image", "registry.example.com/worker:1"},
      {"imagePullPolicy", "Always"},
      {"imagePullSecrets", Json::array({{{"name", "pull"}}})},
      {"serviceAccountName", "account"},
      {"labels", {{"team", "a"}}},
      {"annotations", {{"note", "b"}}},
      {"extraArgs", {"--verbose"}},
      {"extraResources", {{"example.com/hca", 1}}},
      {"env", Json::array({{{"name", "A"}, {"value", "1"}},
                           {{"name", "B"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}})}};
  out["all that can be said of pods"] = much;
  return out;
}

Json released(const std::string& what, const Json& spec_json) {
  Json model = model_named("m");
  model["metadata"]["uid"] = "uid-1", model["metadata"]["generation"] = 1, model["spec"] = spec_json;
  const Spec spec = parse_spec(model);
  Json metadata_json = small_metadata();
  if (spec.source.hub) metadata_json["revision"] = commit;
  const ModelMetadata metadata = metadata_from_json(metadata_json);
  const Decision decision =
      decide(metadata, {.kind = spec.devices.kind, .devices = spec.devices.count, .device_memory = int64_t{2} << 30},
             planner_constraints(spec));
  if (!decision.plan) throw std::logic_error(what + ": " + decision.refusal->message);
  const std::optional<Policy> policy =
      spec.policy_ref ? std::optional(Policy{"m-policy-copy", "mine.yaml"}) : std::nullopt;
  return {{"what", what},
          {"model", model},
          {"configMap",
           plan_config_map(parse_owner(model), spec, metadata, *decision.plan, "parallelmodel-worker:1", policy)}};
}

std::filesystem::path released_objects() {
  return pm::test::repository() / "tests/unit/controller/operator/released.json";
}

std::string short_hash(const Json& one) {
  const Spec spec = parse_spec(one["model"]);
  const StoredPlan stored = stored_plan(one["configMap"]);
  const PodLayout layout = make_pod_layout(spec, stored.plan);
  const Owner owner = parse_owner(one["model"]);
  const Settings worker = settings();
  return pod_hash_of({owner, spec, stored, layout, worker});
}

TEST(Released, WhatAnOlderControllerPlannedHashesToTheSamePods) {
  if (std::getenv("PM_RELEASED_WRITE")) {
    Json all = Json::array();
    for (const auto& [what, spec] : specs()) {
      Json one = released(what, spec);
      one["podHash"] = short_hash(one);
      all.push_back(std::move(one));
    }
    std::ofstream(released_objects()) << all.dump(1) << "\n";
  }
  const Json all = Json::parse(std::ifstream(released_objects()));
  EXPECT_EQ(all.size(), specs().size());
  for (const Json& one : all) {
    SCOPED_TRACE(one["what"].get<std::string>());
    EXPECT_EQ(short_hash(one), one["podHash"].get<std::string>())
        << "this controller would replace every replica that runs";
    const Spec spec = parse_spec(one["model"]);
    const Owner owner = parse_owner(one["model"]);
    const auto policy = policy_from_text(k8s::string_at(one["configMap"], "/data/policy"));
    const std::string copy = policy ? policy->copy : "";
    EXPECT_EQ(inputs_hash(spec, owner, copy), annotation_of(one["configMap"], annotation::inputs))
        << "this controller would plan again";
    EXPECT_EQ(source_hash(spec, owner, copy), annotation_of(one["configMap"], annotation::source))
        << "this controller would inspect the checkpoint again";
  }
}

}  // namespace
}  // namespace pm::op::test
