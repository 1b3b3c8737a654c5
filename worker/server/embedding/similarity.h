// SPDX-License-Identifier: Apache-2.0
// Serves POST /similarity: cosines of text embeddings, or the scores of a CLIP model for images and texts.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with one cosine per sentence, or with logits_per_image and probabilities. Throws ApiError.
http::Response similarity(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_similarity(const ServerContext&);

}  // namespace pm::server
