// SPDX-License-Identifier: Apache-2.0
// Declares the command line of the controller.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pm {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Flags {
  std::string kubeconfig;
  std::string ns;  ///< "": all namespaces
  std::string worker_image, worker_cuda_image;
  int metrics_port = 8080, probe_port = 8081;
  int workers = 16;             ///< they mostly wait for the API server
  int qps = 500, burst = 1000;  ///< requests per second to the API server, and burst; qps 0: no limit
  bool read_nodes = true;
  bool leader_elect = false;
  std::string lease_ns;  ///< "": that of the kubeconfig or of the pod
  std::string lease = "parallelmodel-controller";
  bool worker_read_only_root = true;
  bool help = false, version = false;
};

/// Parses "--name value", "--name=value", and "--name" of a switch. Throws UsageError that names the argument.
Flags parse_flags(const std::vector<std::string>& arguments);
/// Returns the text of --help.
std::string usage();

}  // namespace pm
