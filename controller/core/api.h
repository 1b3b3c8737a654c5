// SPDX-License-Identifier: Apache-2.0
// Interfaces for requests to and watches of an API server. controller/client implements them; tests fake them.
#pragma once
#include <functional>
#include <optional>
#include <stop_token>

#include "controller/core/request.h"
#include "controller/core/watch_decoder.h"

namespace pm::k8s {

/// Sends requests and waits for their responses.
class Api {
 public:
  virtual ~Api() = default;
  /// Blocks for at most the client's deadline. Thread-safe. Never throws for what the server or the network does: that
  /// is an ApiError; code 0 means that no answer came and a write may or may not have happened.
  virtual Response send(const Request&) = 0;
};

/// Watches a collection.
class WatchApi {
 public:
  virtual ~WatchApi() = default;
  /// Runs one watch (a List request whose query has watch=1) on the calling thread and hands every event to `sink`
  /// until the stream ends, `sink` returns false, or `stop` is requested. Returns the error (an ERROR event becomes one
  /// and is not handed on), or nothing after a clean end.
  virtual std::optional<ApiError> watch(const Request&, const std::function<bool(WatchEvent&&)>& sink,
                                        std::stop_token stop) = 0;
};

}  // namespace pm::k8s
