// SPDX-License-Identifier: Apache-2.0
// Sends one plain HTTP GET to an untrusted server, bounded in time and bytes. It is used for the admin ports of pods,
// never for the API server.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <variant>

namespace pm::k8s {

struct PlainReply {
  int status = 0;
  std::string body;
};

/// `host` is an IPv4 or IPv6 address, not a name. `timeout` covers everything. Returns the reply, or why there is none:
/// refused, timed out, longer than `max_bytes` (headers included), not HTTP, chunked. Redirects are not followed.
/// Thread-safe.
std::variant<PlainReply, std::string> http_get(const std::string& host, int port, const std::string& path,
                                               std::chrono::milliseconds timeout, size_t max_bytes);

}  // namespace pm::k8s
