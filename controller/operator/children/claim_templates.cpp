// SPDX-License-Identifier: Apache-2.0
// Builds the ResourceClaimTemplates by which pods claim devices of a DeviceClass (docs/design/decisions/021).
#include <set>

#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

namespace {

Json template_spec(const DeviceClaim& claim, int ranks) {
  Json exactly{{"deviceClassName", claim.device_class}, {"allocationMode", "ExactCount"}, {"count", ranks}};
  for (const std::string& selector : claim.selectors)
    exactly["selectors"].push_back({{"cel", {{"expression", selector}}}});
  Json devices{{"requests", Json::array({{{"name", devices_claim}, {"exactly", std::move(exactly)}}})}};
  if (!claim.match_attribute.empty()) {
    devices["constraints"] =
        Json::array({{{"requests", Json::array({devices_claim})}, {"matchAttribute", claim.match_attribute}}});
  }
  return {{"spec", {{"devices", std::move(devices)}}}};
}

}  // namespace

std::string claim_template_of(const std::string& model, const DeviceClaim& claim, int ranks) {
  return claim_template_name(model, short_hash(template_spec(claim, ranks)));
}

std::vector<Json> claim_templates(const Owner& owner, const Spec& spec, const PodLayout& layout) {
  std::vector<Json> out;
  if (!spec.devices.claim) return out;
  for (const int ranks : std::set<int>(layout.ranks.begin(), layout.ranks.end())) {
    const std::string name = claim_template_of(owner.key.name, *spec.devices.claim, ranks);
    out.push_back({{"apiVersion", k8s::api_version_of(claim_templates_resource)},
                   {"kind", claim_templates_resource.kind},
                   {"metadata", child_metadata(owner, name, "devices")},
                   {"spec", template_spec(*spec.devices.claim, ranks)}});
  }
  return out;
}

}  // namespace pm::op
