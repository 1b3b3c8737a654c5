// SPDX-License-Identifier: Apache-2.0
// Serves POST /embed_sparse: weights of the vocabulary's tokens for texts, in the form of text-embeddings-inference.
#pragma once
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Returns the tokens with a weight above 0 of each text. Throws ApiError.
http::Response embed_sparse(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_embed_sparse(const ServerContext&);

}  // namespace pm::server
