// SPDX-License-Identifier: Apache-2.0
#include "controller/client/cluster_config.h"

#include <fstream>

namespace pm::k8s {

ClusterConfig in_cluster(const Environment& environment, const std::string& folder) {
  const auto host = environment("KUBERNETES_SERVICE_HOST"), port = environment("KUBERNETES_SERVICE_PORT");
  if (!host || host->empty() || !port || port->empty()) {
    throw ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set in a pod: is this one?");
  }
  ClusterConfig config;
  const bool v6 = host->find(':') != std::string::npos && host->front() != '[';
  parse_server(std::string("https://").append(v6 ? "[" + *host + "]" : *host).append(":").append(*port), config);
  config.ca.file = folder + "/ca.crt";
  config.token.file = folder + "/token";
  config.ca.read();  // reads both now, so that a missing mount is an error at the start
  if (config.token.read().empty()) throw ConfigError(config.token.file + " is empty");
  std::ifstream ns(folder + "/namespace");
  std::getline(ns, config.ns);
  return config;
}

}  // namespace pm::k8s
