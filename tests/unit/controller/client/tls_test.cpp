// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdlib>
#include <fstream>

#include "controller/client/transport.h"
#include "test_server.h"

using namespace pm::k8s;
using namespace pm::k8s::test;

namespace {

const Identity ours = make_authority("our authority"), foreign = make_authority("foreign authority");

/// Returns the reply that a client that trusts `ours` gets from a server with this certificate: the status, or 0 and
/// the failure.
HttpReply ask(
    const Identity& server_identity, std::function<void(ClusterConfig&)> change = [](ClusterConfig&) {},
    std::optional<Identity> client_authority = {}) {
  TestServer server([](const Seen& seen) { return Answer{.body = seen.client_name}; }, server_identity,
                    client_authority);
  ClusterConfig config;
  config.host = "127.0.0.1";
  config.port = server.port();
  config.ca.data = ours.cert;
  change(config);
  Connection connection(config, {});
  return connection.send({"GET", "/", "", "", {}}, {});
}

}  // namespace

TEST(Tls, AcceptsAMatchingAddress) { EXPECT_EQ(ask(issue(ours, "api", {"IP:127.0.0.1"})).status, 200); }

TEST(Tls, AcceptsAMatchingName) {
  EXPECT_EQ(ask(issue(ours, "api", {"DNS:localhost"}), [](ClusterConfig& config) { config.host = "localhost"; }).status,
            200);
}

TEST(Tls, AcceptsTheServerNameOfTheKubeconfigAtAnyAddress) {
  EXPECT_EQ(ask(issue(ours, "api", {"DNS:kubernetes.default"}),
                [](ClusterConfig& config) { config.tls_server_name = "kubernetes.default"; })
                .status,
            200);
  EXPECT_EQ(ask(issue(ours, "api", {"IP:127.0.0.1"}),
                [](ClusterConfig& config) { config.tls_server_name = "kubernetes.default"; })
                .status,
            0);
}

TEST(Tls, RefusesAnotherNameOrAddress) {
  const HttpReply reply = ask(issue(ours, "api", {"DNS:other", "IP:127.0.0.2"}));
  EXPECT_EQ(reply.status, 0);
  EXPECT_NE(reply.failure.find("IP address mismatch"), std::string::npos) << reply.failure;
}

TEST(Tls, RefusesAMatchThatOnlyTheCommonNameMakes) {
  const auto local = [](ClusterConfig& config) { config.host = "localhost"; };
  EXPECT_EQ(ask(issue(ours, "localhost", {}), local).status, 0);
  EXPECT_EQ(ask(issue(ours, "localhost", {"DNS:other"}), local).status, 0);
  EXPECT_EQ(ask(issue(ours, "127.0.0.1", {})).status, 0);
}

TEST(Tls, RefusesAForeignAuthority) {
  const HttpReply reply = ask(issue(foreign, "api", {"IP:127.0.0.1"}));
  EXPECT_EQ(reply.status, 0);
  EXPECT_NE(reply.failure.find("certificate"), std::string::npos) << reply.failure;
}

TEST(Tls, RefusesAnAuthorityOfTheSystemWhenOneIsGiven) {
  const std::string path = testing::TempDir() + "system-" + std::to_string(getpid()) + ".pem";
  std::ofstream(path) << foreign.cert;
  setenv("SSL_CERT_FILE", path.c_str(), 1);
  const auto certificate = issue(foreign, "api", {"IP:127.0.0.1"});
  EXPECT_EQ(ask(certificate).status, 0);
  EXPECT_EQ(ask(certificate, [](ClusterConfig& config) { config.ca = {}; }).status, 200)
      << "without a CA the system's are meant";
  unsetenv("SSL_CERT_FILE");
  unlink(path.c_str());
}

TEST(Tls, RefusesAnExpiredCertificate) {
  const HttpReply reply = ask(issue(ours, "api", {"IP:127.0.0.1"}, true));
  EXPECT_EQ(reply.status, 0);
  EXPECT_NE(reply.failure.find("expired"), std::string::npos) << reply.failure;
}

TEST(Tls, InsecureAcceptsAnything) {
  EXPECT_EQ(ask(issue(foreign, "api", {}), [](ClusterConfig& config) { config.insecure = true; }).status, 200);
}

TEST(Tls, PresentsTheClientCertificate) {
  const Identity client = issue(ours, "controller", {});
  const auto server = issue(ours, "api", {"IP:127.0.0.1"});
  const auto present = [&](ClusterConfig& config) {
    config.client_cert.data = client.cert, config.client_key.data = client.key;
  };
  EXPECT_EQ(ask(server, present, ours).body, "controller");
  EXPECT_EQ(ask(server, [](ClusterConfig&) {}, ours).status, 0);
}

TEST(Tls, UnusableCertificatesAreNamedBeforeAnyConnection) {
  ClusterConfig config;
  config.host = "127.0.0.1";
  config.ca.data = "no pem";
  EXPECT_THROW(Connection(config, {}), ConfigError);
  config.ca.data = ours.cert;
  config.client_cert.data = issue(ours, "a", {}).cert;
  config.client_key.data = issue(ours, "b", {}).key;
  EXPECT_THROW(Connection(config, {}), ConfigError);
  config.client_key.data = "no pem";
  EXPECT_THROW(Connection(config, {}), ConfigError);
  config.client_cert = config.client_key = {};
  config.ca = {.file = "/absent/ca.crt"};
  EXPECT_THROW(Connection(config, {}), ConfigError);
}
