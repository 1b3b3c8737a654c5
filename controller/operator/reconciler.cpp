#include "controller/operator/reconciler.h"

#include <algorithm>
#include <set>

#include "controller/core/conditions.h"
#include "controller/core/quantity.h"
#include "controller/operator/group.h"
#include "controller/operator/kept.h"
#include "controller/operator/text.h"
#include "controller/core/log.h"

namespace pm::op {

namespace {

k8s::WatchOptions children(const k8s::Resource& resource, const std::string& ns) {
  return {.resource = resource, .ns = ns, .label_selector = label::name, .store = kept_of(resource)};
}

bool waits_for_node(const std::vector<k8s::ObjectPtr>& pods) {
  return std::any_of(pods.begin(), pods.end(), [](const auto& pod) { return at(*pod, "/spec/nodeName").is_null(); });
}

}  // namespace

k8s::WatchOptions parallel_models(const std::string& ns) { return {.resource = ParallelModels, .ns = ns, .store = kept_of(ParallelModels)}; }

Reconciler::Reconciler(k8s::Controller& controller, StatusProbe& probe, k8s::EventRecorder& events, const k8s::Clock& clock, prometheus::Registry& registry,
                       ReconcilerOptions options)
    : controller_(controller), recorder_(events), clock_(clock), options_(std::move(options)),
      occurrences_(prometheus::BuildCounter().Name("parallelmodel_operator_events_total").Help("What happened to ParallelModels, by reason: GroupRestarted, PlanChosen, ...").Register(registry)),
      models_(controller.primary()), pods_(controller.owns(children(k8s::Pods, options_.ns))), config_maps_(controller.owns(children(k8s::ConfigMaps, options_.ns))),
      services_(controller.owns(children(k8s::Services, options_.ns))), budgets_(controller.owns(children(k8s::PodDisruptionBudgets, options_.ns))),
      events_of_pods_(clock), asker_(probe, clock, [&controller](const k8s::Key& model) { controller.enqueue(model); }) {
  if (!options_.read_nodes) return;
  nodes_ = controller.watches({.resource = k8s::Nodes, .store = kept_of(k8s::Nodes)}, [this](const Json& node) { return concerned_by(node); });
}

/// Models with pods on the node, and those that wait for one.
std::vector<k8s::Key> Reconciler::concerned_by(const Json& node) const {
  const std::vector<k8s::Key> waiting = models_.keys_with(index::waits, index::yes);
  std::set<k8s::Key> keys(waiting.begin(), waiting.end());
  for (const auto& pod : pods_.with(index::node, k8s::key_of(node).name)) keys.insert({k8s::key_of(*pod).ns, k8s::label_of(*pod, label::name)});
  return {keys.begin(), keys.end()};
}

std::map<std::string, std::map<std::string, int64_t>> Reconciler::devices_used() const {
  std::map<std::string, std::map<std::string, int64_t>> used;
  for (const auto& pod : pods_.with(index::devices, index::yes)) {
    for (const auto& [resource, quantity] : at(*pod, "/spec/containers/0/resources/limits").items()) {
      used[k8s::string_at(*pod, "/spec/nodeName")][resource] += std::max<int64_t>(0, k8s::quantity_of(quantity).value_or(0));
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
  if (counts && waits_for_node(out.pods)) out.devices_used = devices_used();   // a walk over all pods with devices, for the words "free 2 of 4" alone
  ask_pods(out);
  out.may_list_events = events_of_pods_.free();
  return out;
}

void Reconciler::ask_pods(Snapshot& snapshot) {
  const k8s::Key model = k8s::key_of(*snapshot.model);
  const auto pods = pods_to_probe(snapshot);
  asker_.forget_others(model, pods);
  for (const auto& pod : pods) {
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
  if (!before.model) {
    asker_.forget_others(key, {});
    return {};
  }
  auto next = step(State{.memo = memo}, before, std::nullopt, options_.settings);
  while (auto* call = std::get_if<Call>(&next)) {
    const auto send = [&] { return controller_.api().send(call->request); };
    const k8s::Response response = call->request.resource == k8s::Events ? events_of_pods_.spend(send) : send();
    next = step(std::move(call->state), before, response, options_.settings);
  }
  memo->forget_unused();
  const Done& done = std::get<Done>(next);
  tell(*before.model, done.events);
  if (done.error) return {.error = done.error};
  return {.requeue_after = done.requeue_after};
}

}  // namespace pm::op
