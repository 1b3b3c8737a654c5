#include "fake_cluster.h"

#include <algorithm>
#include <set>

#include "controller/core/conditions.h"
#include "controller/operator/names.h"
#include "controller/operator/text.h"
#include "tests/unit/planner/models.h"

namespace pm::op::test {

using k8s::ApiError;
using k8s::Failure;
using k8s::Key;
using k8s::Request;
using k8s::Response;
using k8s::Verb;

namespace {

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::Get: return "Get";
    case Verb::List: return "List";
    case Verb::Create: return "Create";
    case Verb::Apply: return "Apply";
    case Verb::MergePatch: return "MergePatch";
    case Verb::Delete: return "Delete";
  }
  return "?";
}

ApiError error(Failure failure, int code, const std::string& message) { return {failure, code, "", message, 0}; }

bool ended(const Json& pod) { return at(pod, "/status/containerStatuses/0/state/terminated").is_object(); }
bool running(const Json& pod) { return at(pod, "/status/containerStatuses/0/state/running").is_object(); }

void set_container(Json& pod, Json state) { pod["status"]["containerStatuses"] = Json::array({{{"name", "worker"}, {"state", std::move(state)}}}); }

void set_condition(Json& pod, const char* type, bool value, k8s::WallTime now, const std::string& reason = "", const std::string& message = "") {
  k8s::set_condition(pod["status"]["conditions"], {type, value, reason, message, 0}, now);
}

void strip_status(Json& status) {
  status.erase("containerStatuses");
  for (const char* list : {"conditions", "groups"}) {
    if (!status.contains(list)) continue;
    for (Json& entry : status[list]) {
      for (const char* key : {"lastTransitionTime", "restartTimes", "loadSeconds"}) entry.erase(key);
    }
  }
  if (status.contains("lastFailure")) status["lastFailure"].erase("time");
}

}  // namespace

FakeCluster::FakeCluster() : facts(small_facts()), now_(*k8s::parse_time("2026-01-01T00:00:00Z")) {
  put("nodes", {{"metadata", {{"name", "node-a"}, {"labels", {{"nvidia.com/gpu.memory", "81920"}}}}},
                {"status", {{"allocatable", {{"nvidia.com/gpu", "8"}, {"memory", "64Gi"}}}, {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
}

void FakeCluster::remember() {
  if (!remembers) return;
  history_.push_back(objects_);
  if (history_.size() > 16) history_.erase(history_.begin());
}

Json& FakeCluster::store(const std::string& plural, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  Json& place = objects_[{plural, k8s::key_of(object)}];
  place = std::move(object);
  remember();
  return place;
}

void FakeCluster::drop(const std::string& plural, const Key& key) {
  objects_.erase({plural, key});
  ++version_;
  remember();
}

void FakeCluster::put(const char* plural, Json object) {
  object["metadata"]["uid"] = "uid-" + std::to_string(++uids_);
  store(plural, std::move(object));
}

void FakeCluster::put_map(const std::string& name, const Json& data) {
  Json map{{"metadata", {{"name", name}, {"namespace", "ns"}}}, {"data", data}};
  if (const Json* present = find("configmaps", name)) {
    map["metadata"]["uid"] = k8s::uid_of(*present);
    store("configmaps", std::move(map));
  } else {
    put("configmaps", std::move(map));
  }
}

void FakeCluster::remove_map(const std::string& name) { drop("configmaps", {"ns", name}); }

std::vector<Json> FakeCluster::with_role(const std::string& plural, const std::string& role) const {
  std::vector<Json> out;
  for (const Json& object : all(plural)) {
    if (k8s::label_of(object, label::role) == role) out.push_back(object);
  }
  return out;
}

std::string FakeCluster::policy_of(const Json& pod) const {
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume["name"] != "policy") continue;
    const Json* map = find("configmaps", k8s::string_at(volume, "/configMap/name"));
    return map && (*map)["data"].size() == 1 ? (*map)["data"].begin()->get<std::string>() : "";
  }
  return "";
}

bool FakeCluster::lacks_volume(const Json& pod) const {
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume.contains("configMap") && !find("configmaps", k8s::string_at(volume, "/configMap/name"))) return true;
  }
  return false;
}

void FakeCluster::apply(const Json& model) {
  if (!find("parallelmodels", model_name)) {
    Json made = model;
    made["metadata"]["generation"] = 1;
    put("parallelmodels", made);
    return;
  }
  edit([&](Json& present) { present["spec"] = model["spec"]; });
}

void FakeCluster::edit(const std::function<void(Json&)>& change) {
  Json model = this->model();
  const Json spec = model["spec"];
  change(model);
  if (model["spec"] != spec) model["metadata"]["generation"] = model["metadata"]["generation"].get<int>() + 1;
  store("parallelmodels", std::move(model));
}

void FakeCluster::remove_model() { drop("parallelmodels", {"ns", model_name}); }

void FakeCluster::delete_pod(const std::string& name) {
  Json pod = *find("pods", name);
  pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
  store("pods", std::move(pod));
}

std::vector<Json> FakeCluster::all(const std::string& plural) const {
  std::vector<Json> out;
  for (const auto& [where, object] : objects_) {
    if (where.first == plural) out.push_back(object);
  }
  return out;
}

const Json* FakeCluster::find(const std::string& plural, const std::string& name) const {
  for (const auto& [where, object] : objects_) {
    if (where.first == plural && where.second.name == name) return &object;
  }
  return nullptr;
}

std::vector<std::string> FakeCluster::pod_names() const {
  std::vector<std::string> out;
  for (const Json& pod : all("pods")) out.push_back(k8s::key_of(pod).name);
  return out;
}

const Json* FakeCluster::condition(const std::string& type) const { return k8s::find_condition(op::at(model(), "/status/conditions"), type); }
std::string FakeCluster::reason(const std::string& type) const { return condition(type) ? k8s::string_at(*condition(type), "/reason") : ""; }
bool FakeCluster::is_true(const std::string& type) const { return k8s::condition_is_true(op::at(model(), "/status/conditions"), type); }

Snapshot FakeCluster::snapshot_of(const Objects& objects) const {
  Snapshot out{.now = now_};
  out.nodes.emplace();
  for (const auto& [where, object] : objects) {
    if (where.first == "parallelmodels") out.model = std::make_shared<const Json>(object);
  }
  for (const auto& [where, object] : objects) {
    const auto pointer = std::make_shared<const Json>(object);
    if (where.first == "nodes") out.nodes->push_back(pointer);
    const auto owner = k8s::controller_of(object);
    if (!out.model || !owner || owner->uid != k8s::uid_of(*out.model)) continue;
    if (where.first == "pods") {
      Json pod = object;
      prune_pod(pod);   // as the store does: what is read must survive it
      out.pods.push_back(std::make_shared<const Json>(std::move(pod)));
    }
    if (where.first == "configmaps") out.config_maps.push_back(pointer);
    if (where.first == "services") out.services.push_back(pointer);
    if (where.first == "poddisruptionbudgets") out.budgets.push_back(pointer);
  }
  return out;
}

Snapshot FakeCluster::stale_snapshot(size_t behind) const {
  return snapshot_of(history_[history_.size() - 1 - std::min(behind, history_.size() - 1)]);
}

Response FakeCluster::send(const Request& request) {
  ++requests;
  log.push_back(std::string(verb_name(request.verb)) + " " + request.resource.plural + " " + request.name + (request.subresource.empty() ? "" : "/" + request.subresource));
  (void)k8s::path_of(request);   // throws for a request that names no object
  if (refuse) {
    if (auto refusal = refuse(request)) return *refusal;
  }
  const int64_t before = version_;
  Response response = answer(request);
  if (version_ != before) ++writes;
  return response;
}

Response FakeCluster::answer(const Request& request) {
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  switch (request.verb) {
    case Verb::Create: return create(request);
    case Verb::Apply: break;   // the operator never does
    case Verb::Delete: return erase(request);
    case Verb::List: return Json{{"items", Json::array({{{"reason", "Scheduled"}, {"note", "assigned"}}, {{"reason", "FailedMount"}, {"note", mount_failure}}})}};
    case Verb::Get: return place == objects_.end() ? Response(error(Failure::NotFound, 404, "not found")) : Response(place->second);
    case Verb::MergePatch: return place == objects_.end() ? Response(error(Failure::NotFound, 404, "not found")) : patch(request, place->second);
  }
  return error(Failure::Permanent, 400, "no such verb");
}

Response FakeCluster::create(const Request& request) {
  const Key key = k8s::key_of(request.body);
  if (objects_.contains({request.resource.plural, key})) return error(Failure::AlreadyExists, 409, "already exists");
  Json object = request.body;
  object["metadata"]["uid"] = "uid-" + std::to_string(++uids_);
  object["metadata"]["creationTimestamp"] = k8s::format_time(now_);
  if (request.resource == k8s::Pods) {
    check_pod(object);
    object["status"]["phase"] = "Pending";
  }
  if (request.resource == k8s::Services) object["spec"]["ports"][0]["protocol"] = "TCP";   // a default of the server
  return store(request.resource.plural, std::move(object));
}

/// Merge patch with the precondition of a resourceVersion; a write without effect changes nothing.
Response FakeCluster::patch(const Request& request, Json& object) {
  const std::string expected = k8s::version_of(request.body);
  if (!expected.empty() && expected != k8s::version_of(object)) return error(Failure::Conflict, 409, "the object has been modified");
  Json body = request.body;
  if (request.subresource == "status") body = {{"status", body.value("status", Json::object())}};
  body.erase("metadata");
  for (const char* map : {"annotations", "labels"}) {
    if (request.body.contains("metadata") && request.body["metadata"].contains(map)) body["metadata"][map] = request.body["metadata"][map];
  }
  Json next = object;
  next.merge_patch(body);
  if (next == object) return object;
  return store(request.resource.plural, std::move(next));
}

Response FakeCluster::erase(const Request& request) {
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  if (place == objects_.end()) return error(Failure::NotFound, 404, "not found");
  if (k8s::string_at(request.body, "/preconditions/uid") != k8s::uid_of(place->second)) return error(Failure::Conflict, 409, "uid mismatch");
  const bool lives_on = request.resource == k8s::Pods && running(place->second) && integer_at(request.body, "/gracePeriodSeconds") != 0;
  if (lives_on) {
    Json pod = place->second;
    if (k8s::being_deleted(pod)) return pod;
    pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
    return store("pods", std::move(pod));
  }
  const Json gone = place->second;
  drop(request.resource.plural, place->first.second);
  return gone;
}

/// The promises about incarnations, at the moment when they could be broken.
void FakeCluster::check_pod(const Json& pod) {
  const std::string group = k8s::label_of(pod, label::group), incarnation = k8s::label_of(pod, label::incarnation), name = k8s::key_of(pod).name;
  if (group.empty()) return;
  const Json* model = find("parallelmodels", model_name);
  bool written = false;
  for (const Json& record : model ? op::at(*model, "/status/groups") : Json::array()) {
    written |= std::to_string(record["index"].get<int>()) == group && std::to_string(record["incarnation"].get<int>()) == incarnation;
  }
  if (model && !written) violations.push_back(name + " is made before its incarnation is written");
  for (const Json& other : all("pods")) {
    if (k8s::label_of(other, label::group) != group || ended(other)) continue;
    if (k8s::label_of(other, label::incarnation) != incarnation) violations.push_back(name + " is made while " + k8s::key_of(other).name + " lives");
    else if (k8s::label_of(other, label::node_rank) == k8s::label_of(pod, label::node_rank)) violations.push_back(name + " is made twice");
  }
}

void FakeCluster::end_worker(const std::string& name, int code, const Json& words) {
  Json pod = *find("pods", name);
  set_container(pod, {{"terminated", {{"exitCode", code}, {"reason", code ? "Error" : "Completed"}, {"finishedAt", k8s::format_time(now_)}, {"message", words.is_string() ? words.get<std::string>() : words.dump()}}}});
  set_condition(pod, "Ready", false, now_);
  pod["status"]["phase"] = code ? "Failed" : "Succeeded";
  store("pods", std::move(pod));
}

void FakeCluster::collect() {
  std::set<std::string> uids;
  for (const Json& model : all("parallelmodels")) uids.insert(k8s::uid_of(model));
  std::vector<std::pair<std::string, Key>> orphans;
  for (const auto& [where, object] : objects_) {
    const auto owner = k8s::controller_of(object);
    if (owner && owner->kind == "ParallelModel" && !uids.contains(owner->uid)) orphans.push_back(where);
  }
  for (const auto& [plural, key] : orphans) drop(plural, key);
}

void FakeCluster::run_pod(Json& pod) {
  const bool inspects = k8s::label_of(pod, label::role) == "inspect";
  if (!pod["spec"].contains("nodeName")) {
    int used = 0;
    for (const Json& other : all("pods")) {
      if (other["spec"].contains("nodeName") && !ended(other)) used += std::stoi(other["spec"]["containers"][0]["resources"]["limits"].value("nvidia.com/gpu", "0"));
    }
    const int wants = std::stoi(pod["spec"]["containers"][0]["resources"]["limits"].value("nvidia.com/gpu", "0"));
    if (!claim_exists) return set_condition(pod, "PodScheduled", false, now_, "Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"models\" not found.");
    if (used + wants > devices) return set_condition(pod, "PodScheduled", false, now_, "Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
    pod["spec"]["nodeName"] = "node-a";
    set_condition(pod, "PodScheduled", true, now_);
    return;
  }
  if (ended(pod)) return;
  if (!running(pod)) {
    if (!mount_failure.empty() || lacks_volume(pod)) return set_container(pod, {{"waiting", {{"reason", "ContainerCreating"}}}});
    if (!workers_start && !inspects) return set_container(pod, {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "Back-off pulling image \"w\""}}}});
    set_container(pod, {{"running", {{"startedAt", k8s::format_time(now_)}}}});
    pod["status"]["phase"] = "Running";
    pod["status"]["podIP"] = "10.0.0.1";
    return;
  }
  if (inspects) {
    const std::string policy = policy_of(pod);
    const auto failure = inspect_failure ? inspect_failure : judge && !policy.empty() ? judge(policy) : std::nullopt;
    const Json words = failure ? *failure : facts;
    set_container(pod, {{"terminated", {{"exitCode", failure ? 3 : 0}, {"reason", "x"}, {"finishedAt", k8s::format_time(now_)}, {"message", words.is_string() ? words.get<std::string>() : words.dump()}}}});
    pod["status"]["phase"] = failure ? "Failed" : "Succeeded";
    return;
  }
  set_condition(pod, "Ready", workers_ready && k8s::string_at(pod, "/spec/containers/0/image") != broken_image, now_);
}

void FakeCluster::tick() {
  now_ += std::chrono::seconds(1);
  if (collects) collect();
  for (const Json& pod : all("pods")) {
    if (k8s::being_deleted(pod)) {
      drop("pods", k8s::key_of(pod));
      continue;
    }
    Json next = pod;
    run_pod(next);
    if (next != pod) store("pods", std::move(next));
  }
}

Json FakeCluster::digest() const {
  Json out = Json::array();
  for (const auto& [where, object] : objects_) {
    Json plain = object;
    Json& metadata = plain["metadata"];
    for (const char* key : {"uid", "resourceVersion", "creationTimestamp"}) metadata.erase(key);
    if (metadata.contains("ownerReferences")) metadata["ownerReferences"][0].erase("uid");
    if (plain.contains("status")) strip_status(plain["status"]);
    out.push_back({where.first, plain});
  }
  return out;
}

Json model_named(const std::string& name, int devices, int replicas) {
  return {{"apiVersion", "parallelmodel.dev/v1alpha1"},
          {"kind", "ParallelModel"},
          {"metadata", {{"name", name}, {"namespace", "ns"}}},
          {"spec",
           {{"model", {{"source", "pvc://models/gpt2"}}},
            {"devices", {{"count", devices}, {"type", "CPU"}, {"resource", "nvidia.com/gpu"}}},
            {"resources", {{"memory", "4Gi"}, {"cpu", 2}}},
            {"serving", {{"maxSequenceLength", 256}, {"maxConcurrency", 4}, {"maxQueue", 16}}},
            {"replicas", replicas}}}};
}

Json small_facts() {
  return to_json(pm::test::decoder({.layers = 2, .hidden = 512, .heads = 4, .kv_heads = 4, .head_dim = 128, .ffn = 2048, .vocab = 1000, .positions = 512}));
}

Settings settings() { return {.worker_image = "parallelmodel-worker:1"}; }

bool Operator::pass() {
  const bool past = stale > 0 && ++passes_ % 2 == 1;
  return run(past ? cluster_.stale_snapshot(stale) : cluster_.snapshot());
}

bool Operator::run(const Snapshot& snapshot) {
  requeue.reset();
  auto next = step(State{}, snapshot, std::nullopt, settings());
  while (auto* call = std::get_if<Call>(&next)) {
    const bool now = requests++ == at;
    const Fault how = now ? fault : Fault::None;
    if (how == Fault::BeforeRequest) return false;
    Response response = how == Fault::AnswerLostUndone ? Response(error(Failure::Transient, 0, "connection refused")) : cluster_.send(call->request);
    if (how == Fault::AfterRequest || one_request_lives) return false;
    if (how == Fault::AnswerLost) response = error(Failure::Transient, 0, "connection reset");
    next = step(std::move(call->state), snapshot, response, settings());
  }
  Done& done = std::get<Done>(next);
  events.insert(events.end(), done.events.begin(), done.events.end());
  requeue = done.requeue_after;
  return !done.error;
}

bool Operator::settle(int limit, int quiet) {
  for (int second = 0, still = 0; second < limit; ++second) {
    const int64_t before = cluster_.version();
    bool good = false;
    for (int tries = 0; !good && tries < 100; ++tries) good = pass();   // the queue tries again
    cluster_.tick();
    const bool waits = cluster_.find("parallelmodels", cluster_.model_name) && cluster_.reason("Ready") == "BackingOff";
    still = cluster_.version() == before && good && !waits ? still + 1 : 0;
    if (still >= quiet) return true;
  }
  return false;
}

}  // namespace pm::op::test
