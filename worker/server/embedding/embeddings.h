// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/embeddings of OpenAI's API.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with one vector per input. Throws ApiError.
http::Response create_embeddings(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_embeddings(const ServerContext&);

}  // namespace pm::server
