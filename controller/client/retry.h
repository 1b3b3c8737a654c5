// Decides whether a failed request is sent again by the client itself. Pure.
#pragma once
#include <chrono>
#include <optional>

#include "controller/core/request.h"

namespace pm::k8s {

struct RetryState {
  int attempts = 0;                            ///< made so far, the failed one included
  bool unauthorized_before = false;            ///< a 401 was already answered with a fresh token
  std::chrono::milliseconds waited{0};         ///< spent between attempts
};

/// The pause before the next attempt, or nothing to give the error to the caller.
/// - 429 or 5xx with Retry-After: the server asks for it; any verb, up to 10 attempts and 30 s of waiting in all (client-go does the same);
/// - 401: once, at once, with a token read anew;
/// - no answer: once, at once, for what may safely happen twice: everything but Create. A kept connection may have been closed meanwhile.
std::optional<std::chrono::milliseconds> retry_after(const RetryState&, Verb, const ApiError&);

}  // namespace pm::k8s
