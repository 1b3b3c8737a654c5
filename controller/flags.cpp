// SPDX-License-Identifier: Apache-2.0
#include "controller/flags.h"

#include <algorithm>
#include <functional>

namespace pm {
namespace {

struct Flag {
  const char* name;
  const char* value;  ///< placeholder of the value in the help; "": a switch without a value
  const char* help;
  std::function<void(Flags&, const std::string&)> set;
};

int number(const std::string& flag, const std::string& text, int least, int most) {
  const bool digits = !text.empty() && text.size() <= 6 && text.find_first_not_of("0123456789") == std::string::npos;
  const int value = digits ? std::stoi(text) : least - 1;
  if (value < least || value > most) {
    throw UsageError(flag + " must be a number from " + std::to_string(least) + " to " + std::to_string(most) +
                     ", found \"" + text + "\"");
  }
  return value;
}

const std::vector<Flag>& table() {
  static const std::vector<Flag> flags{
      {"--kubeconfig", "FILE",
       "kubeconfig of the cluster (default: $KUBECONFIG, else the service account of the pod, else ~/.kube/config)",
       [](Flags& f, const std::string& v) { f.kubeconfig = v; }},
      {"--namespace", "NAME", "watch only this namespace (default: all)",
       [](Flags& f, const std::string& v) { f.ns = v; }},
      {"--worker-image", "IMAGE", "default worker image of ParallelModels (default: $PARALLELMODEL_WORKER_IMAGE)",
       [](Flags& f, const std::string& v) { f.worker_image = v; }},
      {"--worker-cuda-image", "IMAGE",
       "default worker image of replicas on GPUs (default: $PARALLELMODEL_WORKER_CUDA_IMAGE, else the worker image)",
       [](Flags& f, const std::string& v) { f.worker_cuda_image = v; }},
      {"--metrics-port", "PORT", "port of /metrics for Prometheus (default 8080)",
       [](Flags& f, const std::string& v) { f.metrics_port = number("--metrics-port", v, 1, 65535); }},
      {"--probe-port", "PORT", "port of /healthz and /readyz for the kubelet (default 8081)",
       [](Flags& f, const std::string& v) { f.probe_port = number("--probe-port", v, 1, 65535); }},
      {"--workers", "N", "maximum number of concurrent reconciles (default 16)",
       [](Flags& f, const std::string& v) { f.workers = number("--workers", v, 1, 64); }},
      {"--qps", "N", "sustained requests per second to the API server; 0: no client-side limit (default 500)",
       [](Flags& f, const std::string& v) { f.qps = number("--qps", v, 0, 100000); }},
      {"--burst", "N", "maximum burst of requests to the API server (default 1000)",
       [](Flags& f, const std::string& v) { f.burst = number("--burst", v, 1, 100000); }},
      {"--leader-elect", "", "reconcile only while holding a Lease, so that several controllers may run",
       [](Flags& f, const std::string&) { f.leader_elect = true; }},
      {"--lease-namespace", "NAME", "namespace of the Lease (default: the namespace of the controller)",
       [](Flags& f, const std::string& v) { f.lease_ns = v; }},
      {"--lease-name", "NAME", "name of the Lease (default parallelmodel-controller)",
       [](Flags& f, const std::string& v) { f.lease = v; }},
      {"--no-nodes", "", "do not read nodes; messages then omit free devices",
       [](Flags& f, const std::string&) { f.read_nodes = false; }},
      {"--worker-writable-root", "", "run workers with a writable root file system",
       [](Flags& f, const std::string&) { f.worker_read_only_root = false; }},
      {"--version", "", "print the version", [](Flags& f, const std::string&) { f.version = true; }},
      {"--help", "", "print this help", [](Flags& f, const std::string&) { f.help = true; }},
  };
  return flags;
}

const Flag& find(std::string_view name) {
  for (const Flag& flag : table()) {
    if (name == flag.name) return flag;
  }
  throw UsageError("unknown flag " + std::string(name) + "; see --help");
}

}  // namespace

Flags parse_flags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const bool attached = arguments[i].rfind("--", 0) == 0 && equals != std::string::npos;
    const Flag& flag = find(std::string_view(arguments[i]).substr(0, attached ? equals : std::string::npos));
    const bool is_switch = *flag.value == '\0';
    if (is_switch && attached) throw UsageError(std::string(flag.name) + " takes no value");
    if (!is_switch && !attached && i + 1 == arguments.size())
      throw UsageError(std::string(flag.name) + " requires a value: " + flag.value);
    flag.set(flags, is_switch ? "" : attached ? arguments[i].substr(equals + 1) : arguments[++i]);
  }
  return flags;
}

std::string usage() {
  std::string text = "parallelmodel-controller: the operator that serves ParallelModels on a Kubernetes cluster\n\n";
  for (const Flag& flag : table()) {
    std::string left = std::string("  ") + flag.name + " " + flag.value;
    left.resize(std::max<size_t>(left.size() + 1, 26), ' ');
    text += left + flag.help + "\n";
  }
  return text + "\nExit codes: 0 stopped by a signal; 2 wrong usage or a configuration that cannot be used.\n";
}

}  // namespace pm
