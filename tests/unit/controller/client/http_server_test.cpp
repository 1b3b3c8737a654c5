// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "controller/client/transport.h"

using namespace pm::k8s;

namespace {
HttpReply get(int port, const std::string& path) {
  ClusterConfig config;
  config.host = "127.0.0.1";
  config.port = port;
  config.tls = false;
  return Connection(config, {}).send({"GET", path, "", "", {}}, {});
}
}  // namespace

TEST(HttpServer, AnswersItsRoutesAndNothingElse) {
  HttpServer server("127.0.0.1", 0,
                    {{"/healthz", [] { return HttpServer::Answer{200, "ok"}; }},
                     {"/readyz", [] { return HttpServer::Answer{503, "waiting"}; }}});
  EXPECT_EQ(get(server.port(), "/healthz").body, "ok");
  EXPECT_EQ(get(server.port(), "/readyz").status, 503);
  EXPECT_EQ(get(server.port(), "/other").status, 404);
}

TEST(HttpServer, ATakenPortIsAnErrorThatNamesIt) {
  HttpServer server("127.0.0.1", 0, {});
  EXPECT_THROW(HttpServer("127.0.0.1", server.port(), {}), ConfigError);
}
