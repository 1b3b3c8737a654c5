// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/messages and POST /v1/messages/count_tokens of Anthropic's API by chat completions.
#pragma once
#include <string_view>

#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Throws as create_chat_completion, with the names of Anthropic's fields.
http::Response create_message(const ServerContext&, const RoutedRequest&);
/// Returns {"input_tokens"}, the number of tokens of the prompt. Nothing is generated.
http::Response count_message_tokens(const ServerContext&, const RoutedRequest&);

/// Describe the routes for GET /openapi.json.
Operation describe_message(const ServerContext&);
Operation describe_message_tokens(const ServerContext&);

/// Returns whether replies and errors of a path have Anthropic's form.
bool is_messages_path(std::string_view path);

}  // namespace pm::server
