// What an older controller left in a cluster: ParallelModels with their stored plans, and what their pods hashed to. A controller that finds another hash replaces every
// group that runs, and one that finds other hashes of wishes plans anew; an upgrade must do neither. A change that means to is a note in docs/operations.md and a new
// file: PM_RELEASED_WRITE=1 makes released.json of what the present builders make.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "controller/operator/desired.h"
#include "controller/operator/hardware.h"
#include "controller/operator/layout.h"
#include "controller/operator/text.h"
#include "fake_cluster.h"
#include "planner/facts.h"

namespace pm::op::test {
namespace {

const std::string commit(40, 'c');

/// Specs that reach every part of a pod.
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
  hub["model"] = {{"source", "hf://org/name"}, {"revision", commit}, {"tokenSecretRef", {{"name", "hf"}, {"key", "token"}}}, {"cache", {{"size", "3Gi"}, {"storageClassName", "fast"}, {"retain", true}}}};
  out["of the hub"] = hub;
  Json policy = plain;
  policy["model"]["policyRef"] = {{"name", "mine"}};
  out["with a user's policy"] = policy;
  Json wishes = plain;
  wishes["parallelism"] = {{"strategy", "Pipeline"}, {"microBatches", 4}};
  wishes["precision"] = "F32", wishes["objective"] = "Throughput", wishes["shmSize"] = "1Gi";
  out["with wishes"] = wishes;
  Json much = plain;
  much["scheduling"] = {{"nodeSelector", {{"zone", "a"}}}, {"tolerations", Json::array({{{"operator", "Exists"}}})}, {"schedulerName", "gang"}, {"priorityClassName", "high"}, {"runtimeClassName", "nvidia"},
                        {"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution",
                                           {{"nodeSelectorTerms", Json::array({{{"matchExpressions", Json::array({{{"key", "a"}, {"operator", "In"}, {"values", {"b"}}}})}}})}}}}}};
  much["service"] = {{"port", 80}, {"apiKeySecretRef", {{"name", "keys"}}}, {"tlsSecretRef", {{"name", "tls"}}}};
  much["update"] = {{"drainSeconds", 30}}, much["failure"] = {{"hangTimeoutSeconds", 20}};
  much["worker"] = {{"image", "registry.example.com/worker:1"}, {"imagePullPolicy", "Always"}, {"imagePullSecrets", Json::array({{{"name", "pull"}}})}, {"serviceAccountName", "account"},
                    {"labels", {{"team", "a"}}}, {"annotations", {{"note", "b"}}}, {"extraArgs", {"--verbose"}}, {"extraResources", {{"example.com/hca", 1}}},
                    {"env", Json::array({{{"name", "A"}, {"value", "1"}}, {{"name", "B"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}})}};
  out["all that can be said of pods"] = much;
  return out;
}

Json released(const std::string& what, const Json& wishes) {
  Json model = model_named("m");
  model["metadata"]["uid"] = "uid-1", model["metadata"]["generation"] = 1, model["spec"] = wishes;
  const Spec spec = spec_of(model);
  Json facts_json = small_facts();
  if (spec.source.hub) facts_json["revision"] = commit;
  const Facts facts = facts_from_json(facts_json);
  const Decision decision = decide(facts, {.kind = spec.devices.kind, .devices = spec.devices.count, .device_memory = int64_t{2} << 30}, wishes_of(spec));
  if (!decision.plan) throw std::logic_error(what + ": " + decision.refusal->message);
  const std::optional<Policy> policy = spec.policy_ref ? std::optional(Policy{"m-policy-copy", "mine.yaml"}) : std::nullopt;
  return {{"what", what}, {"model", model}, {"configMap", plan_config_map(owner_of(model), spec, facts, *decision.plan, "parallelmodel-worker:1", policy)}};
}

std::string hash_of(const Json& one) {
  const Spec spec = spec_of(one["model"]);
  const StoredPlan stored = stored_plan(one["configMap"]);
  const Layout layout = layout_of(spec, stored.plan);
  const Owner owner = owner_of(one["model"]);
  const Settings worker = settings();
  return pod_hash_of({owner, spec, stored, layout, worker});
}

TEST(Released, WhatAnOlderControllerPlannedHashesToTheSamePods) {
  if (std::getenv("PM_RELEASED_WRITE")) {
    Json all = Json::array();
    for (const auto& [what, wishes] : specs()) {
      Json one = released(what, wishes);
      one["podHash"] = hash_of(one);
      all.push_back(std::move(one));
    }
    std::ofstream(PM_RELEASED) << all.dump(1) << "\n";
  }
  const Json all = Json::parse(std::ifstream(PM_RELEASED));
  EXPECT_EQ(all.size(), specs().size());
  for (const Json& one : all) {
    SCOPED_TRACE(one["what"].get<std::string>());
    EXPECT_EQ(hash_of(one), one["podHash"]) << "this controller would replace every group that runs";
    const Spec spec = spec_of(one["model"]);
    const Owner owner = owner_of(one["model"]);
    const auto policy = policy_from_text(k8s::string_at(one["configMap"], "/data/policy"));
    const std::string copy = policy ? policy->copy : "";
    EXPECT_EQ(inputs_hash(spec, owner, copy), annotation_of(one["configMap"], annotation::inputs)) << "this controller would plan anew";
    EXPECT_EQ(source_hash(spec, owner, copy), annotation_of(one["configMap"], annotation::source)) << "this controller would inspect the checkpoint again";
  }
}

}  // namespace
}  // namespace pm::op::test
