// SPDX-License-Identifier: Apache-2.0
// Serves POST /tokenize and POST /detokenize, with vLLM's fields.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with the token ids of a text. Throws ApiError.
http::Response tokenize(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_tokenize(const ServerContext&);

/// Replies with the text of token ids. Throws ApiError.
http::Response detokenize(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_detokenize(const ServerContext&);

}  // namespace pm::server
