// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/chat/completions of OpenAI's API.
#pragma once
#include <memory>
#include <string_view>

#include "worker/server/generation/chat_form.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Renders the conversation with the checkpoint's chat template and continues it; replies with one JSON object or with
/// server-sent events. Throws ApiError 400 when the model has no chat template.
http::Response create_chat_completion(const ServerContext&, const RoutedRequest&);
/// Answers a request of another wire form. `body` is the chat completion that it asks for, with stream_options where it
/// streams; `form` writes the reply. A length that the context window cannot hold is cut to what it leaves. Throws as
/// create_chat_completion, with the names of the fields of `body`.
http::Response complete_chat(const ServerContext&, const RoutedRequest&, std::string_view body,
                             std::shared_ptr<ChatForm> form);
/// Returns the number of tokens of the prompt of a chat completion. Throws ApiError 400.
int64_t count_chat_tokens(const ServerContext&, std::string_view body);
/// Describes the route for GET /openapi.json.
Operation describe_chat_completion(const ServerContext&);

}  // namespace pm::server
