// SPDX-License-Identifier: Apache-2.0
// Serves POST /classify: classes of texts, pairs of texts and images, next-sentence prediction and multiple choice.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with labels and scores; docs/reference/http.md describes the request of each task. Throws ApiError.
http::Response classify(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_classify(const ServerContext&);

}  // namespace pm::server
