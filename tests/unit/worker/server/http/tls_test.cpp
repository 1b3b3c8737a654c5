// SPDX-License-Identifier: Apache-2.0
// Tests TLS on the API port with a certificate that is replaced while the server runs.
#include "worker/server/http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/controller/client/certificates.h"
#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

namespace fs = std::filesystem;
using k8s::test::Identity;

struct Secured {
  Secured() : authority(k8s::test::make_authority("root")) {
    install(issue("first"));
    std::ofstream(folder.path() / "root.pem") << authority.cert;
    served = std::make_unique<ApiTestServer>(FakeEngine::Token(), [&](server::ApiOptions& options) {
      options.http.tls = std::make_shared<server::Tls>(folder.path() / "tls.crt", folder.path() / "tls.key");
      options.http.limits.head = std::chrono::milliseconds(500);
      options.http.limits.idle = std::chrono::seconds(20);
    });
  }
  Identity issue(const std::string& name) const { return k8s::test::issue(authority, name, {"IP:127.0.0.1"}); }
  void install(const Identity& identity) const {
    std::ofstream(folder.path() / "new.crt") << identity.cert;
    std::ofstream(folder.path() / "new.key") << identity.key;
    fs::rename(folder.path() / "new.crt", folder.path() / "tls.crt");
    fs::rename(folder.path() / "new.key", folder.path() / "tls.key");
  }
  std::unique_ptr<httplib::SSLClient> client() const {
    auto made = std::make_unique<httplib::SSLClient>("127.0.0.1", served->api->bound_port());
    made->set_ca_cert_path((folder.path() / "root.pem").string());
    made->set_read_timeout(std::chrono::seconds(10));
    return made;
  }
  /// Returns the name on the certificate of a new connection.
  std::string name() const {
    auto one = client();
    std::string found;
    one->set_server_certificate_verifier([&](SSL* ssl) {
      const std::unique_ptr<X509, void (*)(X509*)> certificate(SSL_get1_peer_certificate(ssl), X509_free);
      char text[100] = {};
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, text, sizeof text);
      found = text;
      return SSL_get_verify_result(ssl) == X509_V_OK;
    });
    const auto result = one->Get("/health");
    return result ? found : httplib::to_string(result.error());
  }
  TempFolder folder;
  Identity authority;
  std::unique_ptr<ApiTestServer> served;
};

TEST(Tls, RequestsAndStreamsGoThroughAVerifiedConnection) {
  Secured secured;
  auto client = secured.client();
  client->set_keep_alive(true);
  EXPECT_EQ(client->Get("/health")->status, 200);
  const auto whole = client->Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 3})", "application/json");
  ASSERT_TRUE(whole);
  EXPECT_EQ(json::parse(whole->body)["choices"][0]["text"], "abc");
  EXPECT_THAT(
      client->Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 3, "stream": true})", "application/json")
          ->body,
      testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(client->Post("/v1/completions", std::string(2 << 20, 'x'), "application/json")->status, 413);
  EXPECT_TRUE(server::http::get("127.0.0.1", secured.served->api->bound_port(), "/metrics", std::chrono::seconds(5),
                                1 << 20, true))
      << "as the admin port asks";
}

TEST(Tls, AnExchangedCertificateIsForNewConnectionsAndTheOldOnesLive) {
  Secured secured;
  EXPECT_EQ(secured.name(), "first");
  auto old = secured.client();
  old->set_keep_alive(true);
  ASSERT_EQ(old->Get("/version")->status, 200);
  secured.install(secured.issue("second"));
  EXPECT_TRUE(eventually([&] { return secured.name() == "second"; }));
  EXPECT_EQ(old->Get("/version")->status, 200);
}

TEST(Tls, FilesThatCannotBeUsedLeaveTheOldOnesInPlace) {
  Secured secured;
  const auto second = secured.issue("second"), third = secured.issue("third");
  secured.install({second.cert, third.key});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(secured.name(), "first");
  secured.install({"nonsense", second.key});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(secured.name(), "first");
  secured.install(third);
  EXPECT_TRUE(eventually([&] { return secured.name() == "third"; }));
}

TEST(Tls, OldVersionsAndPlainHttpAreRefusedAndSilenceIsEnded) {
  Secured secured;
  auto old = secured.client();
  SSL_CTX_set_min_proto_version(old->ssl_context(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(old->ssl_context(), TLS1_1_VERSION);
  SSL_CTX_set_security_level(old->ssl_context(), 0);
  EXPECT_FALSE(old->Get("/health"));
  auto twelve = secured.client();
  SSL_CTX_set_max_proto_version(twelve->ssl_context(), TLS1_2_VERSION);
  EXPECT_TRUE(twelve->Get("/health"));
  RawSocket plain(secured.served->api->bound_port());
  plain.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(plain.read().find("HTTP/1.1"), std::string::npos);
  RawSocket silent(secured.served->api->bound_port());
  const auto start = std::chrono::steady_clock::now();
  silent.read();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
}

TEST(Tls, AClientThatLeavesIsNoticed) {
  Secured secured;
  secured.served->engine.hold(true);
  {
    auto client = secured.client();
    client->set_read_timeout(std::chrono::milliseconds(200));
    EXPECT_FALSE(client->Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 3})", "application/json"));
  }
  EXPECT_TRUE(eventually([&] { return secured.served->engine.cancelled().size() == 1; }));
}

TEST(Tls, FilesOfNoUseAreNamedAtTheStart) {
  const TempFolder folder;
  const auto authority = k8s::test::make_authority("root");
  const auto one = k8s::test::issue(authority, "a", {}), two = k8s::test::issue(authority, "b", {});
  const auto write = [&](const char* name, const std::string& content) {
    std::ofstream(folder.path() / name) << content;
  };
  const auto complaint = [&] {
    try {
      server::Tls(folder.path() / "tls.crt", folder.path() / "tls.key");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(complaint(), testing::HasSubstr("tls.crt cannot be used"));
  write("tls.crt", one.cert);
  EXPECT_THAT(complaint(), testing::HasSubstr("tls.key cannot be used"));
  write("tls.key", two.key);
  EXPECT_THAT(complaint(),
              testing::AnyOf(testing::HasSubstr("is not that of the certificate"), testing::HasSubstr("mismatch")));
  write("tls.key", one.key);
  EXPECT_EQ(complaint(), "none");
}

}  // namespace
}  // namespace pm::test
