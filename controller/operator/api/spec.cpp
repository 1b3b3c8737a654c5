// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/spec.h"

#include <algorithm>
#include <ranges>
#include <set>
#include <stdexcept>

#include "base/quantity.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/stable_hash.h"
#include "planner/strategy_names.h"

namespace pm::op {

namespace {

constexpr int64_t max_weight = 1'000'000;  // of the Gateway API
constexpr std::string_view ngram_speculation = "NGram", mtp_speculation = "MTP", draft_speculation = "DraftModel";

/// Reads the fields below one path of the object and names the path in errors.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  std::string text(const std::string& pointer) const { return k8s::string_at(object_, pointer); }
  /// Reads an integer into `value`, which holds the default.
  template <typename Integer>
  void integer(const std::string& pointer, int64_t least, int64_t most, Integer& value) const {
    if (const auto found = optional_integer(pointer, least, most)) value = static_cast<Integer>(*found);
  }
  std::optional<int64_t> optional_integer(const std::string& pointer, int64_t least, int64_t most) const {
    if (at(object_, pointer).is_null()) return std::nullopt;
    const auto value = integer_at(object_, pointer);
    if (!value || *value < least || *value > most) {
      fail(pointer, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }
  void seconds(const std::string& pointer, std::chrono::seconds& value) const {
    if (const auto found = optional_integer(pointer, 0, 604800)) value = std::chrono::seconds(*found);
  }
  std::optional<int64_t> quantity(const std::string& pointer, bool milli = false) const {
    const Json& value = at(object_, pointer);
    if (value.is_null()) return std::nullopt;
    std::optional<int64_t> out;
    if (!milli)
      out = base::quantity_of(value);
    else if (value.is_string())
      out = base::parse_milli(value.get<std::string>());
    else if (value.is_number())
      out = base::parse_milli(value.dump());
    if (!out || *out <= 0) fail(pointer, "must be a quantity above zero, such as 80Gi, 500m or 16");
    return out;
  }
  std::map<std::string, std::string> texts(const std::string& pointer) const {
    std::map<std::string, std::string> out;
    const Json& value = at(object_, pointer);
    if (!value.is_object()) return out;
    for (const auto& [key, text] : value.items()) {
      if (text.is_string()) out[key] = text.get<std::string>();
    }
    return out;
  }
  void flag(const std::string& pointer, bool& value) const {
    if (at(object_, pointer).is_boolean()) value = at(object_, pointer).get<bool>();
  }
  /// Reads a string that is not empty.
  void text(const std::string& pointer, std::string& value) const {
    if (std::string found = text(pointer); !found.empty()) value = std::move(found);
  }
  Json array(const std::string& pointer) const {
    return at(object_, pointer).is_array() ? at(object_, pointer) : Json::array();
  }
  Json object(const std::string& pointer) const {
    return at(object_, pointer).is_object() ? at(object_, pointer) : Json::object();
  }

  [[noreturn]] static void fail(std::string pointer, const std::string& message) {
    for (char& c : pointer) c = c == '/' ? '.' : c;
    throw std::invalid_argument(pointer.substr(1) + " " + message);
  }

 private:
  const Json& object_;
};

Source hub_source_of(const Reader& reader, const std::string& id, const std::string& model) {
  const std::string cache = "/spec/model/cache";
  HubSource hub{.id = id};
  if (id.empty() || id.find("..") != std::string::npos || std::count(id.begin(), id.end(), '/') > 1)
    Reader::fail("/spec/model/source", "must be hf://ORG/NAME");
  reader.text("/spec/model/revision", hub.revision);
  hub.token_secret = reader.text("/spec/model/tokenSecretRef/name");
  reader.text("/spec/model/tokenSecretRef/key", hub.token_key);
  const std::string claim = reader.text(cache + "/claimName");
  hub.own_claim = claim.empty();
  hub.size = reader.quantity(cache + "/size");
  hub.storage_class = reader.text(cache + "/storageClassName");
  hub.access_mode = reader.text(cache + "/accessMode");
  reader.flag(cache + "/retain", hub.retain);
  return {hub.own_claim ? cache_claim_name(model) : claim, "", hub, {}};
}

/// Returns a path without slashes at its ends.
std::string relative_path(std::string path, const std::string& field) {
  path.erase(0, std::min(path.find_first_not_of('/'), path.size()));
  while (!path.empty() && path.back() == '/') path.pop_back();
  if (("/" + path + "/").find("/../") != std::string::npos) Reader::fail(field, "must not contain ..");
  return path;
}

/// The digest is required: by a tag, two nodes could hold two contents. `parent` has the fields source and path.
Source image_source_of(const Reader& reader, const std::string& parent, const std::string& reference) {
  constexpr std::string_view algorithm = "@sha256:";
  constexpr size_t digits = 64;
  const size_t at = reference.find(algorithm);
  const std::string digest = at == std::string::npos ? "" : reference.substr(at + algorithm.size());
  if (at == 0 || digest.size() != digits || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    Reader::fail(parent + "/source", "must name an image by its digest: oci://REGISTRY/NAME@sha256:HEX");
  return {"", relative_path(reader.text(parent + "/path"), parent + "/path"), std::nullopt, reference};
}

/// Reads a source that is mounted, of a PVC or an image; nullopt for other schemes.
std::optional<Source> mounted_source_of(const Reader& reader, const std::string& parent) {
  const std::string text = reader.text(parent + "/source"), scheme = "pvc://", image = "oci://";
  if (text.starts_with(image)) return image_source_of(reader, parent, text.substr(image.size()));
  if (!text.starts_with(scheme)) return std::nullopt;
  const std::string rest = text.substr(scheme.size());
  const size_t slash = rest.find('/');
  Source source{rest.substr(0, slash),
                slash == std::string::npos ? "" : relative_path(rest.substr(slash + 1), parent + "/source"),
                std::nullopt,
                {}};
  if (source.claim.empty())
    Reader::fail(parent + "/source", "is '" + text + "' and names no PVC: expected pvc://CLAIM/PATH");
  return source;
}

Source source_of(const Reader& reader, const std::string& model) {
  const std::string text = reader.text("/spec/model/source"), hub = "hf://";
  if (text.starts_with(hub)) return hub_source_of(reader, text.substr(hub.size()), model);
  if (auto source = mounted_source_of(reader, "/spec/model")) return *std::move(source);
  Reader::fail("/spec/model/source",
               "is '" + text + "', expected pvc://CLAIM/PATH, hf://ORG/NAME or oci://REGISTRY/NAME@sha256:HEX");
}

/// Reads the adapters. `names` are those of the model in the API.
std::vector<Adapter> adapters_of(const Reader& reader, const std::vector<std::string>& names) {
  std::vector<Adapter> out;
  std::set<std::string> taken(names.begin(), names.end());
  for (const size_t i : std::views::iota(size_t{0}, reader.array("/spec/model/adapters").size())) {
    const std::string field = "/spec/model/adapters/" + std::to_string(i), name = reader.text(field + "/name");
    if (name.empty() || name.find('=') != std::string::npos)
      Reader::fail(field + "/name", "is '" + name + "', expected letters, digits and -._/: between them");
    if (!taken.insert(name).second)
      Reader::fail(field + "/name", "is '" + name + "', which the model or another adapter has; each has its own name");
    auto source = mounted_source_of(reader, field);
    if (!source)
      Reader::fail(field + "/source", "is '" + reader.text(field + "/source") +
                                          "', expected pvc://CLAIM/PATH or oci://REGISTRY/NAME@sha256:HEX");
    out.push_back({name, *std::move(source)});
  }
  return out;
}

/// Reads the draft model. To name it switches its speculation on, as vLLM's speculative config of a model does;
/// `speculation` is what the spec says beside it.
std::optional<Source> draft_of(const Reader& reader, const std::string& speculation) {
  const std::string field = "/spec/model/draft", kind = "/spec/serving/speculation";
  if (reader.object(field).empty()) {
    if (speculation == draft_speculation)
      Reader::fail(kind, "is " + speculation + ", which needs a draft model: set spec.model.draft.source");
    return std::nullopt;
  }
  if (!speculation.empty() && speculation != draft_speculation)
    Reader::fail(kind, "is " + speculation + " beside spec.model.draft, and one of them drafts: remove the other");
  auto source = mounted_source_of(reader, field);
  if (!source)
    Reader::fail(field + "/source", "is '" + reader.text(field + "/source") +
                                        "', expected pvc://CLAIM/PATH or oci://REGISTRY/NAME@sha256:HEX; download a "
                                        "draft model of the hub to a PVC");
  return source;
}

DeviceClaim device_claim_of(const Reader& reader) {
  const std::string field = "/spec/devices/claim";
  DeviceClaim claim{reader.text(field + "/deviceClassName"), {}, reader.text(field + "/matchAttribute")};
  if (claim.device_class.empty() ||
      claim.device_class.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") != std::string::npos)
    Reader::fail(field + "/deviceClassName", "is '" + claim.device_class + "', expected the name of a DeviceClass");
  for (const Json& selector : reader.array(field + "/selectors")) {
    if (selector.is_string()) claim.selectors.push_back(selector.get<std::string>());
  }
  if (!reader.text("/spec/devices/resource").empty())
    Reader::fail(field, "must not be set beside devices.resource: both say which devices a pod gets");
  return claim;
}

Devices devices_of(const Reader& reader) {
  Devices devices;
  reader.integer("/spec/devices/count", 1, 1024, devices.count);
  devices.kind = reader.text("/spec/devices/type") == "CPU" ? DeviceKind::CPU : DeviceKind::GPU;
  devices.resource = reader.text("/spec/devices/resource");
  if (!reader.object("/spec/devices/claim").empty()) devices.claim = device_claim_of(reader);
  if (devices.resource.empty() && devices.kind == DeviceKind::GPU && !devices.claim)
    devices.resource = "nvidia.com/gpu";
  devices.memory = reader.quantity("/spec/devices/memory");
  devices.per_node = devices.count;
  reader.integer("/spec/devices/perNode", 1, devices.count, devices.per_node);
  return devices;
}

Update update_of(const Reader& reader) {
  Update out;
  reader.integer("/spec/update/maxSurge", 0, 64, out.max_surge);
  reader.integer("/spec/update/maxUnavailable", 0, 64, out.max_unavailable);
  if (out.max_surge == 0 && out.max_unavailable == 0)
    Reader::fail("/spec/update",
                 "must allow maxSurge or maxUnavailable above 0, otherwise no replica could ever be replaced");
  reader.seconds("/spec/update/surgeTimeoutSeconds", out.surge_timeout);
  reader.seconds("/spec/update/drainSeconds", out.drain);
  return out;
}

FailurePolicy failure_of(const Reader& reader) {
  FailurePolicy out;
  reader.integer("/spec/failure/maxRestarts", 0, 20, out.max_restarts);
  reader.seconds("/spec/failure/windowSeconds", out.window);
  reader.seconds("/spec/failure/backoffBaseSeconds", out.backoff_base);
  reader.seconds("/spec/failure/backoffMaxSeconds", out.backoff_max);
  reader.seconds("/spec/failure/hangTimeoutSeconds", out.hang_timeout);
  reader.seconds("/spec/failure/startSeconds", out.start);
  return out;
}

Worker worker_of(const Reader& reader) {
  Worker out;
  out.image = reader.text("/spec/worker/image");
  out.pull_policy = reader.text("/spec/worker/imagePullPolicy");
  out.service_account = reader.text("/spec/worker/serviceAccountName");
  out.pull_secrets = reader.array("/spec/worker/imagePullSecrets");
  out.env = reader.array("/spec/worker/env");
  out.labels = reader.texts("/spec/worker/labels");
  out.annotations = reader.texts("/spec/worker/annotations");
  out.extra_resources = reader.object("/spec/worker/extraResources");
  for (const Json& argument : reader.array("/spec/worker/extraArgs")) {
    if (argument.is_string()) out.extra_args.push_back(argument.get<std::string>());
  }
  return out;
}

std::vector<NetworkPeer> peers_of(const Reader& reader, const std::string& pointer) {
  std::vector<NetworkPeer> out;
  for (const size_t i : std::views::iota(size_t{0}, reader.array(pointer).size())) {
    const std::string peer = pointer + "/" + std::to_string(i);
    out.push_back(
        {reader.texts(peer + "/namespaceLabels"), reader.texts(peer + "/podLabels"), reader.text(peer + "/cidr")});
  }
  return out;
}

void read_router(const Reader& reader, Spec& spec) {
  const std::string picker = "/spec/router/inferencePool/endpointPicker", route = "/spec/router/httpRoute";
  if (!reader.object("/spec/router/inferencePool").empty()) {
    EndpointPicker& out = spec.endpoint_picker.emplace();
    out.name = reader.text(picker + "/name");
    reader.integer(picker + "/port", 1, 65535, out.port);
    reader.text(picker + "/failureMode", out.failure_mode);
  }
  if (reader.object(route).empty()) return;
  Route& out = spec.route.emplace();
  for (const Json& gateway : reader.array(route + "/gateways")) {
    out.gateways.push_back({k8s::string_at(gateway, "/name"), k8s::string_at(gateway, "/namespace"),
                            k8s::string_at(gateway, "/sectionName")});
  }
  for (const Json& host : reader.array(route + "/hostnames")) {
    if (host.is_string()) out.hostnames.push_back(host.get<std::string>());
  }
  reader.integer(route + "/weight", 0, max_weight, out.weight);
  for (const size_t i : std::views::iota(size_t{0}, reader.array(route + "/canaries").size())) {
    const std::string canary = route + "/canaries/" + std::to_string(i);
    out.canaries.push_back({reader.text(canary + "/name")});
    reader.integer(canary + "/weight", 0, max_weight, out.canaries.back().weight);
  }
}

}  // namespace

Spec parse_spec(const Json& object) {
  const Reader reader(object);
  Spec spec;
  spec.source = source_of(reader, k8s::key_of(object).name);
  if (const std::string name = reader.text("/spec/model/policyRef/name"); !name.empty()) {
    spec.policy_ref = PolicyRef{name, reader.text("/spec/model/policyRef/key")};
  }
  spec.devices = devices_of(reader);
  if (const std::string name = reader.text("/spec/parallelism/strategy"); !name.empty()) {
    spec.strategy = strategy_of(name);
    if (!spec.strategy) Reader::fail("/spec/parallelism/strategy", advice_on(name));
  }
  for (const auto& [field, size] : {std::pair{"sizes/tensor", &spec.tensor},
                                    {"sizes/pipeline", &spec.pipeline},
                                    {"sizes/data", &spec.data},
                                    {"microBatches", &spec.micro_batches}}) {
    if (const auto value = reader.optional_integer(std::string("/spec/parallelism/") + field, 1, 1024))
      *size = static_cast<int>(*value);
  }
  if (const std::string name = reader.text("/spec/parallelism/offload/to"); !name.empty()) {
    spec.offload_to = residency_of(name);
    if (!spec.offload_to || spec.offload_to == Residency::Device)
      Reader::fail("/spec/parallelism/offload/to", "'" + name + "' is unknown; expected File or HostMemory");
  }
  if (const std::string name = reader.text("/spec/objective"); !name.empty()) {
    const auto objective = objective_of(name);
    if (!objective)
      Reader::fail("/spec/objective", "'" + name + "' is unknown; expected Latency, Throughput or Memory");
    spec.objective = *objective;
  }
  if (const std::string name = reader.text("/spec/precision"); !name.empty()) {
    spec.precision = precision_of(name);
    if (!spec.precision) Reader::fail("/spec/precision", "'" + name + "' is not known");
  }
  if (const std::string name = reader.text("/spec/kvPrecision"); !name.empty()) {
    spec.kv_precision = kv_precision_of(name);
    if (!spec.kv_precision) Reader::fail("/spec/kvPrecision", "'" + name + "' is unknown; expected I8");
  }
  spec.serving.max_sequence_length = reader.optional_integer("/spec/serving/maxSequenceLength", 1, 1 << 30);
  reader.integer("/spec/serving/maxConcurrency", 1, 1 << 20, spec.serving.max_concurrency);
  reader.integer("/spec/serving/maxQueue", 0, 1 << 20, spec.serving.max_queue);
  for (const Json& name : reader.array("/spec/serving/modelNames")) {
    if (name.is_string()) spec.serving.model_names.push_back(name.get<std::string>());
  }
  const std::string speculation = reader.text("/spec/serving/speculation");
  spec.serving.speculation = speculation == ngram_speculation ? "ngram" : speculation == mtp_speculation ? "mtp" : "";
  spec.draft = draft_of(reader, speculation);
  const std::string own_name = k8s::key_of(object).name;
  spec.adapters = adapters_of(
      reader, spec.serving.model_names.empty() ? std::vector<std::string>{own_name} : spec.serving.model_names);
  reader.integer("/spec/replicas", 0, 64, spec.replicas);
  spec.cpu_milli = reader.quantity("/spec/resources/cpu", true);
  spec.memory = reader.quantity("/spec/resources/memory");
  spec.shm = reader.quantity("/spec/shmSize");
  spec.scheduling.node_selector = reader.object("/spec/scheduling/nodeSelector");
  spec.scheduling.tolerations = reader.array("/spec/scheduling/tolerations");
  spec.scheduling.node_affinity = reader.object("/spec/scheduling/nodeAffinity");
  spec.scheduling.scheduler = reader.text("/spec/scheduling/schedulerName");
  spec.scheduling.priority_class = reader.text("/spec/scheduling/priorityClassName");
  spec.scheduling.runtime_class = reader.text("/spec/scheduling/runtimeClassName");
  spec.scheduling.queue = reader.text("/spec/scheduling/queueName");
  spec.scheduling.queue_priority = reader.text("/spec/scheduling/queuePriorityClassName");
  reader.flag("/spec/scheduling/podGroup", spec.scheduling.pod_group);
  reader.seconds("/spec/scheduling/scheduleTimeoutSeconds", spec.scheduling.timeout);
  reader.integer("/spec/service/port", 1, 65535, spec.service.port);
  reader.text("/spec/service/type", spec.service.type);
  spec.service.load_balancer_class = reader.text("/spec/service/loadBalancerClass");
  spec.service.external_traffic_policy = reader.text("/spec/service/externalTrafficPolicy");
  spec.service.annotations = reader.texts("/spec/service/annotations");
  spec.api_key_secret = reader.text("/spec/service/apiKeySecretRef/name");
  spec.tls_secret = reader.text("/spec/service/tlsSecretRef/name");
  spec.update = update_of(reader);
  spec.failure = failure_of(reader);
  reader.flag("/spec/metrics/podMonitor", spec.pod_monitor);
  read_router(reader, spec);
  if (at(object, "/spec/networkPolicy").is_object())
    spec.isolation =
        Isolation{peers_of(reader, "/spec/networkPolicy/apiFrom"), peers_of(reader, "/spec/networkPolicy/adminFrom")};
  spec.worker = worker_of(reader);
  return spec;
}

std::vector<std::string> canary_names(const Json& object) {
  std::vector<std::string> names;
  for (const Json& canary : Reader(object).array("/spec/router/httpRoute/canaries"))
    names.push_back(k8s::string_at(canary, "/name"));
  return names;
}

Owner parse_owner(const Json& object) {
  return {k8s::key_of(object), k8s::uid_of(object), annotation_of(object, annotation::restarted_at),
          integer_at(object, "/metadata/generation").value_or(0),
          k8s::owner_reference(parallel_models_resource, object)};
}

std::string source_hash(const Spec& spec, const Owner& owner, const std::string& policy_copy) {
  Json source{{"claim", spec.source.claim}, {"path", spec.source.path}, {"restartedAt", owner.restarted_at}};
  if (spec.source.hub) source["hub"] = {{"id", spec.source.hub->id}, {"revision", spec.source.hub->revision}};
  if (!spec.source.image.empty()) source["image"] = spec.source.image;
  for (const Adapter& adapter : spec.adapters)
    source["adapters"].push_back({adapter.source.claim, adapter.source.image, adapter.source.path});
  if (spec.serving.drafts_by_module()) source["mtp"] = true;
  if (spec.draft) source["draft"] = {spec.draft->claim, spec.draft->image, spec.draft->path};
  if (!policy_copy.empty()) source["policy"] = policy_copy;
  return short_hash(source);
}

std::string inputs_hash(const Spec& spec, const Owner& owner, const std::string& policy_copy) {
  const auto given = [](const auto& value) { return value ? Json(*value) : Json(); };
  const bool shares_pod_memory = spec.devices.kind == DeviceKind::CPU && !spec.devices.memory;
  Json inputs{{"source", source_hash(spec, owner, policy_copy)},
              {"count", spec.devices.count},
              {"kind", static_cast<int>(spec.devices.kind)},
              {"deviceMemory", given(spec.devices.memory)},
              {"podMemory", shares_pod_memory ? given(spec.memory) : Json()},
              {"strategy", spec.strategy ? Json(name_of(*spec.strategy)) : Json()},
              {"tensor", given(spec.tensor)},
              {"precision", spec.precision ? Json(name_of(*spec.precision)) : Json()},
              {"length", given(spec.serving.max_sequence_length)},
              {"concurrency", spec.serving.max_concurrency}};
  for (const auto& [name, size] :
       {std::pair{"pipeline", spec.pipeline}, {"data", spec.data}, {"microBatches", spec.micro_batches}}) {
    if (size) inputs[name] = *size;
  }
  if (spec.devices.claim && spec.devices.kind == DeviceKind::GPU && !spec.devices.memory)
    inputs["claim"] = {spec.devices.claim->device_class, spec.devices.claim->selectors};
  if (spec.kv_precision) inputs["kvPrecision"] = name_of(*spec.kv_precision);
  if (spec.offload_to) inputs["offloadTo"] = name_of(*spec.offload_to);
  if (spec.devices.per_node < spec.devices.count) inputs["perNode"] = spec.devices.per_node;
  if (spec.objective != Objective::Latency) inputs["objective"] = name_of(spec.objective);
  return short_hash(inputs);
}

}  // namespace pm::op
