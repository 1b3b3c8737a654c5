// SPDX-License-Identifier: Apache-2.0
// Builds the HTTPRoute, by which Gateways send requests to a model and a share of them to its canaries.
#include "contract/ports.h"
#include "controller/core/conditions.h"
#include "controller/core/object.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

namespace {

/// Returns the backend that stands for a model: its InferencePool where it has one and the cluster has pools, else its
/// Service.
Json backend(const Json& model, int weight, bool serves_pools) {
  Json out{{"name", k8s::key_of(model).name}, {"weight", weight}};
  if (serves_pools && at(model, "/spec/router/inferencePool").is_object()) {
    out["group"] = inference_pools_resource.group;
    out["kind"] = inference_pools_resource.kind;
  } else {
    out["group"] = "";
    out["kind"] = k8s::services_resource.kind;
    out["port"] = integer_at(model, "/spec/service/port").value_or(http_port);
  }
  return out;
}

Json parent(const GatewayRef& gateway) {
  Json out{{"group", http_routes_resource.group}, {"kind", "Gateway"}, {"name", gateway.name}};
  if (!gateway.ns.empty()) out["namespace"] = gateway.ns;
  if (!gateway.section.empty()) out["sectionName"] = gateway.section;
  return out;
}

}  // namespace

std::string no_share(const Canary& canary, const Snapshot& snapshot) {
  const auto found = snapshot.canaries.find(canary.name);
  if (found == snapshot.canaries.end() || !found->second || k8s::being_deleted(*found->second))
    return "there is no ParallelModel of this name";
  if (!k8s::condition_is_true(at(*found->second, "/status/conditions"), "Ready")) return "it does not serve";
  return "";
}

std::string gateway_complaint(const Json& route) {
  std::string out;
  for (const Json& parent : at(route, "/status/parents")) {
    for (const char* type : {"Accepted", "ResolvedRefs"}) {
      const Json* condition = k8s::find_condition(at(parent, "/conditions"), type);
      if (!condition || condition->value("status", "") != "False") continue;
      out += (out.empty() ? "Gateway " : "; Gateway ") + clip(k8s::string_at(parent, "/parentRef/name"), 100) + ": " +
             type + "=False, " + clip(condition->value("reason", "") + ": " + condition->value("message", ""), 300);
    }
  }
  return clip(out, 700);
}

Json http_route(const Owner& owner, const Spec& spec, const Snapshot& snapshot) {
  const Route route = spec.route.value_or(Route{});
  const bool pools = snapshot.serves_pools;
  Json parents = Json::array(), backends = Json::array({backend(*snapshot.model, route.weight, pools)});
  for (const GatewayRef& gateway : route.gateways) parents.push_back(parent(gateway));
  for (const Canary& canary : route.canaries) {
    if (no_share(canary, snapshot).empty())
      backends.push_back(backend(*snapshot.canaries.at(canary.name), canary.weight, pools));
  }
  Json wanted{{"parentRefs", std::move(parents)},
              {"hostnames", route.hostnames},
              {"rules", Json::array({{{"backendRefs", std::move(backends)}}})}};
  return with_hash({{"apiVersion", k8s::api_version_of(http_routes_resource)},
                    {"kind", http_routes_resource.kind},
                    {"metadata", child_metadata(owner, owner.key.name, "route")},
                    {"spec", std::move(wanted)}});
}

}  // namespace pm::op
