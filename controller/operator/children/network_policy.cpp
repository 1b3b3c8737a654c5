// SPDX-License-Identifier: Apache-2.0
// Builds the NetworkPolicy, which limits who reaches the API, the admin port and the ranks of a model.
#include "contract/ports.h"
#include "controller/core/object.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

namespace {

Json peers_of(const std::vector<NetworkPeer>& peers) {
  Json out = Json::array();
  for (const NetworkPeer& peer : peers) {
    Json& one = out.emplace_back(Json::object());
    if (!peer.cidr.empty()) one["ipBlock"] = {{"cidr", peer.cidr}};
    if (!peer.namespace_labels.empty()) one["namespaceSelector"] = {{"matchLabels", peer.namespace_labels}};
    if (!peer.pod_labels.empty()) one["podSelector"] = {{"matchLabels", peer.pod_labels}};
  }
  return out;
}

Json port(int number) { return Json::array({{{"protocol", "TCP"}, {"port", number}}}); }

}  // namespace

Json network_policy(const Owner& owner, const Spec& spec, const Settings& settings) {
  const Isolation isolation = spec.isolation.value_or(Isolation{});
  const Json ranks{{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}}}};
  Json api{{"ports", port(http_port)}}, admin{{"ports", port(admin_port)}, {"from", peers_of(isolation.admin_from)}};
  if (!isolation.api_from.empty()) api["from"] = peers_of(isolation.api_from);
  if (!settings.ns.empty()) {
    admin["from"].push_back({{"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", settings.ns}}}}},
                             {"podSelector", {{"matchLabels", {{"app.kubernetes.io/component", "controller"}}}}}});
  }
  Json rules = Json::array({{{"from", Json::array({{{"podSelector", ranks}}})}}, std::move(api)});
  if (!admin["from"].empty()) rules.push_back(std::move(admin));  // a rule without peers would admit everybody
  Json wanted{{"podSelector", ranks}, {"policyTypes", {"Ingress"}}, {"ingress", std::move(rules)}};
  return with_hash({{"apiVersion", k8s::api_version_of(network_policies_resource)},
                    {"kind", network_policies_resource.kind},
                    {"metadata", child_metadata(owner, owner.key.name, "network")},
                    {"spec", std::move(wanted)}});
}

}  // namespace pm::op
