// SPDX-License-Identifier: Apache-2.0
// Serves POST /v1/responses of OpenAI's API by chat completions, and what this server remembers of them.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Throws as create_chat_completion, with the names of the fields of responses, and ApiError 400 for a
/// previous_response_id that this server does not have.
http::Response create_response(const ServerContext&, const RoutedRequest&);
/// Returns {"object": "response.input_tokens", "input_tokens"}, tokens of the prompt; generates nothing.
http::Response count_response_tokens(const ServerContext&, const RoutedRequest&);
/// GET and DELETE /v1/responses/{id}. Throw ApiError 404.
http::Response get_response(const ServerContext&, const RoutedRequest&);
http::Response delete_response(const ServerContext&, const RoutedRequest&);
/// GET /v1/responses/{id}/input_items: the items that led to the response, those of earlier turns included. Throws
/// ApiError 404, and 400 for a query that is no page.
http::Response list_input_items(const ServerContext&, const RoutedRequest&);

/// Describe the routes for GET /openapi.json.
Operation describe_response(const ServerContext&);
Operation describe_response_tokens(const ServerContext&);
Operation describe_get_response();
Operation describe_delete_response();
Operation describe_input_items();

}  // namespace pm::server
