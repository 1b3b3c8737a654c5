// SPDX-License-Identifier: Apache-2.0
// Serves POST /classify for token classification.
#pragma once
#include <nlohmann/json.hpp>

#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with the entities of each text, grouped as transformers' pipeline groups them. `body` is the parsed request.
/// Throws ApiError.
http::Response classify_tokens(const ServerContext&, const RoutedRequest&, const nlohmann::json& body);
/// Describes the route for GET /openapi.json.
Operation describe_token_classification(const ServerContext&);

}  // namespace pm::server
