// SPDX-License-Identifier: Apache-2.0
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <map>

#include "base/base64.h"
#include "controller/client/cluster_config.h"

namespace pm::k8s {
namespace {

namespace fs = std::filesystem;

/// A named entry and its file, for messages and relative file names.
struct Entry {
  YAML::Node node;
  std::string file;
};

struct Merged {
  std::map<std::string, Entry> clusters, users, contexts;
  std::string current;
};

std::string text(const YAML::Node& node, const char* field, const std::string& file) {
  const YAML::Node value = node.IsMap() ? node[field] : YAML::Node();
  if (!value || value.IsNull()) return "";
  if (!value.IsScalar()) throw ConfigError(file + ": " + field + " must be a string");
  return value.Scalar();
}

void merge_list(const YAML::Node& root, const char* list, const char* entry, const std::string& file,
                std::map<std::string, Entry>& into) {
  const YAML::Node items = root[list];
  if (!items || items.IsNull()) return;
  if (!items.IsSequence()) throw ConfigError(file + ": " + list + " must be a list");
  for (const YAML::Node& item : items) {
    if (!item.IsMap() || !item["name"] || !item["name"].IsScalar())
      throw ConfigError(file + ": every item of " + list + " needs a name");
    const YAML::Node value = item[entry];
    into.emplace(item["name"].Scalar(), Entry{value ? value : YAML::Node(YAML::NodeType::Map), file});
  }
}

void merge_file(const std::string& file, Merged& merged) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(file);
  } catch (const YAML::Exception& error) {
    throw ConfigError(file + ": " + error.what());
  }
  if (root.IsNull()) return;
  if (!root.IsMap()) throw ConfigError(file + " is no kubeconfig: expected a map");
  merge_list(root, "clusters", "cluster", file, merged.clusters);
  merge_list(root, "users", "user", file, merged.users);
  merge_list(root, "contexts", "context", file, merged.contexts);
  if (merged.current.empty()) merged.current = text(root, "current-context", file);
}

/// Reads inline `field`-data, or the file that `field` names. Inline data take precedence, as in kubectl.
Source source(const Entry& entry, const std::string& field, const std::string& data_field) {
  Source found;
  const std::string data = text(entry.node, data_field.c_str(), entry.file);
  if (!data.empty()) {
    const auto bytes = base::decode_base64(data);
    if (!bytes) throw ConfigError(entry.file + ": " + data_field + " is not base64");
    found.data = *bytes;
    return found;
  }
  const std::string file = text(entry.node, field.c_str(), entry.file);
  if (!file.empty())
    found.file = fs::path(file).is_absolute() ? file : (fs::path(entry.file).parent_path() / file).string();
  return found;
}

const Entry& find(const std::map<std::string, Entry>& entries, const std::string& name, const char* what,
                  const std::string& files) {
  const auto found = entries.find(name);
  if (found == entries.end()) throw ConfigError(files + ": there is no " + what + " \"" + name + "\"");
  return found->second;
}

void take_cluster(const Entry& entry, ClusterConfig& config) {
  parse_server(text(entry.node, "server", entry.file), config);
  if (!text(entry.node, "proxy-url", entry.file).empty())
    throw ConfigError(entry.file + ": proxy-url is not supported: remove it and reach the server directly");
  config.ca = source(entry, "certificate-authority", "certificate-authority-data");
  config.tls_server_name = text(entry.node, "tls-server-name", entry.file);
  config.insecure = text(entry.node, "insecure-skip-tls-verify", entry.file) == "true";
}

void take_user(const Entry& entry, ClusterConfig& config) {
  for (const char* plugin : {"exec", "auth-provider"}) {
    if (entry.node.IsMap() && entry.node[plugin]) {
      throw ConfigError(
          entry.file + ": users with " + plugin +
          " plugins are not supported: use a service account's token (kubectl create token) or a client certificate");
    }
  }
  if (!text(entry.node, "username", entry.file).empty())
    throw ConfigError(entry.file + ": username and password are not supported: use a token or a client certificate");
  config.client_cert = source(entry, "client-certificate", "client-certificate-data");
  config.client_key = source(entry, "client-key", "client-key-data");
  if (config.client_cert.empty() != config.client_key.empty())
    throw ConfigError(entry.file + ": a client certificate requires its key, and a key its certificate");
  config.token.data = text(entry.node, "token", entry.file);
  if (config.token.data.empty()) config.token = source(entry, "tokenFile", "token");
}

}  // namespace

ClusterConfig load_kubeconfig(const std::vector<std::string>& paths, const std::string& context) {
  Merged merged;
  std::string files;
  bool any = false;
  for (const std::string& path : paths) {
    files += (files.empty() ? "" : ":") + path;
    if (!fs::exists(path)) continue;
    merge_file(path, merged);
    any = true;
  }
  if (!any) throw ConfigError("no kubeconfig at " + files);
  const std::string name = context.empty() ? merged.current : context;
  if (name.empty()) throw ConfigError(files + ": current-context is not set: run kubectl config use-context NAME");
  const Entry& chosen = find(merged.contexts, name, "context", files);
  ClusterConfig config;
  take_cluster(find(merged.clusters, text(chosen.node, "cluster", chosen.file), "cluster", files), config);
  const std::string user = text(chosen.node, "user", chosen.file);
  if (!user.empty()) take_user(find(merged.users, user, "user", files), config);
  config.ns = text(chosen.node, "namespace", chosen.file);
  return config;
}

}  // namespace pm::k8s
