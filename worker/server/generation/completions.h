// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/completions of OpenAI's API.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Continues prompts; replies with one JSON object or with server-sent events.
http::Response create_completion(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_completion(const ServerContext&);

}  // namespace pm::server
