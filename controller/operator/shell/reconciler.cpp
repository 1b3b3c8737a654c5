// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/shell/reconciler.h"

#include <algorithm>
#include <set>

#include "base/quantity.h"
#include "controller/core/conditions.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/planning/shared_devices.h"
#include "controller/operator/replicas/replica_planner.h"
#include "controller/operator/shell/store_options.h"

#include "base/log.h"

namespace pm::op {

namespace {

k8s::WatchOptions children(const k8s::Resource& resource, const std::string& ns) {
  return {.resource = resource, .ns = ns, .label_selector = label::name, .store = store_options(resource)};
}

/// In seconds. A cached image and a small model start within some seconds, hundreds of gigabytes within an hour.
const prometheus::Histogram::BucketBoundaries startup_buckets{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600};

bool waits_for_node(const std::vector<k8s::ObjectPtr>& pods) {
  return std::any_of(pods.begin(), pods.end(), [](const auto& pod) { return at(*pod, "/spec/nodeName").is_null(); });
}

/// Says whether a model that waits for a plan may be handed devices that other pods have too.
bool shares_devices(const Json& model, const std::vector<k8s::ObjectPtr>& nodes) {
  const Json* planned = k8s::find_condition(at(model, "/status/conditions"), "Planned");
  const bool has_plan = planned && planned->value("status", "") == "True" &&
                        planned->value("observedGeneration", Json()) == at(model, "/metadata/generation");
  if (has_plan) return false;
  const std::string resource = k8s::string_at(model, "/spec/devices/resource");
  return std::ranges::any_of(nodes, [&](const auto& node) { return device_labels(*node, resource).shared_by > 1; });
}

}  // namespace

k8s::WatchOptions parallel_models(const std::string& ns) {
  return {.resource = parallel_models_resource, .ns = ns, .store = store_options(parallel_models_resource)};
}

Reconciler::Reconciler(k8s::Controller& controller, StatusProbe& probe, k8s::EventRecorder& events,
                       const k8s::Clock& clock, prometheus::Registry& registry, ReconcilerOptions options)
    : controller_(controller),
      recorder_(events),
      clock_(clock),
      options_(std::move(options)),
      occurrences_(prometheus::BuildCounter()
                       .Name("parallelmodel_operator_events_total")
                       .Help("What happened to ParallelModels, by reason: ReplicaRestarted, PlanChosen, ...")
                       .Register(registry)),
      startup_seconds_(prometheus::BuildHistogram()
                           .Name("parallelmodel_operator_startup_seconds")
                           .Help("Seconds of each stage of a start: fetched (once per checkpoint), scheduled, pulled, "
                                 "loaded, warmed, and the total of the last four")
                           .Register(registry)),
      models_(controller.primary()),
      pods_(controller.owns(children(k8s::pods_resource, options_.ns))),
      config_maps_(controller.owns(children(k8s::config_maps_resource, options_.ns))),
      services_(controller.owns(children(k8s::services_resource, options_.ns))),
      budgets_(controller.owns(children(k8s::pod_disruption_budgets_resource, options_.ns))),
      pod_events_limiter_(clock),
      poller_(probe, clock, [&controller](const k8s::Key& model) { controller.enqueue(model); }) {
  controller.relates([this](const Json& model) { return routing_to(model); });
  if (!options_.read_nodes) return;
  nodes_ = controller.watches({.resource = k8s::nodes_resource, .store = store_options(k8s::nodes_resource)},
                              [this](const Json& node) { return concerned_by(node); });
}

/// Returns the models that have this one as a canary.
std::vector<k8s::Key> Reconciler::routing_to(const Json& model) const {
  const k8s::Key canary = k8s::key_of(model);
  std::vector<k8s::Key> keys;
  for (const auto& other : models_.with(index::routes, index::yes)) {
    const auto names = canary_names(*other);
    const k8s::Key key = k8s::key_of(*other);
    if (key.ns == canary.ns && std::ranges::find(names, canary.name) != names.end()) keys.push_back(key);
  }
  return keys;
}

/// Returns the models with pods on the node, and those that wait for a node.
std::vector<k8s::Key> Reconciler::concerned_by(const Json& node) const {
  const std::vector<k8s::Key> waiting = models_.keys_with(index::waits, index::yes);
  std::set<k8s::Key> keys(waiting.begin(), waiting.end());
  for (const auto& pod : pods_.with(index::node, k8s::key_of(node).name))
    keys.insert({k8s::key_of(*pod).ns, k8s::label_of(*pod, label::name)});
  return {keys.begin(), keys.end()};
}

std::map<std::string, std::map<std::string, int64_t>> Reconciler::devices_used() const {
  std::map<std::string, std::map<std::string, int64_t>> used;
  for (const auto& pod : pods_.with(index::devices, index::yes)) {
    for (const auto& [resource, quantity] : at(*pod, "/spec/containers/0/resources/limits").items()) {
      used[k8s::string_at(*pod, "/spec/nodeName")][resource] +=
          std::max<int64_t>(0, base::quantity_of(quantity).value_or(0));
    }
  }
  return used;
}

/// Returns what the pods of all ParallelModels but one hold; see Snapshot.
std::map<std::string, std::map<std::string, std::vector<int64_t>>> Reconciler::memory_held(const k8s::Key& but) const {
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> held;
  for (const auto& pod : pods_.with(index::devices, index::yes)) {
    const k8s::Key key{k8s::key_of(*pod).ns, k8s::label_of(*pod, label::name)};
    if (key == but) continue;
    const auto model = models_.get(key);
    const int64_t memory = model ? base::quantity_of(at(*model, "/spec/devices/memory")).value_or(0) : 0;
    for (const auto& [resource, quantity] : at(*pod, "/spec/containers/0/resources/limits").items()) {
      auto& here = held[k8s::string_at(*pod, "/spec/nodeName")][resource];
      here.insert(here.end(), std::clamp<int64_t>(base::quantity_of(quantity).value_or(0), 0, 1024), memory);
    }
  }
  return held;
}

Snapshot Reconciler::snapshot(const k8s::Key& key) {
  Snapshot out{.now = clock_.wall()};
  out.model = models_.get(key);
  if (!out.model) return out;
  const std::string uid = k8s::uid_of(*out.model);
  out.pods = pods_.owned_by(uid);
  out.config_maps = config_maps_.owned_by(uid);
  out.services = services_.owned_by(uid);
  out.budgets = budgets_.owned_by(uid);
  if (nodes_) out.nodes = nodes_->list();
  for (const std::string& name : canary_names(*out.model)) out.canaries[name] = models_.get({key.ns, name});
  const bool counts =
      at(*out.model, "/spec/devices/claim").is_null() && (!at(*out.model, "/spec/devices/resource").is_null() ||
                                                          k8s::string_at(*out.model, "/spec/devices/type") != "CPU");
  if (counts && out.nodes && shares_devices(*out.model, *out.nodes)) out.memory_held = memory_held(key);
  if (counts && waits_for_node(out.pods))
    out.devices_used = devices_used();  // it scans all pods with devices, and only the message "free 2 of 4" needs it
  poll_pods(out);
  out.may_list_events = pod_events_limiter_.allows();
  return out;
}

void Reconciler::poll_pods(Snapshot& snapshot) {
  const k8s::Key model = k8s::key_of(*snapshot.model);
  const auto pods = pods_to_probe(snapshot);
  poller_.forget_others(model, pods);
  for (const auto& pod : pods) {
    const bool fetches = k8s::label_of(*pod, label::role) == "fetch";  // a fetch pod has no readiness
    const bool ready = !fetches && k8s::condition_is_true(at(*pod, "/status/conditions"), "Ready");
    if (auto answer = poller_.latest(*pod, ready, model)) snapshot.probes[k8s::key_of(*pod).name] = std::move(*answer);
  }
}

void Reconciler::record_events(const Json& model, const std::vector<Event>& events) {
  for (const Event& event : events) {
    recorder_.record(model, event.warning ? k8s::EventRecorder::Type::Warning : k8s::EventRecorder::Type::Normal,
                     event.reason, event.action, event.note);
    occurrences_.Add({{"reason", event.reason}}).Increment();
    LOG(INFO) << k8s::to_string(k8s::key_of(model)) << ": " << event.reason << ": " << event.note;
  }
}

std::shared_ptr<ModelCache> Reconciler::cache(const k8s::Key& key, bool there) {
  const std::lock_guard lock(mutex_);
  if (!there) {
    caches_.erase(key);
    return nullptr;
  }
  auto& cache = caches_[key];
  if (!cache) cache = std::make_shared<ModelCache>();
  return cache;
}

k8s::Result Reconciler::reconcile(const k8s::Key& key) {
  const Snapshot before = snapshot(key);
  const auto cache = this->cache(key, before.model != nullptr);
  if (!before.model) {
    poller_.forget_others(key, {});
    return {};
  }
  auto next = reconcile_step(ReconcileState{.cache = cache}, before, std::nullopt, options_.settings);
  while (auto* call = std::get_if<Call>(&next)) {
    const auto send = [&] { return controller_.api().send(call->request); };
    const k8s::Response response =
        call->request.resource == k8s::events_resource ? pod_events_limiter_.run(send) : send();
    next = reconcile_step(std::move(call->state), before, response, options_.settings);
  }
  cache->forget_unused();
  const Done& done = std::get<Done>(next);
  record_events(*before.model, done.events);
  for (const StageTime& time : done.stage_times)
    startup_seconds_.Add({{"stage", time.stage}}, startup_buckets).Observe(time.seconds);
  if (done.error) return {.error = done.error};
  return {.requeue_after = done.requeue_after};
}

}  // namespace pm::op
