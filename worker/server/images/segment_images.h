// SPDX-License-Identifier: Apache-2.0
// Serves POST /segment: which pixels of images belong to which objects or classes.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with a label, a score and a mask for each segment, as transformers' pipeline "image-segmentation" does.
/// Throws ApiError.
http::Response segment(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_segment(const ServerContext&);

}  // namespace pm::server
