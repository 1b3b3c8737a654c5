// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "controller/client/cluster_config.h"

using namespace pm::k8s;
namespace fs = std::filesystem;

namespace {

struct Config : testing::Test {
  fs::path folder = fs::path(testing::TempDir()) / ("config-" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }

  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
  static Environment environment(std::map<std::string, std::string> values) {
    return [values](const std::string& name) {
      const auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional(found->second);
    };
  }
  static std::string refusal(const std::function<void()>& load) {
    try {
      load();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

const char* whole = R"(
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: c, user: u, namespace: n}}
- {name: b, context: {cluster: c, user: file}}
- {name: exec, context: {cluster: c, user: exec}}
clusters:
- {name: c, cluster: {server: "https://[::1]:6443/prefix/", certificate-authority-data: Y2E=, tls-server-name: api}}
users:
- {name: u, user: {client-certificate-data: Y2VydA==, client-key: key.pem, token: t}}
- {name: file, user: {tokenFile: /tokens/t}}
- {name: exec, user: {exec: {command: aws}}}
)";

}  // namespace

TEST_F(Config, ReadsAWholeKubeconfig) {
  const ClusterConfig config = load_kubeconfig({file("config", whole)});
  EXPECT_EQ(config.host, "::1");
  EXPECT_EQ(config.port, 6443);
  EXPECT_EQ(config.base_path, "/prefix");
  EXPECT_EQ(host_and_port(config), "[::1]:6443");
  EXPECT_EQ(config.ca.read(), "ca");
  EXPECT_EQ(config.client_cert.read(), "cert");
  EXPECT_EQ(config.client_key.file, (folder / "key.pem").string());
  EXPECT_EQ(config.token.data, "t");
  EXPECT_EQ(config.tls_server_name, "api");
  EXPECT_EQ(config.ns, "n");
}

TEST_F(Config, AnotherContextMayBeChosen) {
  EXPECT_EQ(load_kubeconfig({file("config", whole)}, "b").token.file, "/tokens/t");
}

TEST_F(Config, FilesMergeAndTheFirstWins) {
  const auto first = file("first", "current-context: b\nclusters:\n- {name: c, cluster: {server: 'http://first:1'}}\n");
  const ClusterConfig config = load_kubeconfig({(folder / "absent").string(), first, file("second", whole)});
  EXPECT_EQ(config.host, "first");
  EXPECT_EQ(config.token.file, "/tokens/t");
  EXPECT_FALSE(config.tls);
}

TEST_F(Config, WhatWeDoNotDoIsRefusedWithAWayOut) {
  const auto path = file("config", whole);
  EXPECT_NE(refusal([&] { load_kubeconfig({path}, "exec"); }).find("kubectl create token"), std::string::npos);
  EXPECT_NE(refusal([&] { load_kubeconfig({path}, "nope"); }).find("context \"nope\""), std::string::npos);
  EXPECT_NE(refusal([&] { load_kubeconfig({(folder / "absent").string()}); }).find("no kubeconfig at"),
            std::string::npos);
}

TEST_F(Config, MalformedFilesNameTheFileAndNeverCrash) {
  for (const char* text :
       {"[", "- a", "clusters: 3", "clusters: [3]", "clusters: [{name: {}}]", "current-context: [a]", "",
        "current-context: a\ncontexts: [{name: a}]", "current-context: a\ncontexts: [{name: a, context: 3}]",
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c}]",
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: "
        "'https://h', certificate-authority-data: '*'}}]"}) {
    EXPECT_NE(refusal([&] { load_kubeconfig({file("bad", text)}); }), "") << text;
  }
}

TEST_F(Config, ServersAreParsedStrictly) {
  ClusterConfig config;
  parse_server("https://example", config);
  EXPECT_EQ(config.port, 443);
  for (const char* url : {"", "example", "ftp://x", "https://", "https://:443", "https://h:0", "https://h:99999",
                          "https://h:x", "https://[::1", "https://[::1]x"}) {
    EXPECT_THROW(parse_server(url, config), ConfigError) << url;
  }
}

TEST_F(Config, InAPodTheServiceAccountIsUsed) {
  file("token", "secret\n");
  file("ca.crt", "ca");
  file("namespace", "models");
  const ClusterConfig config = in_cluster(
      environment({{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}}), folder.string());
  EXPECT_EQ(host_and_port(config), "[fd00::1]:443");
  EXPECT_EQ(config.ns, "models");
  EXPECT_EQ(config.token.file, (folder / "token").string());
  EXPECT_THROW(in_cluster(environment({}), folder.string()), ConfigError);
  fs::remove(folder / "ca.crt");
  EXPECT_THROW(
      in_cluster(environment({{"KUBERNETES_SERVICE_HOST", "h"}, {"KUBERNETES_SERVICE_PORT", "443"}}), folder.string()),
      ConfigError);
}

TEST_F(Config, TheFlagComesBeforeTheEnvironment) {
  const auto path = file("config", whole), other = file("other", "current-context: b\n");
  EXPECT_EQ(find_config(path, environment({{"KUBECONFIG", other}})).token.data, "t");
  EXPECT_EQ(find_config("", environment({{"KUBECONFIG", other + ":" + path}})).token.file, "/tokens/t");
  EXPECT_THROW(find_config("", environment({})), ConfigError);
}
