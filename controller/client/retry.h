// SPDX-License-Identifier: Apache-2.0
// Decides, as a pure function, whether the client retries a failed request.
#pragma once
#include <chrono>
#include <optional>

#include "controller/core/request.h"

namespace pm::k8s {

struct RetryState {
  int attempts = 0;                     ///< made so far, the failed one included
  bool unauthorized_before = false;     ///< the token was already read again after a 401
  std::chrono::milliseconds waited{0};  ///< spent between attempts
};

/// The pause before the next attempt, or nothing to give the error to the caller.
/// - 429 or 5xx with Retry-After: the server asks for it; any verb, up to 10 attempts and 30 s of waiting in all
/// (client-go does the same);
/// - 401: once, at once, with a token that is read again;
/// - no response: once, at once, for idempotent verbs, which are all except Create. The server may have closed the
/// connection.
std::optional<std::chrono::milliseconds> retry_after(const RetryState&, Verb, const ApiError&);

}  // namespace pm::k8s
