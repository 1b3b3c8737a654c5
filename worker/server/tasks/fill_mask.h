// SPDX-License-Identifier: Apache-2.0
// Serves POST /fill-mask: the fill-mask pipeline of transformers.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with the most probable tokens for each mask token. Throws ApiError.
http::Response fill_mask(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_fill_mask(const ServerContext&);

}  // namespace pm::server
