// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/messages.h"

#include "worker/server/generation/chat.h"
#include "worker/server/http/json_response.h"
#include "worker/server/wire/messages_form.h"
#include "worker/server/wire/messages_request.h"

namespace pm::server {

bool is_messages_path(std::string_view path) { return path == "/v1/messages" || path.starts_with("/v1/messages/"); }

http::Response create_message(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  UnknownFields unknown(context.strict_requests);
  const MessagesRequest request = parse_messages(call.request.body, false, unknown);
  try {
    http::Response response =
        complete_chat(context, call, request.chat,
                      std::make_shared<MessagesForm>(call.request.id, context.names.in_replies(request.model),
                                                     request.max_tokens, context.max_model_len));
    unknown.report(call, response);
    response.headers.emplace_back("request-id", call.request.id);
    return response;
  } catch (const ApiError& error) {
    throw with_own_names(error, messages_field_names());
  }
}

http::Response count_message_tokens(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  UnknownFields unknown(context.strict_requests);
  const MessagesRequest request = parse_messages(call.request.body, true, unknown);
  try {
    http::Response response = json_response({{"input_tokens", count_chat_tokens(context, request.chat)}});
    unknown.report(call, response);
    response.headers.emplace_back("request-id", call.request.id);
    return response;
  } catch (const ApiError& error) {
    throw with_own_names(error, messages_field_names());
  }
}

}  // namespace pm::server
