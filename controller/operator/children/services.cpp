// SPDX-License-Identifier: Apache-2.0
// Builds the Service of the API and the headless Service by which ranks resolve each other.
#include "contract/ports.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

Json http_service(const Owner& owner, const Spec& spec) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", child_metadata(owner, owner.key.name, "service")},
          {"spec",
           {{"type", spec.service_type},
            {"selector", {{label::name, owner.key.name}, {label::role, "worker"}, {label::node_rank, "0"}}},
            {"ports", Json::array({{{"name", "http"}, {"port", spec.service_port}, {"targetPort", "http"}}})}}}};
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
