// SPDX-License-Identifier: Apache-2.0
#include "controller/client/cluster_config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace pm::k8s {
namespace {

std::vector<std::string> split_paths(const std::string& list) {
  std::vector<std::string> paths;
  std::stringstream stream(list);
  for (std::string path; std::getline(stream, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

int port_of(const std::string& text, const std::string& url) {
  const bool number = !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string::npos;
  const int port = number ? std::stoi(text) : 0;
  if (port < 1 || port > 65535) throw ConfigError("server \"" + url + "\": \"" + text + "\" is no port");
  return port;
}

}  // namespace

std::string Source::read() const {
  if (file.empty()) return data;
  std::ifstream stream(file, std::ios::binary);
  std::stringstream bytes;
  bytes << stream.rdbuf();
  if (!stream || !bytes) throw ConfigError("cannot read " + file);
  return bytes.str();
}

std::optional<std::string> real_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

void parse_server(const std::string& url, ClusterConfig& config) {
  const size_t scheme_end = url.find("://");
  const std::string scheme = url.substr(0, scheme_end == std::string::npos ? 0 : scheme_end);
  if (scheme != "https" && scheme != "http")
    throw ConfigError("server \"" + url + "\" must begin with https:// or http://");
  config.tls = scheme == "https";
  const size_t begin = scheme_end + 3, path = std::min(url.find('/', begin), url.size());
  std::string authority = url.substr(begin, path - begin);
  config.base_path = url.substr(path);
  while (!config.base_path.empty() && config.base_path.back() == '/') config.base_path.pop_back();
  size_t colon = std::string::npos;
  if (!authority.empty() && authority[0] == '[') {
    const size_t close = authority.find(']');
    if (close == std::string::npos) throw ConfigError("server \"" + url + "\" lacks a closing bracket");
    config.host = authority.substr(1, close - 1);
    if (close + 1 < authority.size()) colon = close + 1;
    if (colon != std::string::npos && authority[colon] != ':')
      throw ConfigError("server \"" + url + "\" has text behind its address");
  } else {
    colon = authority.find(':');
    config.host = authority.substr(0, colon);
  }
  if (config.host.empty()) throw ConfigError("server \"" + url + "\" names no host");
  config.port = colon == std::string::npos ? (config.tls ? 443 : 80) : port_of(authority.substr(colon + 1), url);
}

std::string host_and_port(const ClusterConfig& config) {
  const bool v6 = config.host.find(':') != std::string::npos;
  return (v6 ? "[" + config.host + "]" : config.host) + ":" + std::to_string(config.port);
}

ClusterConfig find_config(const std::string& path, const Environment& environment) {
  if (!path.empty()) return load_kubeconfig({path});
  const auto variable = environment("KUBECONFIG");
  if (variable && !variable->empty()) return load_kubeconfig(split_paths(*variable));
  if (environment("KUBERNETES_SERVICE_HOST")) return in_cluster(environment);
  const auto home = environment("HOME");
  if (home) return load_kubeconfig({*home + "/.kube/config"});
  throw ConfigError("no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod");
}

}  // namespace pm::k8s
