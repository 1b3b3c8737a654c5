// SPDX-License-Identifier: Apache-2.0
// Serves POST /score: how well pairs of texts belong together, in vLLM's form.
#pragma once
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Scores one text with several, or as many with as many. Throws ApiError.
http::Response score(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_score(const ServerContext&);

}  // namespace pm::server
