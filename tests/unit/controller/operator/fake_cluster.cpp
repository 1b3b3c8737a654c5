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

/// What the label selector of the operator's watch lets through.
bool selected(const std::string& plural, const Json& object) {
  return plural == "parallelmodels" || plural == "nodes" || !k8s::label_of(object, label::name).empty();
}

void set_container(Json& pod, Json state) { pod["status"]["containerStatuses"] = Json::array({{{"name", "worker"}, {"state", std::move(state)}}}); }

/// {"8000": {}}: as managedFields name them.
Json ports_of(const Json& service) {
  Json out = Json::object();
  for (const Json& port : op::at(service, "/spec/ports")) out[port["port"].dump()] = Json::object();
  return out;
}

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
  add_node("node-a", 8);
  more_nodes_.clear();   // its devices are a setting
}

void FakeCluster::add_node(const std::string& name, int devices) {
  put("nodes", {{"metadata", {{"name", name}, {"labels", {{"nvidia.com/gpu.memory", "81920"}}}}},
                {"status", {{"allocatable", {{"nvidia.com/gpu", std::to_string(devices)}, {"memory", "64Gi"}}}, {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
  more_nodes_[name] = devices;
}

void FakeCluster::set_node_ready(const std::string& name, bool ready) {
  Json node = *find("nodes", name);
  node["status"]["conditions"][0]["status"] = ready ? "True" : "Unknown";
  store("nodes", std::move(node));
  if (ready) {
    dead_nodes_.erase(name);
    return;
  }
  dead_nodes_.insert(name);
  for (const auto& pod : list("pods")) {
    if (k8s::string_at(*pod, "/spec/nodeName") != name) continue;
    Json unready = *pod;
    set_condition(unready, "Ready", false, now_);
    store("pods", std::move(unready));
  }
}

bool FakeCluster::dead(const Json& pod) const { return dead_nodes_.contains(k8s::string_at(pod, "/spec/nodeName")); }

void FakeCluster::remember() {
  if (!remembers) return;
  history_.push_back(objects_);
  if (history_.size() > 16) history_.erase(history_.begin());
}

const Json& FakeCluster::store(const std::string& plural, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  k8s::ObjectPtr& place = objects_[{plural, k8s::key_of(object)}];
  place = std::make_shared<const Json>(std::move(object));
  if (plural == "pods") {
    Json pod = *place;
    prune_pod(pod);   // as the operator's store does: what is read must survive it
    pruned_[k8s::key_of(*place).name] = std::make_shared<const Json>(std::move(pod));
  }
  if (selected(plural, *place)) events_[plural].push_back({false, plural == "pods" ? pruned_[k8s::key_of(*place).name] : place});
  remember();
  return *place;
}

void FakeCluster::drop(const std::string& plural, const Key& key) {
  const auto place = objects_.find({plural, key});
  Json last = *place->second;
  last["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects_.erase(place);
  if (selected(plural, last)) events_[plural].push_back({true, std::make_shared<const Json>(std::move(last))});
  remember();
}

const std::vector<FakeCluster::Event>& FakeCluster::events(const std::string& plural) const {
  static const std::vector<Event> none;
  const auto found = events_.find(plural);
  return found == events_.end() ? none : found->second;
}

std::vector<k8s::ObjectPtr> FakeCluster::watched(const std::string& plural) const {
  std::vector<k8s::ObjectPtr> out = list(plural);
  std::erase_if(out, [&](const auto& object) { return !selected(plural, *object); });
  if (plural != "pods") return out;
  for (auto& pod : out) pod = pruned_.at(k8s::key_of(*pod).name);
  return out;
}

std::vector<k8s::ObjectPtr> FakeCluster::list(const std::string& plural) const {
  std::vector<k8s::ObjectPtr> out;
  for (auto at = objects_.lower_bound({plural, {}}); at != objects_.end() && at->first.first == plural; ++at) out.push_back(at->second);
  return out;
}

void FakeCluster::put(const char* plural, Json object, bool anew) {
  if (anew) object["metadata"]["uid"] = "uid-" + std::to_string(++uids_);
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

void FakeCluster::change_pod(const std::string& name, const std::function<void(Json&)>& change) {
  Json pod = *find("pods", name);
  change(pod);
  store("pods", std::move(pod));
}

void FakeCluster::show_devices(int count) {
  Json node = *find("nodes", "node-a");
  node["status"]["allocatable"]["nvidia.com/gpu"] = std::to_string(count);
  store("nodes", std::move(node));
}

void FakeCluster::delete_pod(const std::string& name) {
  Json pod = *find("pods", name);
  pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
  store("pods", std::move(pod));
}

std::vector<Json> FakeCluster::all(const std::string& plural) const {
  std::vector<Json> out;
  for (const auto& [where, object] : objects_) {
    if (where.first == plural) out.push_back(*object);
  }
  return out;
}

const Json* FakeCluster::find(const std::string& plural, const std::string& name) const {
  auto place = objects_.find({plural, Key{"ns", name}});
  if (place == objects_.end()) place = objects_.find({plural, Key{"", name}});
  return place == objects_.end() ? nullptr : place->second.get();
}

std::vector<std::string> FakeCluster::pod_names() const {
  std::vector<std::string> out;
  for (const Json& pod : all("pods")) out.push_back(k8s::key_of(pod).name);
  return out;
}

const Json* FakeCluster::condition(const std::string& type) const { return k8s::find_condition(op::at(model(), "/status/conditions"), type); }
std::string FakeCluster::reason(const std::string& type) const { return condition(type) ? k8s::string_at(*condition(type), "/reason") : ""; }
bool FakeCluster::is_true(const std::string& type) const { return k8s::condition_is_true(op::at(model(), "/status/conditions"), type); }

bool FakeCluster::waits() const {
  if (!find("parallelmodels", model_name)) return false;
  if (reason("Ready") == "BackingOff" || reason("Scheduled") == "GroupWaiting") return true;
  const Json& groups = op::at(model(), "/status/groups");
  return groups.is_array() && !is_true("Stalled") && std::any_of(groups.begin(), groups.end(), [](const Json& group) { return group.contains("former"); });
}

Snapshot FakeCluster::snapshot_of(const Objects& objects) const {
  Snapshot out{.now = now_};
  out.probes = probes;
  out.nodes.emplace();
  if (const auto model = objects.find({"parallelmodels", Key{"ns", model_name}}); model != objects.end()) out.model = model->second;
  for (const auto& [where, object] : objects) {
    if (where.first == "nodes") out.nodes->push_back(object);
    const auto owner = k8s::controller_of(*object);
    if (!out.model || !owner || owner->uid != k8s::uid_of(*out.model)) continue;
    if (where.first == "pods") {
      const auto kept = pruned_.find(where.second.name);
      if (kept != pruned_.end() && k8s::version_of(*kept->second) == k8s::version_of(*object)) {
        out.pods.push_back(kept->second);
        continue;
      }
      Json pod = *object;
      prune_pod(pod);
      out.pods.push_back(std::make_shared<const Json>(std::move(pod)));
    }
    if (where.first == "configmaps") out.config_maps.push_back(object);
    if (where.first == "services") out.services.push_back(object);
    if (where.first == "poddisruptionbudgets") out.budgets.push_back(object);
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
  if (request.resource == PodMonitors && !serves_monitors) return error(Failure::NotFound, 404, "the server could not find the requested resource");
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  const ApiError absent = error(Failure::NotFound, 404, request.resource.plural + " \"" + request.name + "\" not found");
  switch (request.verb) {
    case Verb::Create: return create(request);
    case Verb::Apply: return place == objects_.end() ? Response(error(Failure::Conflict, 409, "uid mismatch: there is none")) : apply(request, *place->second);
    case Verb::Delete: return erase(request);
    case Verb::List: return Json{{"items", Json::array({{{"reason", "Scheduled"}, {"note", "assigned"}}, {{"reason", kubelet_says}, {"note", mount_failure + worker_mount_failure}}})}};
    case Verb::Get: return place == objects_.end() ? Response(absent) : Response(*place->second);
    case Verb::MergePatch: return place == objects_.end() ? Response(absent) : patch(request, *place->second);
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
  if (request.resource == k8s::Services) {
    for (Json& port : object["spec"]["ports"]) port["protocol"] = "TCP";   // a default of the server
  }
  if (request.resource == k8s::Services || request.resource == k8s::PodDisruptionBudgets || request.resource == PodMonitors) {
    object["metadata"]["managedFields"] = Json::array({{{"manager", request.field_manager}, {"operation", "Update"}, {"fieldsV1", {{"ports", ports_of(object)}}}}});
  }
  return store(request.resource.plural, std::move(object));
}

/// Merge patch with the precondition of a resourceVersion; a write without effect changes nothing.
Response FakeCluster::patch(const Request& request, const Json& object) {
  const std::string expected = k8s::version_of(request.body);
  if (!expected.empty() && expected != k8s::version_of(object)) return error(Failure::Conflict, 409, "the object has been modified");
  Json body = request.body;
  if (request.subresource == "status") body = {{"status", body.value("status", Json::object())}};
  body.erase("metadata");
  for (const char* map : {"annotations", "labels", "managedFields"}) {
    if (request.body.contains("metadata") && request.body["metadata"].contains(map)) body["metadata"][map] = request.body["metadata"][map];
  }
  Json next = object;
  next.merge_patch(body);
  if (next == object) return object;
  return store(request.resource.plural, std::move(next));
}

/// Server-side apply by one manager: ports merge by number, and those that its applies own and do not name any more go. What it created it owns as an
/// update, and that stays until it is handed over.
Response FakeCluster::apply(const Request& request, const Json& object) {
  if (k8s::string_at(request.body, "/metadata/uid") != k8s::uid_of(object)) return error(Failure::Conflict, 409, "uid mismatch");
  Json next = object, body = request.body;
  Json* own = nullptr;
  for (Json& entry : next["metadata"]["managedFields"]) {
    if (entry["manager"] == request.field_manager && entry["operation"] == "Apply") own = &entry;
  }
  const Json owned = own ? (*own)["fieldsV1"]["ports"] : Json::object();
  if (!own) own = &next["metadata"]["managedFields"].emplace_back(Json{{"manager", request.field_manager}, {"operation", "Apply"}});
  (*own)["fieldsV1"] = {{"ports", ports_of(body)}};
  if (body["spec"].contains("ports")) {
    Json ports = Json::array();
    for (const Json& port : object["spec"]["ports"]) {
      const std::string number = port["port"].dump();
      if (!owned.contains(number) && !ports_of(body).contains(number)) ports.push_back(port);
    }
    for (Json port : body["spec"]["ports"]) port["protocol"] = "TCP", ports.push_back(std::move(port));
    std::set<std::string> names;
    for (const Json& port : ports) {
      if (!names.insert(k8s::string_at(port, "/name")).second) return error(Failure::Invalid, 422, "spec.ports: Duplicate value: " + port.dump());
    }
    body["spec"]["ports"] = std::move(ports);
  }
  next["spec"].merge_patch(body["spec"]);
  next["metadata"]["labels"].merge_patch(body["metadata"]["labels"]);
  if (!body["metadata"].contains("ownerReferences")) next["metadata"].erase("ownerReferences");
  if (undoes) undoes(next);
  if (next == object) return object;
  return store(request.resource.plural, std::move(next));
}

Response FakeCluster::erase(const Request& request) {
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  if (place == objects_.end()) return error(Failure::NotFound, 404, "not found");
  if (k8s::string_at(request.body, "/preconditions/uid") != k8s::uid_of(*place->second)) return error(Failure::Conflict, 409, "uid mismatch");
  const bool lives_on = request.resource == k8s::Pods && running(*place->second) && integer_at(request.body, "/gracePeriodSeconds") != 0;
  if (lives_on) {
    Json pod = *place->second;
    if (k8s::being_deleted(pod)) return pod;
    pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
    return store("pods", std::move(pod));
  }
  const Json gone = *place->second;
  drop(request.resource.plural, place->first.second);
  return gone;
}

/// The promises about incarnations, at the moment when they could be broken.
void FakeCluster::check_pod(const Json& pod) {
  const std::string group = k8s::label_of(pod, label::group), incarnation = k8s::label_of(pod, label::incarnation), name = k8s::key_of(pod).name;
  const Json* model = find("parallelmodels", model_name);
  const auto owner = k8s::controller_of(pod);
  if (group.empty() || (model && owner && owner->uid != k8s::uid_of(*model))) return;   // of a deleted namesake: collected at once
  bool written = false;
  std::string former;   // lives on beside its successor
  for (const Json& record : model ? op::at(*model, "/status/groups") : Json::array()) {
    if (std::to_string(record["index"].get<int>()) != group || std::to_string(record["incarnation"].get<int>()) != incarnation) continue;
    written = true;
    if (record.contains("former")) former = record["former"].dump();
  }
  if (model && !written) violations.push_back(name + " is made before its incarnation is written");
  for (const auto& other : list("pods")) {
    const std::string theirs = k8s::label_of(*other, label::incarnation);
    if (k8s::label_of(*other, label::group) != group || ended(*other) || (k8s::being_deleted(*other) && dead(*other))) continue;
    if (theirs == incarnation && k8s::label_of(*other, label::node_rank) == k8s::label_of(pod, label::node_rank)) violations.push_back(name + " is made twice");
    if (theirs != incarnation && theirs != former) violations.push_back(name + " is made while " + k8s::key_of(*other).name + " lives");
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
  for (const auto& model : list("parallelmodels")) uids.insert(k8s::uid_of(*model));
  std::vector<std::pair<std::string, Key>> orphans;
  for (const auto& [where, object] : objects_) {
    const auto owner = k8s::controller_of(*object);
    if (owner && owner->kind == "ParallelModel" && !uids.contains(owner->uid)) orphans.push_back(where);
  }
  for (const auto& [plural, key] : orphans) drop(plural, key);
}

/// Onto the first living node with room.
void FakeCluster::bind(Json& pod) {
  const auto wants = [](const Json& one) { return std::stoi(one["spec"]["containers"][0]["resources"]["limits"].value("nvidia.com/gpu", "0")); };
  if (!claim_exists || (claim_goes && k8s::label_of(pod, label::role) != "inspect")) return set_condition(pod, "PodScheduled", false, now_, "Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"models\" not found.");
  for (const Json& volume : pod["spec"]["volumes"]) {
    const std::string claim = k8s::string_at(volume, "/persistentVolumeClaim/claimName");
    if (!claim.empty() && claim != "models" && !find("persistentvolumeclaims", claim)) {
      return set_condition(pod, "PodScheduled", false, now_, "Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"" + claim + "\" not found.");
    }
  }
  std::map<std::string, int> room = more_nodes_;
  room["node-a"] = devices;
  for (const auto& other : list("pods")) {
    if (other->at("spec").contains("nodeName") && !ended(*other)) room[k8s::string_at(*other, "/spec/nodeName")] -= wants(*other);
  }
  for (const auto& [name, free] : room) {
    if (dead_nodes_.contains(name) || free < wants(pod)) continue;
    pod["spec"]["nodeName"] = name;
    return set_condition(pod, "PodScheduled", true, now_);
  }
  set_condition(pod, "PodScheduled", false, now_, "Unschedulable", "0/" + std::to_string(room.size()) + " nodes are available: 1 Insufficient nvidia.com/gpu.");
}

void FakeCluster::run_pod(Json& pod) {
  const bool inspects = k8s::label_of(pod, label::role) == "inspect", fetches = k8s::label_of(pod, label::role) == "fetch";
  if (!pod["spec"].contains("nodeName")) return bind(pod);
  if (ended(pod)) return;
  if (!running(pod)) {
    if (!mount_failure.empty() || (!inspects && !worker_mount_failure.empty()) || lacks_volume(pod)) return set_container(pod, {{"waiting", {{"reason", "ContainerCreating"}}}});
    if (!workers_start && !inspects && !fetches) return set_container(pod, {{"waiting", {{"reason", waiting_reason}, {"message", waiting_reason + " of \"w\""}}}});
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
  if (fetches) {
    set_condition(pod, "Ready", true, now_);
    if (!fetches_end) return;
    set_container(pod, {{"terminated", {{"exitCode", fetch_failure ? 3 : 0}, {"reason", "x"}, {"finishedAt", k8s::format_time(now_)}, {"message", fetch_failure ? fetch_failure->dump() : "{}"}}}});
    pod["status"]["phase"] = fetch_failure ? "Failed" : "Succeeded";
    return;
  }
  set_condition(pod, "Ready", may_be_ready(pod), now_);
}

/// Another second changes nothing.
bool FakeCluster::rests(const Json& pod) const {
  if (ended(pod)) return op::at(pod, "/spec/nodeName").is_string();
  const Json* ready = running(pod) ? k8s::find_condition(op::at(pod, "/status/conditions"), "Ready") : nullptr;
  return ready && k8s::label_of(pod, label::role) != "inspect" && (k8s::label_of(pod, label::role) != "fetch" || !fetches_end) && (k8s::string_at(*ready, "/status") == "True") == may_be_ready(pod);
}

void FakeCluster::tick() {
  now_ += std::chrono::seconds(1);
  if (collects) collect();
  for (const auto& pod : list("pods")) {
    if (dead(*pod)) continue;
    if (k8s::being_deleted(*pod)) {
      const bool drained = *k8s::parse_time(k8s::string_at(*pod, "/metadata/deletionTimestamp")) + std::chrono::seconds(drain_seconds) < now_;
      if (drained) drop("pods", k8s::key_of(*pod));
      continue;
    }
    if (rests(*pod)) continue;
    Json next = *pod;
    run_pod(next);
    if (next != *pod) store("pods", std::move(next));
  }
}

Json FakeCluster::state() const {
  Json out = Json::array({k8s::format_time(now_)});
  for (const auto& [where, object] : objects_) {
    Json& plain = out.emplace_back(*object);
    plain["metadata"].erase("resourceVersion");
    if (where.first != "parallelmodels") plain["metadata"].erase("uid");
  }
  return out;
}

Json FakeCluster::digest() const {
  Json out = Json::array();
  for (const auto& [where, object] : objects_) {
    Json plain = *object;
    Json& metadata = plain["metadata"];
    for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "managedFields"}) metadata.erase(key);
    if (metadata.contains("ownerReferences")) metadata["ownerReferences"][0].erase("uid");
    if (plain.contains("status")) strip_status(plain["status"]);
    out.push_back({where.first, plain});
  }
  return out;
}

Json FakeCluster::shape() const {
  Json out = Json::object();
  for (const auto& [where, object] : objects_) {
    const auto& [plural, key] = where;
    if (plural == "pods") out["pods"].push_back({k8s::label_of(*object, label::role), k8s::label_of(*object, label::group), k8s::label_of(*object, label::node_rank), k8s::label_of(*object, label::pod_hash), ended(*object)});
    else if (plural == "services") out[plural][key.name] = op::at(*object, "/spec/ports/0/port");   // defaults of the server differ after a patch
    else if (plural != "parallelmodels") out[plural][key.name] = {op::at(*object, "/spec"), op::at(*object, "/data")};
  }
  if (out.contains("pods")) std::sort(out["pods"].begin(), out["pods"].end());
  const Json* model = find("parallelmodels", model_name);
  const Json& status = model ? op::at(*model, "/status") : op::at(Json(), "/none");
  const Json generation = model ? op::at(*model, "/metadata/generation") : Json();   // begins anew with a new object
  out["status"]["observes"] = op::at(status, "/observedGeneration") == generation;
  for (const char* key : {"replicas", "readyReplicas", "updatedReplicas", "plan", "endpoint"}) out["status"][key] = op::at(status, std::string("/") + key);
  for (const Json& condition : op::at(status, "/conditions")) out["status"]["conditions"][k8s::string_at(condition, "/type")] = {condition["status"], condition["reason"], condition["observedGeneration"] == generation};
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
    const int64_t before = cluster_.version();
    Response response = how == Fault::AnswerLostUndone ? Response(error(Failure::Transient, 0, "connection refused")) : cluster_.send(call->request);
    if (how == Fault::AfterRequest || (one_request_lives && cluster_.version() != before)) return false;
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
    still = cluster_.version() == before && good && !cluster_.waits() ? still + 1 : 0;
    if (still >= quiet) return true;
  }
  return false;
}

}  // namespace pm::op::test
