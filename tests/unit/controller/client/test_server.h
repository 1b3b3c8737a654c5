// SPDX-License-Identifier: Apache-2.0
// A real HTTP or HTTPS server on loopback whose responses a test defines.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "certificates.h"

namespace pm::k8s::test {

struct Seen {
  std::string method, target, body;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string client_name;                     ///< CN of the client's certificate
  int client_port = 0;                         ///< tells connections apart
};

struct Answer {
  int status = 200;
  std::string body = "{}";
  std::map<std::string, std::string> headers;
  std::vector<std::string> chunks;  ///< not empty: a chunked stream of these instead of body
  bool hold = false;                ///< the stream stays open and silent after its chunks
};

class TestServer {
 public:
  using Handler = std::function<Answer(const Seen&)>;
  /// `identity`: serve HTTPS with it; `client_authority`: and demand a client certificate signed by it.
  explicit TestServer(Handler handler, std::optional<Identity> identity = {},
                      std::optional<Identity> client_authority = {});
  ~TestServer();
  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::k8s::test
