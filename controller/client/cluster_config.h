// SPDX-License-Identifier: Apache-2.0
// Address and credentials of the API server, from a kubeconfig or from the service account of the pod.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pm::k8s {

/// A configuration that cannot be used; the message names the file and the field and says what to change.
struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Inline bytes, or a file that may be rotated at run time.
struct Source {
  std::string data, file;
  bool empty() const { return data.empty() && file.empty(); }
  /// Reads the file, if it is one. Throws ConfigError when it cannot be read.
  std::string read() const;
};

struct ClusterConfig {
  std::string host;  ///< a name or an address, without brackets
  int port = 443;
  std::string base_path;  ///< of the server URL, without a slash at the end
  bool tls = true;
  bool insecure = false;           ///< no verification of the server
  Source ca;                       ///< PEM; empty: the system's authorities
  Source client_cert, client_key;  ///< PEM; both or none
  Source token;
  std::string tls_server_name;  ///< what the server's certificate must be for; empty: host
  std::string ns;               ///< of the context or the pod
};

/// Reads an environment variable; a parameter so that tests need not touch the real ones.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> real_environment(const std::string& name);

/// "https://[::1]:6443/prefix" into host, port, base_path, tls. Throws ConfigError.
void parse_server(const std::string& url, ClusterConfig&);
/// "[::1]:6443", "example:443"
std::string host_and_port(const ClusterConfig&);

/// Merges kubeconfig files as kubectl does (the first file that defines a name or the current context wins; files that
/// do not exist are skipped), and takes `context` or the current context. Relative file names are relative to
/// the folder of the kubeconfig. Throws ConfigError for invalid files and for unsupported features: exec and
/// auth-provider plugins, passwords, proxies.
ClusterConfig load_kubeconfig(const std::vector<std::string>& paths, const std::string& context = "");
/// Reads the service account of the pod: KUBERNETES_SERVICE_HOST and _PORT, and token, ca.crt, namespace in `folder`.
/// Throws ConfigError.
ClusterConfig in_cluster(const Environment&,
                         const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");
/// `path` (of the flag) if given, else $KUBECONFIG, else the pod's, else ~/.kube/config.
ClusterConfig find_config(const std::string& path, const Environment&);

}  // namespace pm::k8s
