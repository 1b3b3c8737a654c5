// SPDX-License-Identifier: Apache-2.0
// Serves POST /rerank: documents ranked by how well they answer a query, in the form that Jina, Cohere and vLLM share.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Scores documents with a cross-encoder, or by the cosine of embeddings. Throws ApiError.
http::Response rerank(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_rerank(const ServerContext&);

}  // namespace pm::server
