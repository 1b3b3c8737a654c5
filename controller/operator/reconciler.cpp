#include "controller/operator/reconciler.h"

#include <algorithm>
#include <set>

#include "controller/core/conditions.h"
#include "controller/core/quantity.h"
#include "controller/operator/group.h"
#include "controller/operator/text.h"
#include "controller/core/log.h"

namespace pm::op {

namespace {

k8s::WatchOptions children(const k8s::Resource& resource, const std::string& ns, k8s::Prune prune = k8s::prune_common) {
  return {.resource = resource, .ns = ns, .label_selector = label::name, .store = {.prune = std::move(prune)}};
}

/// The status of Services and budgets changes with their pods, and nobody here reads it.
void prune_status(Json& object) {
  k8s::prune_common(object);
  if (object.is_object()) object.erase("status");
}

/// What nobody here reads of a node is most of it: images, node info, conditions but Ready.
void prune_node(Json& node) {
  k8s::prune_common(node);
  Json kept{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", node.value("metadata", Json::object())}};
  kept["metadata"].erase("annotations");
  kept["status"]["allocatable"] = at(node, "/status/allocatable");
  kept["spec"]["unschedulable"] = bool_at(node, "/spec/unschedulable");
  kept["status"]["conditions"] = Json::array();
  if (const Json* ready = k8s::find_condition(at(node, "/status/conditions"), "Ready")) {
    kept["status"]["conditions"].push_back({{"type", "Ready"}, {"status", ready->value("status", "Unknown")}});
  }
  node = std::move(kept);
}

bool waits_for_node(const std::vector<k8s::ObjectPtr>& pods) {
  return std::any_of(pods.begin(), pods.end(), [](const auto& pod) { return at(*pod, "/spec/nodeName").is_null(); });
}

}  // namespace

k8s::WatchOptions parallel_models(const std::string& ns) { return {.resource = ParallelModels, .ns = ns}; }

Reconciler::Reconciler(k8s::Controller& controller, StatusProbe& probe, k8s::EventRecorder& events, const k8s::Clock& clock, prometheus::Registry& registry,
                       ReconcilerOptions options)
    : controller_(controller), recorder_(events), clock_(clock), options_(std::move(options)),
      occurrences_(prometheus::BuildCounter().Name("parallelmodel_operator_events_total").Help("What happened to ParallelModels, by reason: GroupRestarted, PlanChosen, ...").Register(registry)),
      models_(controller.primary()), pods_(controller.owns(children(k8s::Pods, options_.ns, prune_pod))), config_maps_(controller.owns(children(k8s::ConfigMaps, options_.ns))),
      services_(controller.owns(children(k8s::Services, options_.ns, prune_status))), budgets_(controller.owns(children(k8s::PodDisruptionBudgets, options_.ns, prune_status))),
      asker_(probe, clock, [&controller](const k8s::Key& model) { controller.enqueue(model); }) {
  if (!options_.read_nodes) return;
  k8s::WatchOptions nodes{.resource = k8s::Nodes};
  nodes.store.prune = prune_node;
  nodes_ = controller.watches(std::move(nodes), [this](const Json& node) { return concerned_by(node); });
}

/// Models with pods on the node, and those that wait for one.
std::vector<k8s::Key> Reconciler::concerned_by(const Json& node) const {
  const std::string name = k8s::key_of(node).name;
  std::set<k8s::Key> keys;
  for (const auto& pod : pods_.list()) {
    if (k8s::string_at(*pod, "/spec/nodeName") == name) keys.insert({k8s::key_of(*pod).ns, k8s::label_of(*pod, label::name)});
  }
  for (const auto& model : models_.list()) {
    const Json& conditions = at(*model, "/status/conditions");
    if (!k8s::condition_is_true(conditions, "Planned") || !k8s::condition_is_true(conditions, "Scheduled")) keys.insert(k8s::key_of(*model));
  }
  return {keys.begin(), keys.end()};
}

std::map<std::string, std::map<std::string, int64_t>> Reconciler::devices_used() const {
  std::map<std::string, std::map<std::string, int64_t>> used;
  for (const auto& pod : pods_.list()) {
    const std::string node = k8s::string_at(*pod, "/spec/nodeName"), phase = k8s::string_at(*pod, "/status/phase");
    if (node.empty() || phase == "Failed" || phase == "Succeeded") continue;
    const Json& limits = at(*pod, "/spec/containers/0/resources/limits");
    if (!limits.is_object()) continue;
    for (const auto& [resource, quantity] : limits.items()) {
      if (resource.find('/') != std::string::npos) used[node][resource] += std::max<int64_t>(0, k8s::quantity_of(quantity).value_or(0));
    }
  }
  return used;
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
  const bool counts = !at(*out.model, "/spec/devices/resource").is_null() || k8s::string_at(*out.model, "/spec/devices/type") != "CPU";
  if (counts && waits_for_node(out.pods)) out.devices_used = devices_used();   // a walk over all pods, for the words "free 2 of 4" alone
  ask_pods(out);
  return out;
}

void Reconciler::ask_pods(Snapshot& snapshot) {
  const k8s::Key model = k8s::key_of(*snapshot.model);
  for (const auto& pod : pods_to_probe(snapshot)) {
    const bool fetches = k8s::label_of(*pod, label::role) == "fetch";   // is ready all the time
    const bool ready = !fetches && k8s::condition_is_true(at(*pod, "/status/conditions"), "Ready");
    if (auto answer = asker_.latest(*pod, ready, model)) snapshot.probes[k8s::key_of(*pod).name] = std::move(*answer);
  }
}

void Reconciler::tell(const Json& model, const std::vector<Event>& events) {
  for (const Event& event : events) {
    recorder_.record(model, event.warning ? k8s::EventRecorder::Type::Warning : k8s::EventRecorder::Type::Normal, event.reason, event.action, event.note);
    occurrences_.Add({{"reason", event.reason}}).Increment();
    LOG(INFO) << k8s::to_string(k8s::key_of(model)) << ": " << event.reason << ": " << event.note;
  }
}

std::shared_ptr<Memo> Reconciler::memo(const k8s::Key& key, bool there) {
  const std::lock_guard lock(mutex_);
  if (!there) {
    memos_.erase(key);
    return nullptr;
  }
  auto& memo = memos_[key];
  if (!memo) memo = std::make_shared<Memo>();
  return memo;
}

k8s::Result Reconciler::reconcile(const k8s::Key& key) {
  const Snapshot before = snapshot(key);
  const auto memo = this->memo(key, before.model != nullptr);
  if (!before.model) return {};
  auto next = step(State{.memo = memo}, before, std::nullopt, options_.settings);
  while (auto* call = std::get_if<Call>(&next)) {
    const k8s::Response response = controller_.api().send(call->request);
    next = step(std::move(call->state), before, response, options_.settings);
  }
  const Done& done = std::get<Done>(next);
  tell(*before.model, done.events);
  if (done.error) return {.error = done.error};
  return {.requeue_after = done.requeue_after};
}

}  // namespace pm::op
