// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/status/model_status.h"

#include <algorithm>

#include "controller/core/conditions.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"
#include "controller/operator/children/optional_children.h"
#include "controller/operator/planning/hardware.h"
#include "controller/operator/status/model_conditions.h"
#include "planner/layouts.h"

namespace pm::op {

namespace {

Json rejected_json(const std::vector<Rejected>& rejected) {
  Json out = Json::array();
  for (const Rejected& one : rejected) {
    if (out.size() == 16) break;
    out.push_back(
        {{"strategy", clip(one.strategy, 64)}, {"reason", clip(one.reason, 64)}, {"message", clip(one.message, 1000)}});
  }
  return out;
}

Json plan_json(const StatusInputs& in) {
  const StoredPlan& stored = *in.planning.plan;
  const Plan& plan = stored.plan;
  Json out{{"planHash", stored.hash},
           {"podHash", in.wanted->hash},
           {"image", clip(in.spec.worker.image.empty() ? stored.image : in.spec.worker.image, 512)},
           {"task", clip(stored.task, 64)},
           {"architecture", clip(stored.architecture, 128)},
           {"strategy", name_of(plan.strategy)},
           {"ranks", ranks_of(plan)},
           {"tensor", plan.tensor},
           {"pipeline", plan.pipeline},
           {"data", plan.data},
           {"layout", clip(plan.gathering ? std::string(name_of(plan.strategy)) + " x " + std::to_string(plan.data)
                                          : name_of(Sizes{plan.tensor, plan.pipeline, plan.data}),
                           64)},
           {"objective", name_of(plan.objective)},
           {"precision", name_of(plan.precision)},
           {"sequenceLength", plan.sequence_length},
           {"shm", in.wanted->inputs.layout.shm},
           {"reason", reason_word(plan.reason, "Planned")},
           {"message", clip(plan.message, in.notes.truncation_level ? 200 : 2000)}};
  if (plan.kv_precision) out["kvPrecision"] = name_of(*plan.kv_precision);
  if (plan.kv_blocks > 0) out["concurrency"] = plan.concurrency;  // only a KV cache bounds it
  if (plan.pipeline > 1) out["microBatches"] = plan.micro_batches;
  const std::string digest = in.spec.source.digest();
  if (!stored.revision.empty() || !digest.empty())
    out["revision"] = clip(digest.empty() ? stored.revision : digest, 128);
  if (stored.policy) out["policy"] = clip(to_text(stored.policy), 512);
  if (!plan.rejected.empty() && !in.notes.truncation_level) out["rejected"] = rejected_json(plan.rejected);
  return out;
}

/// Returns how many devices a pod that found no node needs, and what is known of free ones; "" if it lacks others.
std::string lacking_devices(const PodState& pod, const Spec& spec, const Snapshot& snapshot, int devices_per_pod) {
  const std::string& resource = spec.devices.resource;
  const std::string needs = "needs " + std::to_string(devices_per_pod) + " ";
  const bool counted = !resource.empty() && pod.wait->message.find("Insufficient " + resource) != std::string::npos;
  if (counted && (!device_nodes(spec, snapshot).empty() || admitted_nodes(spec, snapshot).empty()))
    return needs + resource + " on one node, " + free_devices(spec, snapshot);
  const bool claimed = (spec.devices.claim || !resource.empty()) &&
                       pod.wait->message.find("cannot allocate all claims") != std::string::npos;
  if (!counted && !claimed) return "";
  const std::string unknown =
      "; which devices of a DeviceClass are free only the scheduler knows: see the events of pod " + pod.name;
  if (spec.devices.claim)
    return needs + "devices of DeviceClass " + spec.devices.claim->device_class + " on one node" + unknown;
  return needs + resource + " on one node, and no node that the spec admits offers it by a device plugin" + unknown;
}

/// Without a plan, returns that of the replicas which still run, else why there is none.
Json no_plan_json(const StatusInputs& in) {
  if (!in.replica_plan.records.empty()) return at(*in.snapshot.model, "/status/plan");
  if (in.planning.waiting) return nullptr;
  Json out{{"reason", in.planning.reason},
           {"message", clip(in.planning.message, in.notes.truncation_level ? 200 : 2000)}};
  if (!in.planning.rejected.empty() && !in.notes.truncation_level)
    out["rejected"] = rejected_json(in.planning.rejected);
  return out;
}

/// Returns how long the slowest of the replicas took to start, by stage; "" before one has reported it.
std::string startup_text(const StatusInputs& in) {
  const Startup* slowest = nullptr;
  for (const ReplicaRecord& record : in.replica_plan.records) {
    if (record.startup && (!slowest || record.startup->total() > slowest->total())) slowest = &*record.startup;
  }
  return slowest ? to_text(*slowest) : "";
}

Json replicas_json(const StatusInputs& in) {
  Json out = Json::array();
  for (const ReplicaRecord& record : in.replica_plan.records) {
    Json replica = to_json(record);
    if (in.notes.truncation_level > 0) replica.erase("ranks");
    if (in.notes.truncation_level > 1) replica.erase("nodes");
    out.push_back(std::move(replica));
  }
  return out;
}

/// Returns the names of templates that the pods of the spec need, and of earlier ones until they are gone.
Json claim_templates_json(const StatusInputs& in) {
  Json out = Json::array();
  std::set<std::string> names = recorded_claim_templates(*in.snapshot.model);
  std::erase_if(names, [&](const std::string& name) {
    const auto live = in.notes.live.find(claim_templates_resource.kind + "/" + name);
    return in.notes.claim_templates_read.contains(name) &&
           (live == in.notes.live.end() || !is_controlled_by(live->second, in.owner.uid));
  });
  for (const PodState& pod : in.replica_plan.pods) {
    if (!pod.claim_template.empty()) names.insert(pod.claim_template);
  }
  if (in.wanted) {
    for (const Json& wanted : claim_templates(in.owner, in.spec, in.wanted->inputs.layout))
      names.insert(k8s::key_of(wanted).name);
  }
  for (const std::string& name : names) out.push_back(name);
  return out;
}

}  // namespace

std::set<std::string> recorded_claim_templates(const Json& model) {
  std::set<std::string> out;
  const Json& names = at(model, "/status/resourceClaimTemplates");
  if (!names.is_array()) return out;
  const std::string prefix = claim_template_name(k8s::key_of(model).name, "");
  for (const Json& name : names) {  // others may write the status, and names become parts of paths
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    if (text.starts_with(prefix) && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == text.npos)
      out.insert(text);
  }
  return out;
}

Json make_status(const StatusInputs& in) {
  const Json& old = at(*in.snapshot.model, "/status");
  Json conditions = at(old, "/conditions");
  for (const k8s::Condition& condition : make_conditions(in))
    k8s::set_condition(conditions, condition, in.snapshot.now);

  int ready = 0, updated = 0;
  int64_t restarts = 0;
  for (const ReplicaRecord& record : in.replica_plan.records) {
    ready += record.ready ? 1 : 0;
    updated += in.wanted && record.pod_hash == in.wanted->hash && !record.previous ? 1 : 0;
    restarts += record.restarts;
  }
  Json status{{"observedGeneration", in.owner.generation},
              {"replicas", in.replica_plan.records.size()},
              {"readyReplicas", ready},
              {"updatedReplicas", updated},
              {"restarts", restarts},
              {"selector", scale_selector(in.owner.key.name)},
              {"conditions", std::move(conditions)},
              {"replicaStatuses", replicas_json(in)}};
  if (Json templates = claim_templates_json(in); !templates.empty())
    status["resourceClaimTemplates"] = std::move(templates);
  if (in.notes.truncation_level > 1) {  // the API server accepted these fields before
    for (const char* key : {"plan", "endpoint", "lastFailure"}) {
      if (old.is_object() && old.contains(key)) status[key] = old[key];
    }
    return status;
  }
  for (const OptionalChild& child : optional_children()) {
    const bool exists = in.notes.optional_read.contains(child.resource.kind)
                            ? in.notes.live.contains(child.resource.kind + "/" + in.owner.key.name)
                            : bool_at(old, std::string("/") + child.status);
    if (child.wanted(in.spec) || exists) status[child.status] = true;
  }
  if (const std::string startup = startup_text(in); !startup.empty()) status["startup"] = startup;
  if (in.planning.fetch_seconds)
    status["fetchSeconds"] = *in.planning.fetch_seconds;
  else if (const auto last = integer_at(old, "/fetchSeconds"); last && !in.planning.plan)
    status["fetchSeconds"] = *last;
  Json plan = in.planning.plan ? plan_json(in) : no_plan_json(in);
  if (!plan.is_null()) status["plan"] = std::move(plan);
  const std::string endpoint = k8s::string_at(old, "/endpoint");
  if (in.notes.unreadable && !endpoint.empty())
    status["endpoint"] = endpoint;
  else if (in.planning.plan || !in.replica_plan.records.empty())
    status["endpoint"] = endpoint_of(in.owner.key, in.spec.service.port, !in.spec.tls_secret.empty());
  if (in.replica_plan.failure)
    status["lastFailure"] = to_json(*in.replica_plan.failure);
  else if (const Json& last = at(old, "/lastFailure"); last.is_object())
    status["lastFailure"] = last;
  return status;
}

void refine_waits(std::vector<PodState>& pods, const Spec& spec, const Snapshot& snapshot,
                  const std::map<std::string, MountEvent>& mount_events, int devices_per_pod) {
  for (PodState& pod : pods) {
    if (!pod.wait) continue;
    const std::string lack =
        pod.wait->reason == Reason::Unschedulable ? lacking_devices(pod, spec, snapshot, devices_per_pod) : "";
    if (!lack.empty())
      pod.wait = Wait{name_of(Reason::InsufficientDevices), lack + "; the scheduler says: " + pod.wait->message};
    const auto observed = mount_events.find(k8s::uid_of(*pod.object));
    if (pod.creating_since && observed != mount_events.end() && !observed->second.wait.reason.empty())
      pod.wait = observed->second.wait;
  }
}

}  // namespace pm::op
