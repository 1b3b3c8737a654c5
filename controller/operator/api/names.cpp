#include "controller/operator/names.h"

namespace pm::op {

std::string inspect_pod_name(const std::string& model, int64_t generation) { return model + "-inspect-" + std::to_string(generation); }

std::string fetch_pod_name(const std::string& model) { return model + "-fetch"; }

std::string cache_claim_name(const std::string& model) { return model + "-cache"; }

std::string plan_name(const std::string& model, const std::string& plan_hash) { return model + "-plan-" + plan_hash; }

std::string policy_name(const std::string& model, const std::string& contents_hash) { return model + "-policy-" + contents_hash; }

std::string group_pod_name(const std::string& model, int group, int node_rank, int64_t incarnation) {
  return model + "-" + std::to_string(group) + "-" + std::to_string(node_rank) + "-" + std::to_string(incarnation);
}

std::string ranks_service_name(const std::string& model) { return model + "-ranks"; }

std::string rendezvous_host(const k8s::Key& model, int group, int64_t incarnation) {
  return group_pod_name(model.name, group, 0, incarnation) + "." + ranks_service_name(model.name) + "." + model.ns + ".svc";
}

std::string scale_selector(const std::string& model) {
  return label::name + "=" + model + "," + label::node_rank + "=0," + label::role + "=worker";
}

std::string endpoint_of(const k8s::Key& model, int port, bool tls) {
  return (tls ? "https://" : "http://") + model.name + "." + model.ns + ".svc:" + std::to_string(port);
}

}  // namespace pm::op
