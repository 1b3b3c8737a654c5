// SPDX-License-Identifier: Apache-2.0
// Tests API keys in a folder as the kubelet mounts a Secret, and the routes that need them.
#include "worker/server/http/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

namespace fs = std::filesystem;
using server::ApiKeys;
using std::chrono::seconds;
using Files = std::map<std::string, std::string>;

/// Simulates the volume of a Secret: files are links into ..data, which links to a folder for each version.
class Secret {
 public:
  explicit Secret(const Files& files) { change(files); }
  void change(const Files& files) {
    const auto version = "..v" + std::to_string(++versions_);
    fs::create_directory(path() / version);
    for (const auto& [name, content] : files) {
      std::ofstream(path() / version / name) << content;
      if (!fs::is_symlink(path() / name)) fs::create_symlink(fs::path("..data") / name, path() / name);
    }
    fs::create_symlink(version, path() / "..next");
    fs::rename(path() / "..next", path() / "..data");
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
  int versions_ = 0;
};

TEST(ApiKeys, EveryFilesTrimmedContentIsAKey) {
  const Secret secret(Files{{"alice", "s3cret-alice\n"}, {"bob", "  bobs_key\r\n\n"}});
  ApiKeys keys(secret.path());
  for (const char* good : {"Bearer s3cret-alice", "bearer bobs_key", "BEARER   bobs_key "})
    EXPECT_TRUE(keys.allow(good)) << good;
  for (const char* bad : {"", "Bearer", "Bearer ", "Bearer s3cret-alic", "Bearer s3cret-alicee", "s3cret-alice",
                          "Basic s3cret-alice", "Bearer S3CRET-ALICE", "Bearer alice", "Bearer s3cret-alice bobs_key"})
    EXPECT_FALSE(keys.allow(bad)) << bad;
}

TEST(ApiKeys, AnExchangedSecretCountsWithinASecondAndALostFolderChangesNothing) {
  Secret secret(Files{{"one", "first"}});
  auto now = std::chrono::steady_clock::now();
  ApiKeys keys(secret.path(), [&] { return now; });
  secret.change({{"one", "second"}, {"two", "third"}});
  EXPECT_TRUE(keys.allow("Bearer first")) << "within the second";
  now += seconds(1);
  EXPECT_FALSE(keys.allow("Bearer first"));
  EXPECT_TRUE(keys.allow("Bearer second"));
  EXPECT_TRUE(keys.allow("Bearer third"));
  fs::rename(secret.path(), secret.path().string() + "-gone");
  now += seconds(5);
  EXPECT_TRUE(keys.allow("Bearer second"));
  fs::rename(secret.path().string() + "-gone", secret.path());
  secret.change({});
  now += seconds(5);
  EXPECT_FALSE(keys.allow("Bearer second")) << "all keys were revoked";
}

TEST(ApiKeys, AFolderWithoutAKeyIsRefusedAtTheStart) {
  for (const auto& files : std::vector<std::map<std::string, std::string>>{{},
                                                                           {{"empty", " \n"}},
                                                                           {{"two-lines", "a\nb"}},
                                                                           {{"long", std::string(5000, 'x')}},
                                                                           {{"binary", "a\x01"}}}) {
    const Secret secret(files);
    EXPECT_THROW(ApiKeys(secret.path()), Error);
  }
  EXPECT_THROW(ApiKeys("/nowhere/at/all"), Error);
}

struct Locked {
  Locked()
      : secret(Files{{"key", "open-sesame"}}),
        served({}, [this](server::ApiOptions& options) { options.keys = std::make_shared<ApiKeys>(secret.path()); }) {}
  httplib::Result post(const std::string& path, const httplib::Headers& headers,
                       const std::string& body = R"({"prompt": "a", "max_tokens": 1})") const {
    return served.client().Post(path, headers, body, "application/json");
  }
  Secret secret;
  ApiTestServer served;
};

TEST(Locked, EverythingButHealthAndMetricsNeedsAKey) {
  const Locked locked;
  const httplib::Headers key{{"Authorization", "Bearer open-sesame"}};
  for (const char* path : {"/health", "/metrics"}) EXPECT_EQ(locked.served.get(path)->status, 200) << path;
  for (const char* path : {"/", "/v1/models", "/plan", "/memory", "/openapi.json", "/docs", "/version", "/nothing",
                           "/health/", "//health", "/metrics/x", "/%68ealth", "/generate_text/a"}) {
    const auto result = locked.served.get(path);
    const auto error = error_of(result, 401);
    EXPECT_EQ(error["type"], "authentication_error") << path;
    EXPECT_EQ(error["code"], "missing_api_key");
    EXPECT_EQ(result->get_header_value("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(error_of(locked.post("/v1/completions", {{"Authorization", "Bearer open-sesam"}}), 401)["code"],
            "invalid_api_key");
  EXPECT_TRUE(locked.served.engine.submitted_requests().empty());
  EXPECT_EQ(locked.post("/v1/completions", key)->status, 200);
  EXPECT_EQ(locked.served.client().Get("/v1/models", key)->status, 200);
}

TEST(Locked, ARefusedBodyIsNotKept) {
  const Locked locked;
  error_of(locked.post("/v1/completions", {}, std::string(900'000, 'x')), 401);
  error_of(locked.post("/v1/completions", {}, std::string(3 << 20, 'x')), 401);
}

TEST(Locked, TheDocumentSaysSo) {
  const Locked locked;
  const auto document =
      json::parse(locked.served.client().Get("/openapi.json", {{"Authorization", "Bearer open-sesame"}})->body);
  EXPECT_EQ(document["components"]["securitySchemes"]["key"]["scheme"], "bearer");
  EXPECT_FALSE(document["security"].empty());
  for (const auto& [path, methods] : document["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      const bool open = path == "/health" || path == "/metrics";
      EXPECT_EQ(operation["responses"].contains("401"), !open) << path;
      EXPECT_EQ(operation.contains("security"), open) << path;
    }
}

TEST(Locked, NoLogLineHoldsAKey) {
  testing::internal::CaptureStderr();
  {
    const Locked locked;
    locked.post("/v1/completions", {{"Authorization", "Bearer open-sesame"}});
    locked.post("/v1/completions", {{"Authorization", "Bearer wrong-guess"}});
    locked.served.client().Get("/plan", {{"Authorization", "Bearer wrong-guess"}});
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("status=401"));
  for (const char* secret : {"open-sesame", "wrong-guess", "sesame"})
    EXPECT_EQ(log.find(secret), std::string::npos) << secret;
}

}  // namespace
}  // namespace pm::test
