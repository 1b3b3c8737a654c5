// SPDX-License-Identifier: Apache-2.0
// Sends GET requests over HTTP and HTTPS. It is the only client code of the worker that uses the HTTP library.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "worker/hub/address.h"

namespace pm::hub {

struct Reply {
  int status = 0;                              ///< 0: no reply
  std::map<std::string, std::string> headers;  ///< names in lower case; the first of repeated headers
  std::string failure;                         ///< why there is no reply, or no complete one
  bool ended_early = false;                    ///< by the caller
  /// Returns a header's value, "" when absent.
  std::string header(const std::string& name) const;
};

/// Holds a connection to each server. Certificates are verified against the system's authorities (or SSL_CERT_FILE),
/// names by subjectAltName only. It is not thread-safe.
class Transport {
 public:
  explicit Transport(Environment environment = real_environment);
  ~Transport();

  /// Sends one request and follows no redirects. `wanted` gets status and headers and returns whether to read the body;
  /// `take` gets the body piece by piece and returns false to end it. Connecting times out after 10 s, reading after 30
  /// s without data. Throws Error{Usage} for an unusable proxy.
  Reply get(const Url&, const std::map<std::string, std::string>& headers,
            const std::function<bool(const Reply&)>& wanted, const std::function<bool(std::string_view)>& take);

 private:
  class Server;
  const Environment environment_;
  std::map<std::string, std::unique_ptr<Server>> servers_;  ///< by origin
};

}  // namespace pm::hub
