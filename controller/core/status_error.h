// SPDX-License-Identifier: Apache-2.0
// Classifies error responses of an API server as Failure.
#pragma once
#include <string>

#include "controller/core/request.h"

namespace pm::k8s {

/// `code` of the HTTP response, its body (a Status object when the server itself speaks, anything when a proxy does),
/// and the value of Retry-After in seconds (0: absent). Source of the special cases: a live API server.
/// - 404 NotFound, 401, 403, 410 Gone, 429; 409 is AlreadyExists or Conflict by reason; 400, 405, 406, 413, 415, 422
/// Invalid;
/// - 500 "field not declared in schema" of a server-side apply: Invalid, for it can never succeed;
/// - other 5xx and 408: Transient; other 4xx: Permanent.
ApiError classify(int code, const std::string& body, double retry_after = 0);
/// The same for a Status that came inside a watch.
ApiError classify_status(const Json& status);
/// Returns the error of a request without a response.
ApiError no_answer(const std::string& message);
/// Returns whether the same request may succeed later.
bool transient(const ApiError&);
/// "409 Conflict: the object has been modified"
std::string to_string(const ApiError&);

}  // namespace pm::k8s
