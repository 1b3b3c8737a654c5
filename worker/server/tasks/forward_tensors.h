// SPDX-License-Identifier: Apache-2.0
// Serves POST /forward: named tensors in, named tensors out.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Runs one forward pass; request and reply are JSON or safetensors. Throws ApiError.
http::Response forward_tensors(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_forward(const ServerContext&);

}  // namespace pm::server
