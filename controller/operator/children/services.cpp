// SPDX-License-Identifier: Apache-2.0
// Builds the Service of the API and the headless Service by which ranks resolve each other.
#include "contract/ports.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

Json http_service(const Owner& owner, const Spec& spec) {
  const Service& wanted = spec.service;
  Json service{{"apiVersion", "v1"},
               {"kind", "Service"},
               {"metadata", child_metadata(owner, owner.key.name, "service")},
               {"spec",
                {{"type", wanted.type},
                 {"selector", {{label::name, owner.key.name}, {label::role, "worker"}, {label::node_rank, "0"}}},
                 {"ports", Json::array({{{"name", "http"}, {"port", wanted.port}, {"targetPort", "http"}}})}}}};
  if (!wanted.load_balancer_class.empty()) service["spec"]["loadBalancerClass"] = wanted.load_balancer_class;
  if (!wanted.external_traffic_policy.empty())
    service["spec"]["externalTrafficPolicy"] = wanted.external_traffic_policy;
  if (wanted.annotations.empty() && wanted.load_balancer_class.empty() && wanted.external_traffic_policy.empty())
    return service;
  Json& annotations = service["metadata"]["annotations"] = wanted.annotations;
  annotations[annotation::wanted] =
      short_hash({wanted.annotations, wanted.load_balancer_class, wanted.external_traffic_policy});
  return service;
}

Json ranks_service(const Owner& owner) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", child_metadata(owner, ranks_service_name(owner.key.name), "ranks")},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", {{label::name, owner.key.name}, {label::role, "worker"}}},
            {"ports", Json::array({{{"name", "rendezvous"}, {"port", rendezvous_port}},
                                   {{"name", "admin"}, {"port", admin_port}}})}}}};
}

}  // namespace pm::op
