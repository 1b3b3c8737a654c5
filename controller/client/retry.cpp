// SPDX-License-Identifier: Apache-2.0
#include "controller/client/retry.h"

#include "controller/core/status_error.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
constexpr int max_attempts = 10;
constexpr milliseconds max_wait{30'000};

}  // namespace

std::optional<milliseconds> retry_after(const RetryState& state, Verb verb, const ApiError& error) {
  if (error.code == 401) return state.unauthorized_before ? std::nullopt : std::optional(milliseconds(0));
  if (error.code == 0)
    return state.attempts < 2 && verb != Verb::Create ? std::optional(milliseconds(0)) : std::nullopt;
  const bool server_named_time = (error.code == 429 || error.code >= 500) && error.retry_after > 0 && transient(error);
  if (!server_named_time || state.attempts >= max_attempts || error.retry_after > 30) return {};
  const milliseconds pause(static_cast<int64_t>(error.retry_after * 1000));
  if (state.waited + pause > max_wait) return {};
  return pause;
}

}  // namespace pm::k8s
