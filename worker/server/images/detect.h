// SPDX-License-Identifier: Apache-2.0
// Serves POST /detect: objects in images, with their boxes.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with a label, a score and a box in pixels of the image for each object, as transformers' pipeline
/// "object-detection" does. Throws ApiError.
http::Response detect(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_detect(const ServerContext&);

}  // namespace pm::server
