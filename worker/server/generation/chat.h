// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/chat/completions of OpenAI's API.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Renders the conversation with the checkpoint's chat template and continues it; replies with one JSON object or with
/// server-sent events. Throws ApiError 400 when the model has no chat template.
http::Response create_chat_completion(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_chat_completion(const ServerContext&);

}  // namespace pm::server
