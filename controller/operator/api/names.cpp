// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/names.h"

namespace pm::op {

std::string inspect_pod_name(const std::string& model, int64_t generation) {
  return model + "-inspect-" + std::to_string(generation);
}

std::string fetch_pod_name(const std::string& model) { return model + "-fetch"; }

std::string cache_claim_name(const std::string& model) { return model + "-cache"; }

std::string plan_name(const std::string& model, const std::string& plan_hash) { return model + "-plan-" + plan_hash; }

std::string policy_name(const std::string& model, const std::string& contents_hash) {
  return model + "-policy-" + contents_hash;
}

std::string replica_pod_name(const std::string& model, int replica, int node_rank, int64_t replica_generation) {
  return model + "-" + std::to_string(replica) + "-" + std::to_string(node_rank) + "-" +
         std::to_string(replica_generation);
}

std::string claim_template_name(const std::string& model, const std::string& contents_hash) {
  return model + "-devices-" + contents_hash;
}

std::string group_name(const std::string& model, int replica, int64_t replica_generation) {
  return model + "-" + std::to_string(replica) + "-" + std::to_string(replica_generation);
}

std::string ranks_service_name(const std::string& model) { return model + "-ranks"; }

std::string rendezvous_host(const k8s::Key& model, int replica, int64_t replica_generation) {
  return replica_pod_name(model.name, replica, 0, replica_generation) + "." + ranks_service_name(model.name) + "." +
         model.ns + ".svc";
}

std::string scale_selector(const std::string& model) {
  return label::name + "=" + model + "," + label::node_rank + "=0," + label::role + "=worker";
}

std::string endpoint_of(const k8s::Key& model, int port, bool tls) {
  return (tls ? "https://" : "http://") + model.name + "." + model.ns + ".svc:" + std::to_string(port);
}

}  // namespace pm::op
